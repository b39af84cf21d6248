-- Keep an answer; the same body to the same question again only says that it was seen again.
-- If it let other leagues into CORE than before, or removed other matches, it gets another row.
WITH latest AS (
    SELECT id, fetched_at, body_hash, leagues, vanished
      FROM raw.api_responses
     WHERE request_hash = %(request_hash)s
     ORDER BY seen_order DESC
     LIMIT 1
), again AS (
    UPDATE raw.api_responses AS r
       SET last_fetched_at = clock_timestamp(), times = r.times + 1,
           seen_order = nextval('raw.answer_order')
      FROM latest
     WHERE r.id = latest.id AND r.fetched_at = latest.fetched_at
       AND latest.body_hash = %(body_hash)s
       AND latest.leagues IS NOT DISTINCT FROM %(leagues)s::bigint[]
       AND latest.vanished IS NOT DISTINCT FROM %(vanished)s::bigint[]
    RETURNING r.id
)
INSERT INTO raw.api_responses
       (endpoint, requested_params, status_code, response_headers, body, errors, results,
        fetched_at, last_fetched_at, request_hash, body_hash, run, leagues, vanished)
SELECT %(endpoint)s, %(parameters)s, %(status)s, %(headers)s, %(body)s, %(errors)s, %(results)s,
       at, at, %(request_hash)s, %(body_hash)s, %(run)s, %(leagues)s, %(vanished)s
  FROM clock_timestamp() AS at
 WHERE NOT EXISTS (SELECT FROM again)
