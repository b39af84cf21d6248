-- Runs that waited so long that no worker seems to know their job any more.
WITH unwanted AS (
    UPDATE jobs.run
       SET state = 'finished', outcome = 'skipped', finished_at = clock_timestamp(),
           message = 'No worker took it up for ' || %(days)s || ' days.'
     WHERE state = 'queued'
       AND queued_at < clock_timestamp() - make_interval(days => %(days)s)
    RETURNING queue_id
)
DELETE FROM procrastinate_jobs AS q USING unwanted WHERE q.id = unwanted.queue_id;
