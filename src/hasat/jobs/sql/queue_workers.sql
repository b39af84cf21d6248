-- Processes that have lately given a sign of life; those that run one job by hand included.
SELECT count(*) FROM procrastinate_workers
 WHERE last_heartbeat > clock_timestamp() - make_interval(secs => %(seconds)s);
