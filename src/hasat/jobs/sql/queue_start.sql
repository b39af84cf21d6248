-- Begin an attempt, if the queue's row is still ours; a start whose answer got lost counts once.
WITH mine AS (
    SELECT id
      FROM procrastinate_jobs
     WHERE id = %(queue_id)s AND status = 'doing' AND worker_id = %(worker_id)s
       FOR UPDATE
)
UPDATE jobs.run AS r
   SET state = 'running',
       attempt = r.attempt + (r.state = 'queued')::integer,
       worker = %(worker)s,
       started_at = clock_timestamp(),
       progress = NULL,
       queue_id = mine.id
  FROM mine
 WHERE r.id = %(run)s AND r.state <> 'finished'
RETURNING r.attempt;
