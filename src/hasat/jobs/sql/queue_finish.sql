-- Record how an attempt ended and take the run out of the queue, unless it was taken from us.
-- What all attempts together committed counts: the last one may have found nothing left to do.
-- The queue's row is locked first, as by everybody who decides about runs.
WITH mine AS (
    SELECT q.id
      FROM procrastinate_jobs AS q
      JOIN jobs.run AS r ON r.queue_id = q.id
     WHERE r.id = %(run)s AND r.attempt = %(attempt)s AND r.state = 'running'
       FOR UPDATE OF q
), ended AS (
    UPDATE jobs.run
       SET state = 'finished',
           outcome = CASE WHEN %(outcome)s = 'nothing' AND jobs.rows_stored(id) > 0
                          THEN 'done' ELSE %(outcome)s END,
           finished_at = clock_timestamp(),
           requests = requests + %(requests)s,
           rows_changed = greatest(%(rows_changed)s, jobs.rows_stored(id)),
           message = %(message)s,
           error = %(error)s,
           detail = %(detail)s,
           progress = coalesce(%(progress)s, progress)
      FROM (SELECT count(*) FROM mine) AS locked
     WHERE id = %(run)s AND attempt = %(attempt)s AND state = 'running'
    RETURNING queue_id
), gone AS (
    DELETE FROM procrastinate_jobs AS q USING ended WHERE q.id = ended.queue_id
)
-- The second half is for an end that was recorded before, but whose answer got lost.
SELECT EXISTS (SELECT FROM ended)
    OR EXISTS (SELECT
                 FROM jobs.run
                WHERE id = %(run)s AND attempt = %(attempt)s
                  AND outcome IN (%(outcome)s, CASE %(outcome)s WHEN 'nothing' THEN 'done' END));
