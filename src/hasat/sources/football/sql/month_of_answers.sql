-- A month of answers as a file has them, in the order in which they last came.
SELECT id, seen_order, endpoint, requested_params::text, leagues, vanished, status_code, response_headers::text,
       body::text, errors::text, results, fetched_at, last_fetched_at, times, request_hash, body_hash, run
  FROM {partition}
 ORDER BY seen_order
