-- How many deliveries of each endpoint are in which state, and for how long the oldest one waits.
SELECT endpoint,
       count(*) FILTER (WHERE state = 'waiting') AS waiting,
       count(*) FILTER (WHERE state = 'delivered') AS delivered,
       count(*) FILTER (WHERE state = 'dead') AS dead,
       coalesce(extract(epoch FROM clock_timestamp()
           - min(waiting_since) FILTER (WHERE state = 'waiting')), 0)::float8 AS oldest_seconds
  FROM deliver.delivery
 GROUP BY endpoint
 ORDER BY endpoint
