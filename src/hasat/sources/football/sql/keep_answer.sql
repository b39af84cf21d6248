-- Keep an answer; the same body to the same question again only says that it was seen again.
WITH latest AS (
    SELECT id, fetched_at, body_hash
      FROM raw.api_responses
     WHERE request_hash = %(request_hash)s
     ORDER BY fetched_at DESC
     LIMIT 1
), again AS (
    UPDATE raw.api_responses AS r
       SET last_fetched_at = clock_timestamp(), times = r.times + 1
      FROM latest
     WHERE r.id = latest.id AND r.fetched_at = latest.fetched_at
       AND latest.body_hash = %(body_hash)s
    RETURNING r.id
), new AS (
    INSERT INTO raw.api_responses
           (endpoint, requested_params, status_code, response_headers, body, errors, results,
            fetched_at, last_fetched_at, request_hash, body_hash, run)
    SELECT %(endpoint)s, %(parameters)s, %(status)s, %(headers)s, %(body)s, %(errors)s, %(results)s,
           at, at, %(request_hash)s, %(body_hash)s, %(run)s
      FROM clock_timestamp() AS at
     WHERE NOT EXISTS (SELECT FROM again)
    RETURNING id
)
SELECT id, true AS is_new FROM new
UNION ALL
SELECT id, false FROM again
