-- Runs that waited so long that no worker seems to know their job any more.
WITH unwanted AS (
    SELECT q.id, r.id AS run
      FROM procrastinate_jobs AS q
      JOIN jobs.run AS r ON r.queue_id = q.id
     WHERE r.state = 'queued' AND q.status = 'todo'
       AND r.queued_at < clock_timestamp() - make_interval(days => %(days)s)
       FOR UPDATE OF q
), dropped AS (
    UPDATE jobs.run AS r
       SET state = 'finished', outcome = 'skipped', finished_at = clock_timestamp(),
           message = 'No worker took it up for ' || %(days)s || ' days.'
      FROM unwanted
     WHERE r.id = unwanted.run AND r.state = 'queued'
)
DELETE FROM procrastinate_jobs AS q USING unwanted WHERE q.id = unwanted.id;
