-- Let another worker begin the run anew, after a pause; unless it was taken from us. One that was
-- asked to stop is over.
WITH mine AS (
    SELECT q.id, q.abort_requested AS over
      FROM procrastinate_jobs AS q
      JOIN jobs.run AS r ON r.queue_id = q.id
     WHERE r.id = %(run)s AND r.attempt = %(attempt)s AND r.state = 'running'
       AND q.status = 'doing'
       FOR UPDATE OF q
), back AS (
    UPDATE jobs.run AS r
       SET state = CASE WHEN over THEN 'finished' ELSE 'queued' END,
           outcome = CASE WHEN over THEN 'interrupted' END,
           finished_at = CASE WHEN over THEN clock_timestamp() END,
           attempt = r.attempt - (NOT over AND NOT %(counts)s)::integer,
           worker = CASE WHEN over THEN r.worker END,
           started_at = CASE WHEN over THEN r.started_at END,
           progress = CASE WHEN over THEN r.progress END,
           requests = r.requests + %(requests)s,
           rows_changed = jobs.rows_stored(r.id),
           message = CASE WHEN over THEN %(stopped)s ELSE %(message)s END
      FROM mine
     WHERE r.id = %(run)s AND r.attempt = %(attempt)s AND r.state = 'running'
    RETURNING r.id
), gone AS (
    DELETE FROM procrastinate_jobs AS q USING mine, back WHERE q.id = mine.id AND mine.over
), again AS (
    UPDATE procrastinate_jobs AS q
       SET status = 'todo',
           worker_id = NULL,
           attempts = attempts + 1,
           scheduled_at = now() + make_interval(secs => %(pause)s)
      FROM mine, back
     WHERE q.id = mine.id AND NOT mine.over
)
SELECT EXISTS (SELECT FROM back);
