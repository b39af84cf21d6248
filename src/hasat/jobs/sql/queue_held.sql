-- The rows a worker is supposed to be working on.
SELECT id FROM procrastinate_jobs WHERE status = 'doing' AND worker_id = %(worker_id)s;
