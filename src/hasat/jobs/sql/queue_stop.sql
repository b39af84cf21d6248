-- End a run that waits; ask whoever works on one that does not. No row if it is over.
WITH open AS (
    SELECT r.id AS run, q.id, q.status
      FROM procrastinate_jobs AS q
      JOIN jobs.run AS r ON r.queue_id = q.id
     WHERE r.id = %(run)s AND r.state <> 'finished' AND q.status IN ('todo', 'doing')
       FOR UPDATE OF q
), ended AS (
    UPDATE jobs.run AS r
       SET state = 'finished', outcome = 'interrupted', finished_at = clock_timestamp(),
           rows_changed = jobs.rows_stored(r.id), message = %(message)s
      FROM open
     WHERE r.id = open.run AND open.status = 'todo'
), gone AS (
    DELETE FROM procrastinate_jobs AS q USING open WHERE q.id = open.id AND open.status = 'todo'
), asked AS (
    UPDATE procrastinate_jobs AS q
       SET abort_requested = true
      FROM open
     WHERE q.id = open.id AND open.status = 'doing'
)
SELECT status = 'doing' AS asked FROM open;
