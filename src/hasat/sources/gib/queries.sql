-- name: decide_held
-- Runs that waited for a decision when the mirror moved on.
UPDATE gib.held
   SET state = CASE WHEN run = %(approved)s THEN 'approved' ELSE 'superseded' END,
       decided_at = clock_timestamp()
 WHERE state = 'waiting'

-- name: held_inputs_over
-- Stored lists of runs that neither work nor wait for a decision, as far as this machine has them.
SELECT i.run, i.name, i.path, i.sha256, i.size, i.machine
  FROM gib.held_input AS i
 WHERE (i.machine IS NULL OR i.machine = %(machine)s)
   AND NOT EXISTS (SELECT FROM gib.held AS h WHERE h.run = i.run AND h.state = 'waiting')
   AND NOT EXISTS (SELECT FROM jobs.run AS r WHERE r.id = i.run AND r.state <> 'finished')
   AND NOT EXISTS (SELECT FROM jobs.run AS r
                    WHERE r.job = 'gib_sync' AND r.state <> 'finished'
                      AND r.params ->> 'approve' = i.run::text)

-- name: keep_taxpayers
-- Keep the parts of some taxpayers as the lists say them now.
INSERT INTO gib.taxpayer AS t (identifier, parts)
SELECT * FROM unnest(%(identifiers)s::text[], %(parts)s::text[])
ON CONFLICT (identifier) DO UPDATE SET parts = excluded.parts

-- name: metrics
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

-- name: note_held_input
-- Record where a list of a held run is going to be stored; a repeated attempt replaces it.
INSERT INTO gib.held_input (run, name, path, sha256, size, machine)
VALUES (%(run)s, %(name)s, %(path)s, %(sha256)s, %(size)s, %(machine)s)
ON CONFLICT (run, name) DO UPDATE
   SET path = excluded.path, sha256 = excluded.sha256, size = excluded.size,
       machine = excluded.machine

-- name: runs_with_folders
-- Runs that work.
SELECT id FROM jobs.run WHERE state <> 'finished'

-- name: save_list
-- What this run knows of a list, for the next one.
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

-- name: save_list_again
-- The same for a list whose records are the same as before.
UPDATE gib.list
   SET run = %(run)s, users = %(users)s, rejected = %(rejected)s, xml_bytes = %(xml_bytes)s,
       usual_length = %(usual_length)s, agreed = %(agreed)s, sha256 = %(sha256)s
 WHERE name = %(name)s

-- name: search
-- One page of a search and how many it found in all, as one snapshot saw them.
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

-- name: search_state
-- What of the search is there: rows that are not complete, pg_trgm's operators, indexes by them, and
-- anything to search.
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

-- name: supersede_held
-- Of the runs that wait for a decision only the newest go on waiting.
UPDATE gib.held
   SET state = 'superseded', decided_at = clock_timestamp()
 WHERE run IN (SELECT run FROM gib.held WHERE state = 'waiting' ORDER BY run DESC OFFSET %(most)s)
