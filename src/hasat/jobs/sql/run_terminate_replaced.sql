-- End the database sessions of a run's replaced attempts, or, without a run, of every replaced one.
SELECT run, pid, pg_terminate_backend(pid, %(wait_ms)s) AS is_gone
  FROM jobs.run_session
 WHERE run = %(run)s OR %(run)s::bigint IS NULL AND is_orphaned;
