-- The last attempts at a synchronisation and what the mirror holds.
WITH runs AS (
    -- One that found another at work has attempted nothing.
    SELECT * FROM jobs.run WHERE job = 'gib_sync' AND state = 'finished' AND outcome <> 'skipped'
), newest AS (
    SELECT * FROM runs ORDER BY id DESC LIMIT 1
), good AS (
    SELECT * FROM runs WHERE outcome IN ('done', 'nothing') ORDER BY id DESC LIMIT 1
)
SELECT (SELECT max(committed_at) FROM feed.head WHERE source = 'gib') AS last_sync_at,
       (SELECT records FROM feed.head WHERE dataset = 'einvoice') AS einvoice,
       (SELECT records FROM feed.head WHERE dataset = 'edespatch') AS edespatch,
       (SELECT (detail ->> 'seconds')::numeric FROM good) AS last_sync_seconds,
       (SELECT outcome FROM newest) AS outcome,
       (SELECT coalesce(message, error) FROM newest WHERE outcome NOT IN ('done', 'nothing')) AS error,
       (SELECT started_at FROM newest) AS attempt_at,
       (SELECT max(finished_at) FROM runs WHERE outcome IN ('failed', 'set_aside')) AS failure_at,
       (SELECT count(*) FROM gib.held WHERE state = 'waiting') AS held,
       (SELECT extract(epoch FROM clock_timestamp() - max(committed_at)) / 3600
          FROM feed.head WHERE source = 'gib') AS hours
