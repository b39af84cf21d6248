-- Let another worker begin the run anew, after a pause; unless it was taken from us.
WITH back AS (
    UPDATE jobs.run
       SET state = 'queued',
           attempt = attempt - (NOT %(counts)s)::integer,
           worker = NULL,
           started_at = NULL,
           progress = NULL,
           requests = requests + %(requests)s,
           message = %(message)s
     WHERE id = %(run)s AND attempt = %(attempt)s AND state = 'running'
    RETURNING queue_id
), again AS (
    UPDATE procrastinate_jobs AS q
       SET status = 'todo',
           worker_id = NULL,
           attempts = attempts + 1,
           scheduled_at = now() + make_interval(secs => %(pause)s)
      FROM back
     WHERE q.id = back.queue_id AND q.status = 'doing'
)
SELECT EXISTS (SELECT FROM back);
