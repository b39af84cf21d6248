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
       ARRAY(SELECT (SELECT count(*) FROM runs WHERE (detail ->> 'seconds')::float <= bound)
               FROM unnest(%(bounds)s::float[]) WITH ORDINALITY AS b (bound, place)
              ORDER BY place) AS within,
       (SELECT coalesce(sum((detail #>> '{lists,pk,users}')::bigint), 0) FROM runs) AS pk,
       (SELECT coalesce(sum((detail #>> '{lists,gb,users}')::bigint), 0) FROM runs) AS gb,
       (SELECT count(*) FROM feed.hold WHERE source = 'gib') AS held,
       (SELECT extract(epoch FROM max(committed_at))::float FROM feed.head WHERE source = 'gib')
           AS last_sync_at,
       (SELECT records FROM feed.head WHERE dataset = 'einvoice') AS einvoice,
       (SELECT records FROM feed.head WHERE dataset = 'edespatch') AS edespatch,
       coalesce(sum(v.added) FILTER (WHERE v.seq > v.seq_before), 0)::bigint AS added,
       coalesce(sum(v.modified) FILTER (WHERE v.seq > v.seq_before), 0)::bigint AS modified,
       coalesce(sum(v.removed) FILTER (WHERE v.seq > v.seq_before), 0)::bigint AS removed
  FROM feed.version_dataset AS v
 WHERE v.dataset IN ('einvoice', 'edespatch')

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
     WHERE {matches}
       AND (%(personal)s OR length(identifier) <> 11)
), page AS (
    SELECT * FROM wanted ORDER BY line LIMIT %(size)s OFFSET %(skip)s
)
SELECT (SELECT count(*) FROM wanted) AS total, m.body
  FROM (SELECT) AS always
  LEFT JOIN (page JOIN {table} AS m ON m.key = page.identifier) ON true
 ORDER BY page.line

-- name: search_similar
-- The titles whose trigrams are most similar to those of a text.
SELECT identifier, split_part(line, E'\n', 1) AS title
  FROM {rows}
 WHERE line OPERATOR({schema}.%%>) %(words)s
   AND (%(personal)s OR length(identifier) <> 11)
 ORDER BY {schema}.word_similarity(%(words)s, line)
          + {schema}.similarity(%(text)s, split_part(line, E'\n', 1)) DESC, line
 LIMIT %(most)s

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
       (SELECT count(*) FROM feed.hold WHERE source = 'gib' AND state = 'waiting') AS held,
       (SELECT extract(epoch FROM clock_timestamp() - max(committed_at)) / 3600
          FROM feed.head WHERE source = 'gib') AS hours

-- name: check
-- The version of both datasets and the records of some identifiers, from one snapshot.
SELECT dataset, NULL AS key, NULL::jsonb AS body, epoch, seq, committed_at
  FROM feed.head
 WHERE dataset = ANY (%(datasets)s)
UNION ALL
SELECT 'einvoice', key, body, NULL, NULL, NULL FROM core.einvoice
 WHERE key = ANY (%(identifiers)s)
UNION ALL
SELECT 'edespatch', key, body, NULL, NULL, NULL FROM core.edespatch
 WHERE key = ANY (%(identifiers)s)
