-- Runs that wait or work without a row in the queue would block their job for ever.
UPDATE jobs.run AS r
   SET state = 'finished', outcome = 'interrupted', finished_at = clock_timestamp(),
       rows_changed = jobs.rows_stored(r.id),
       message = 'Its place in the queue was lost. Queue it again: hasat jobs retry ' || r.id || '.'
 WHERE r.state <> 'finished'
   AND NOT EXISTS (SELECT FROM procrastinate_jobs AS q WHERE q.id = r.queue_id)
RETURNING r.id;
