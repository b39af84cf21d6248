-- Rows that were handed to a worker which never heard of it.
UPDATE procrastinate_jobs
   SET worker_id = NULL
 WHERE id = ANY(%(ids)s) AND status = 'doing' AND worker_id = %(worker_id)s;
