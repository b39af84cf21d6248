-- The original service's gauges, from the runs on record and the versions of the feed.
WITH runs AS (
    SELECT * FROM jobs.run WHERE job = 'gib_sync'
), good AS (
    SELECT * FROM runs WHERE outcome IN ('done', 'nothing') ORDER BY id DESC LIMIT 1
)
SELECT ARRAY(SELECT ROW(outcome, count(*)) FROM runs WHERE state = 'finished' GROUP BY outcome)
           AS outcomes,
       (SELECT count(*) FROM runs WHERE state = 'running') AS active,
       (SELECT (detail ->> 'seconds')::float FROM good) AS last_seconds,
       (SELECT coalesce(sum((detail ->> 'seconds')::float), 0) FROM runs) AS seconds,
       (SELECT count(detail ->> 'seconds') FROM runs) AS timed,
       (SELECT coalesce(sum((detail #>> '{lists,pk,users}')::bigint), 0) FROM runs) AS pk,
       (SELECT coalesce(sum((detail #>> '{lists,gb,users}')::bigint), 0) FROM runs) AS gb,
       (SELECT count(*) FROM gib.held) AS held,
       (SELECT extract(epoch FROM max(committed_at))::float FROM feed.head WHERE source = 'gib')
           AS last_sync_at,
       (SELECT records FROM feed.head WHERE dataset = 'einvoice') AS einvoice,
       (SELECT records FROM feed.head WHERE dataset = 'edespatch') AS edespatch,
       coalesce(sum(v.added) FILTER (WHERE v.seq > v.seq_before), 0)::bigint AS added,
       coalesce(sum(v.modified) FILTER (WHERE v.seq > v.seq_before), 0)::bigint AS modified,
       coalesce(sum(v.removed) FILTER (WHERE v.seq > v.seq_before), 0)::bigint AS removed
  FROM feed.version_dataset AS v
 WHERE v.dataset IN ('einvoice', 'edespatch')
