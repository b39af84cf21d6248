-- Every answer, the one that came last first.
SELECT seen_order, substr(endpoint, 2), requested_params, leagues, coalesce(vanished, '{}'), last_fetched_at, body::text
  FROM raw.api_responses
 ORDER BY seen_order DESC
