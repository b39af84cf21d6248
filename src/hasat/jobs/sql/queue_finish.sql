-- Record how an attempt ended and take the run out of the queue, unless it was taken from us.
WITH ended AS (
    UPDATE jobs.run
       SET state = 'finished',
           outcome = %(outcome)s,
           finished_at = clock_timestamp(),
           requests = requests + %(requests)s,
           rows_changed = coalesce(%(rows_changed)s, jobs.rows_stored(id)),
           message = %(message)s,
           error = %(error)s,
           detail = %(detail)s,
           progress = coalesce(%(progress)s, progress)
     WHERE id = %(run)s AND attempt = %(attempt)s AND state = 'running'
    RETURNING queue_id
), gone AS (
    DELETE FROM procrastinate_jobs AS q USING ended WHERE q.id = ended.queue_id
)
-- The second half is for an end that was recorded before, but whose answer got lost.
SELECT EXISTS (SELECT FROM ended)
    OR EXISTS (SELECT
                 FROM jobs.run
                WHERE id = %(run)s AND attempt = %(attempt)s AND outcome = %(outcome)s);
