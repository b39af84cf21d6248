-- name: close_held_runs
-- Mark waiting runs as approved or superseded when the mirror changes.
UPDATE gib.held
   SET state = CASE WHEN run = %(approved)s THEN 'approved' ELSE 'superseded' END,
       decided_at = clock_timestamp()
 WHERE state = 'waiting'

-- name: decided_inputs
-- Stored lists of runs that are neither active nor waiting, on this machine or in the object store.
SELECT i.run, i.name, i.path, i.sha256, i.size, i.machine
  FROM gib.held_input AS i
 WHERE (i.machine IS NULL OR i.machine = %(machine)s)
   AND NOT EXISTS (SELECT FROM gib.held AS h WHERE h.run = i.run AND h.state = 'waiting')
   AND NOT EXISTS (SELECT FROM jobs.run AS r WHERE r.id = i.run AND r.state <> 'finished')
   AND NOT EXISTS (SELECT FROM jobs.run AS r
                    WHERE r.job = 'gib_sync' AND r.state <> 'finished'
                      AND r.params ->> 'approve' = i.run::text)

-- name: store_taxpayer_lines
-- Insert or update the lines of some taxpayers.
INSERT INTO gib.taxpayer AS t (identifier, parts)
SELECT * FROM unnest(%(identifiers)s::text[], %(parts)s::text[])
ON CONFLICT (identifier) DO UPDATE SET parts = excluded.parts

-- name: metrics
-- Values for the original service's metrics, from stored runs and the feed's versions.
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

-- name: save_held_input
-- Record where a list of a held run is stored; a repeated attempt replaces it.
INSERT INTO gib.held_input (run, name, path, sha256, size, machine)
VALUES (%(run)s, %(name)s, %(path)s, %(sha256)s, %(size)s, %(machine)s)
ON CONFLICT (run, name) DO UPDATE
   SET path = excluded.path, sha256 = excluded.sha256, size = excluded.size,
       machine = excluded.machine

-- name: save_list
-- Store the state of a list for the next run.
INSERT INTO gib.list AS l (
    name, run, users, rejected, duplicates, xml_bytes, usual_length, agreed, sha256, seed,
    fingerprints, identifiers
) VALUES (
    %(name)s, %(run)s, %(users)s, %(rejected)s, %(duplicates)s, %(xml_bytes)s, %(usual_length)s,
    %(agreed)s, %(sha256)s, %(seed)s, %(fingerprints)s, %(identifiers)s
)
ON CONFLICT (name) DO UPDATE
   SET run = excluded.run, users = excluded.users, rejected = excluded.rejected,
       duplicates = excluded.duplicates, xml_bytes = excluded.xml_bytes,
       usual_length = excluded.usual_length, agreed = excluded.agreed,
       sha256 = excluded.sha256, seed = excluded.seed,
       fingerprints = excluded.fingerprints, identifiers = excluded.identifiers

-- name: update_list_counts
-- Store the state of a list whose records are unchanged.
UPDATE gib.list
   SET run = %(run)s, users = %(users)s, rejected = %(rejected)s, xml_bytes = %(xml_bytes)s,
       usual_length = %(usual_length)s, agreed = %(agreed)s, sha256 = %(sha256)s
 WHERE name = %(name)s

-- name: search
-- One page of a search and its total, from one snapshot.
WITH wanted AS {once} (
    SELECT identifier, line
      FROM {rows} AS s
     WHERE line LIKE %(like)s
       AND (%(alias)s::jsonb IS NULL OR aliases @> %(alias)s::jsonb)
       AND (%(personal)s OR length(identifier) <> 11)
), page AS (
    SELECT * FROM wanted ORDER BY line LIMIT %(size)s OFFSET %(skip)s
)
SELECT (SELECT count(*) FROM wanted) AS total, m.body
  FROM (SELECT) AS always
  LEFT JOIN (page JOIN {table} AS m ON m.key = page.identifier) ON true
 ORDER BY page.line

-- name: load_search_state
-- Datasets without search rows, pg_trgm's operators, indexed datasets, and whether there are records.
SELECT ARRAY(SELECT name FROM unnest(%(datasets)s::text[]) AS name
              WHERE NOT EXISTS (SELECT FROM gib.search_ready WHERE dataset = name)) AS unready,
       operators.nspname, operators.opcname,
       ARRAY(SELECT name FROM unnest(%(datasets)s::text[]) AS name
              WHERE to_regclass('gib.search_' || name || '_line') IS NOT NULL) AS indexed,
       EXISTS (SELECT FROM feed.head WHERE dataset = ANY (%(datasets)s) AND records > 0) AS filled
  FROM (SELECT) AS always
  LEFT JOIN (
       SELECT n.nspname, c.opcname
         FROM pg_opclass AS c
         JOIN pg_am AS a ON a.oid = c.opcmethod AND a.amname = 'gin'
         JOIN pg_namespace AS n ON n.oid = c.opcnamespace
        WHERE c.opcname = 'gin_trgm_ops'
        LIMIT 1
       ) AS operators ON true

-- name: status
-- The last syncs and the number of records in the mirror.
WITH runs AS (
    -- A skipped run has attempted nothing.
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

-- name: supersede_held
-- Keep only the newest runs waiting for a decision.
UPDATE gib.held
   SET state = 'superseded', decided_at = clock_timestamp()
 WHERE run IN (SELECT run FROM gib.held WHERE state = 'waiting' ORDER BY run DESC OFFSET %(max_waiting)s)
