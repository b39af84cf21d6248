-- name: add_version
-- A new version of the source's datasets.
INSERT INTO feed.version (run, source, scope, committed_at)
VALUES (%(run)s, %(source)s, %(scope)s, %(at)s)
RETURNING id

-- name: add_version_dataset
-- The effect of the version on one dataset, even if there is none.
INSERT INTO feed.version_dataset
       (version, dataset, epoch, committed_at, seq_before, seq, added, modified, removed, records, digest)
VALUES (%(version)s, %(dataset)s, %(epoch)s, %(at)s, %(seq_before)s, %(seq)s,
        %(added)s, %(modified)s, %(removed)s, %(records)s, %(digest)s)

-- name: apply
-- Apply the changes to the mirror and write them to the feed.
WITH gone AS (
    DELETE FROM {table} AS m USING {changes} AS c WHERE c.kind = 3 AND m.key = c.key
), changed AS (
    UPDATE {table} AS m
       SET body = c.body, digest = c.digest, seq = c.seq, changed_at = %(at)s
      FROM {changes} AS c
     WHERE c.kind = 2 AND m.key = c.key
), new AS (
    INSERT INTO {table} (key, body, digest, seq, first_seen_at, changed_at)
    SELECT key, body, digest, seq, %(at)s, %(at)s FROM {changes} WHERE kind = 1
)
INSERT INTO feed.change (dataset, seq, version, kind, key, body, before, changed_at)
SELECT %(dataset)s, seq, %(version)s, kind, key, body, before, %(at)s FROM {changes}

-- name: changes_after
-- The head, then the changes after a number, as one snapshot saw them (so retention cannot race).
-- Only the head's row has an epoch.
WITH head AS (
    SELECT dataset, epoch, seq, floor, committed_at FROM feed.head WHERE dataset = %(dataset)s
)
SELECT epoch, floor, committed_at, seq, NULL AS kind, NULL AS key, NULL AS body, NULL AS before,
       NULL AS changed_at, NULL AS version
  FROM head
UNION ALL
SELECT NULL, NULL, NULL, c.*
  FROM head
 CROSS JOIN LATERAL (
       SELECT seq, kind, key, body::{form}, CASE WHEN %(before)s THEN before::{form} END,
              changed_at, version
         FROM feed.change
        WHERE dataset = head.dataset AND seq > coalesce(%(after)s, head.floor)
        ORDER BY seq
        LIMIT %(limit)s
       ) AS c

-- name: changes_between
-- One page of the changes committed in a window of time, in the order of their numbers.
-- `until` is the end of the window on its last page; before that it is the commit time of the last
-- version that the pages up to this one cover, so that a commit between two pages is never skipped.
{window}, page AS (
    SELECT *, greatest(high - low, 0) AS total, low + %(skip)s + %(size)s AS covered FROM span
)
{page}
   AND c.seq > page.low + %(skip)s AND c.seq <= least(page.covered, page.high)
 ORDER BY c.seq

-- name: changes_of
-- The same for some records, each by index, however many others changed.
WITH head AS (
    SELECT dataset, epoch, seq, floor, committed_at FROM feed.head WHERE dataset = %(dataset)s
)
SELECT epoch, floor, committed_at, seq, NULL AS kind, NULL AS key, NULL AS body, NULL AS before,
       NULL AS changed_at, NULL AS version
  FROM head
UNION ALL
SELECT NULL, NULL, NULL, c.*
  FROM head
 CROSS JOIN LATERAL (
       SELECT of_one.*
         FROM (SELECT DISTINCT unnest(%(keys)s::text[]) AS key) AS watched
        CROSS JOIN LATERAL (
              SELECT seq, kind, key, body::{form}, CASE WHEN %(before)s THEN before::{form} END,
                     changed_at, version
                FROM feed.change
               WHERE dataset = head.dataset AND key = watched.key
                 AND seq > coalesce(%(after)s, head.floor)
               ORDER BY seq
               LIMIT %(limit)s
              ) AS of_one
        ORDER BY of_one.seq
        LIMIT %(limit)s
       ) AS c

-- name: changes_of_between
-- The same for some records; a version without a change of theirs counts as covered.
{window}, matched AS (
    SELECT c.seq
      FROM span
      JOIN feed.change AS c ON c.dataset = span.dataset AND c.key = ANY (%(keys)s)
                           AND c.seq > span.low AND c.seq <= span.high
), page AS (
    SELECT *, (SELECT count(*) FROM matched) AS total,
           coalesce((SELECT seq - 1 FROM matched ORDER BY seq OFFSET %(skip)s + %(size)s LIMIT 1),
                    high) AS covered
      FROM span
)
{page}
   AND c.seq IN (SELECT seq FROM matched ORDER BY seq OFFSET %(skip)s LIMIT %(size)s)
 ORDER BY c.seq

-- name: commit_window
-- The sequence numbers before and at the end of a window of time: the beginning of both queries
-- of the changes between two times.
WITH head AS (
    SELECT dataset, epoch, floor, floor_at, committed_at,
           least(%(until)s::timestamptz, committed_at) AS window_end
      FROM feed.head
     WHERE dataset = %(dataset)s
), span AS (
    SELECT head.*,
           coalesce((SELECT v.seq FROM feed.version_dataset AS v
                      WHERE v.dataset = head.dataset AND v.epoch = head.epoch
                        AND v.committed_at <= %(since)s
                      ORDER BY v.committed_at DESC LIMIT 1), head.floor) AS low,
           coalesce((SELECT v.seq FROM feed.version_dataset AS v
                      WHERE v.dataset = head.dataset AND v.epoch = head.epoch
                        AND v.committed_at <= head.window_end
                      ORDER BY v.committed_at DESC LIMIT 1), head.floor) AS high
      FROM head
)

-- name: commit_page
-- The end of both queries: the changes of the page, and how far the pages up to this one reach.
SELECT page.floor_at, page.committed_at, page.window_end, page.total,
       CASE WHEN page.covered >= page.high THEN page.window_end
            ELSE coalesce((SELECT v.committed_at FROM feed.version_dataset AS v
                            WHERE v.dataset = page.dataset AND v.epoch = page.epoch
                              AND v.committed_at > %(since)s AND v.committed_at <= page.window_end
                              AND v.seq <= page.covered
                            ORDER BY v.committed_at DESC LIMIT 1), %(since)s)
       END AS until,
       c.seq, c.kind, c.key, c.body, c.before, c.changed_at, c.version
  FROM page
  LEFT JOIN feed.change AS c
    ON c.dataset = page.dataset

-- name: commit_time
-- The commit time of a new version: later than every earlier one, whatever the clock says.
SELECT greatest(clock_timestamp(), max(committed_at) + interval '1 microsecond')
  FROM feed.head WHERE dataset = ANY (%(datasets)s)

-- name: diff
-- The differences between the run and the mirror; absence counts only inside the scope.
CREATE TEMP TABLE {changes} ON COMMIT DROP AS
SELECT %(head)s::bigint + row_number() OVER (ORDER BY key) AS seq,
       CASE WHEN digest_before IS NULL THEN 1 WHEN digest IS NULL THEN 3 ELSE 2 END::smallint AS kind,
       key, body, digest, before, digest_before
  FROM (
        SELECT s.key, s.body, s.digest, m.body AS before, m.digest AS digest_before
          FROM {staged} AS s
          LEFT JOIN {table} AS m ON m.key = s.key
        UNION ALL
        SELECT m.key, NULL, NULL, m.body, m.digest
          FROM {table} AS m
         WHERE ({scope})
           AND NOT EXISTS (SELECT FROM {staged} AS s WHERE s.key = m.key)
           AND m.key <> ALL (%(protected)s::text[])
       ) AS seen
 WHERE digest IS DISTINCT FROM digest_before

-- name: drop_old_changes
-- Delete changes below the floor; the floor itself moved in the same transaction. A trigger stores the
-- states that they ended.
DELETE FROM feed.change WHERE dataset = %(dataset)s AND seq <= %(floor)s

-- name: drop_surplus
-- Delete records that are not staged.
DELETE FROM {table} AS m
 WHERE NOT EXISTS (SELECT FROM {staged} AS s WHERE s.key = m.key)

-- name: effects_of_run
-- The versions of a run that changed a dataset, and whether all their changes are still stored.
SELECT d.dataset, array_agg(d.version ORDER BY d.version), min(d.seq_before), max(d.seq),
       bool_and(d.epoch = h.epoch AND d.seq_before >= h.floor)
  FROM feed.version AS v
  JOIN feed.version_dataset AS d ON d.version = v.id
  JOIN feed.head AS h ON h.dataset = d.dataset
 WHERE v.run = %(run)s AND d.seq > d.seq_before
 GROUP BY d.dataset
 ORDER BY d.dataset

-- name: states_before_run
-- The state before some versions of each record that they changed and no later version has changed again;
-- null where they added it.
CREATE TEMP TABLE {before} ON COMMIT DROP AS
SELECT DISTINCT ON (c.key) c.key, c.before AS body
  FROM feed.change AS c
 WHERE c.dataset = %(dataset)s AND c.seq > %(after)s AND c.seq <= %(until)s
   AND c.version = ANY (%(versions)s)
   AND NOT EXISTS (SELECT FROM feed.change AS l
                    WHERE l.dataset = c.dataset AND l.key = c.key AND l.seq > c.seq
                      AND l.version <> ALL (%(versions)s))
 ORDER BY c.key, c.seq

-- name: end_states
-- The states that a new epoch ends: what the changes of the old one say was published last, else what
-- the table has, wherever the staged state differs.
INSERT INTO feed.history (dataset, key, seq, version, body, valid_to)
SELECT %(dataset)s, key, %(seq)s, %(version)s, published.body, %(at)s
  FROM (
        SELECT coalesce(c.key, m.key) AS key, CASE WHEN c.key IS NULL THEN m.body ELSE c.body END AS body
          FROM {table} AS m
          FULL JOIN (
                SELECT DISTINCT ON (key) key, body FROM feed.change
                 WHERE dataset = %(dataset)s AND seq > %(floor)s
                 ORDER BY key, seq DESC
               ) AS c ON c.key = m.key
       ) AS published
  FULL JOIN {staged} AS s USING (key)
 WHERE published.body IS DISTINCT FROM s.body

-- name: examples
-- A sample of the changes of a run, chosen by digest: spread evenly, and the same each time.
SELECT key, coalesce(body, before)
  FROM {changes} AS m
 WHERE kind = %(kind)s AND ({among})
 ORDER BY coalesce(digest, digest_before)
 LIMIT %(limit)s

-- name: fill
-- The first load of a whole dataset: records without changes.
INSERT INTO {table} (key, body, digest, first_seen_at, changed_at)
SELECT key, body, digest, %(at)s, %(at)s FROM {staged}

-- name: current_records
-- One row for the head, then the records with these keys, as one snapshot saw them.
SELECT NULL AS key, NULL AS body, NULL AS digest, max(committed_at) AS committed_at
  FROM feed.head
 WHERE dataset = %(dataset)s
 UNION ALL
SELECT key, body::text, encode(digest, 'hex'), NULL
  FROM {table}
 WHERE key = ANY (%(keys)s)

-- name: head
-- The head of a dataset.
SELECT dataset, epoch, seq, floor, floor_at, records, digest, version, committed_at
  FROM feed.head
 WHERE dataset = %(dataset)s

-- name: expire_history
-- Delete the states that ended before the retention, and record from when on the history reaches.
WITH cutoff AS (
    SELECT clock_timestamp() - %(retention)s::interval AS at
), expired AS (
    DELETE FROM feed.history USING cutoff WHERE valid_to <= cutoff.at RETURNING dataset
), gap AS (
    INSERT INTO feed.history_gap (dataset, after, until)
    SELECT DISTINCT dataset, '-infinity'::timestamptz, cutoff.at FROM expired CROSS JOIN cutoff
    ON CONFLICT (dataset, after) DO UPDATE SET until = greatest(history_gap.until, excluded.until)
)
SELECT count(*) FROM expired

-- name: history
-- The changes of one record, oldest first: those that are stored, and before them those that left
-- the state before them. The state after such a one is the state before the next, or the current.
WITH stored AS (
    SELECT seq, version, valid_to AS changed_at, body AS before, NULL::jsonb AS body, true AS compacted
      FROM feed.history
     WHERE dataset = %(dataset)s AND key = %(key)s
     UNION ALL
    SELECT seq, version, changed_at, before, body, false
      FROM feed.change
     WHERE dataset = %(dataset)s AND key = %(key)s
), complete AS (
    SELECT seq, version, changed_at, before,
           CASE WHEN compacted
                THEN lead(before, 1, (SELECT body FROM {table} WHERE key = %(key)s))
                     OVER (ORDER BY changed_at)
                ELSE body END AS body
      FROM stored
)
SELECT seq, CASE WHEN before IS NULL THEN 1 WHEN body IS NULL THEN 3 ELSE 2 END AS kind,
       %(key)s::text AS key, body, before, changed_at, version
  FROM complete
 ORDER BY changed_at

-- name: repair
-- Repair the table from the staged published state, with the sequence numbers and times of the stored
-- changes. A record without a stored change counts as present since the first version.
INSERT INTO {table} AS mirrored (key, body, digest, seq, first_seen_at, changed_at)
SELECT s.key, s.body, s.digest, coalesce(c.seq, 0), coalesce(c.added_at, f.at), coalesce(c.changed_at, f.at)
  FROM {staged} AS s
 CROSS JOIN (SELECT min(committed_at) AS at FROM feed.version_dataset WHERE dataset = %(dataset)s) AS f
  LEFT JOIN {table} AS m ON m.key = s.key
  LEFT JOIN LATERAL (
       SELECT max(seq) AS seq, max(changed_at) AS changed_at,
              max(changed_at) FILTER (WHERE kind = 1) AS added_at
         FROM feed.change
        WHERE dataset = %(dataset)s AND key = s.key) AS c ON true
 WHERE m.key IS NULL OR m.digest <> s.digest OR m.body <> s.body
    ON CONFLICT (key) DO UPDATE
   SET body = excluded.body, digest = excluded.digest, seq = excluded.seq,
       first_seen_at = excluded.first_seen_at, changed_at = excluded.changed_at

-- name: move_head
-- Move a dataset's head; the floor follows retention and never goes back.
WITH kept AS (
    SELECT coalesce(max(seq), 0) AS floor
      FROM feed.version_dataset
     WHERE dataset = %(dataset)s AND epoch = %(epoch)s
       AND committed_at < %(at)s - make_interval(days => %(retention_days)s)
)
UPDATE feed.head
   SET seq = %(seq)s, records = %(records)s, digest = %(digest)s,
       version = %(version)s, committed_at = %(at)s,
       floor = greatest(head.floor, kept.floor),
       floor_at = greatest(floor_at, %(at)s - make_interval(days => %(retention_days)s))
  FROM kept
 WHERE dataset = %(dataset)s
RETURNING head.floor

-- name: start_epoch
-- Start a new epoch: cursors and times of the old one must not be accepted.
UPDATE feed.head
   SET epoch = gen_random_uuid(), floor = seq, records = 0,
       digest = '\x00000000000000000000000000000000',
       floor_at = greatest(clock_timestamp(), committed_at + interval '1 microsecond')
 WHERE dataset = %(dataset)s

-- name: record_as_of
-- One record as of a moment: the first state that ended later, else the current one.
SELECT h.committed_at, clock_timestamp() AS now,
       (SELECT min(v.committed_at) FROM feed.version_dataset AS v WHERE v.dataset = h.dataset)
           AS first_at,
       nullif(gap.after, '-infinity') AS unknown_after, gap.until AS unknown_until,
       CASE WHEN ended.at IS NULL THEN m.body ELSE ended.body END AS body
  FROM feed.head AS h
  LEFT JOIN {table} AS m ON m.key = %(key)s
  LEFT JOIN feed.history_gap AS gap
    ON gap.dataset = h.dataset AND gap.after < %(at)s AND gap.until > %(at)s
  LEFT JOIN LATERAL (
       SELECT at, body
         FROM (
               (SELECT valid_to AS at, body
                  FROM feed.history
                 WHERE dataset = h.dataset AND key = %(key)s AND valid_to > %(at)s
                 ORDER BY valid_to
                 LIMIT 1)
               UNION ALL
               (SELECT changed_at, before
                  FROM feed.change
                 WHERE dataset = h.dataset AND key = %(key)s AND changed_at > %(at)s
                 ORDER BY seq
                 LIMIT 1)
              ) AS first
        ORDER BY at
        LIMIT 1
       ) AS ended ON true
 WHERE h.dataset = %(dataset)s
 ORDER BY gap.until DESC
 LIMIT 1

-- name: stage
-- The records of this run in one dataset.
CREATE TEMP TABLE {staged} (
    key    text COLLATE "C" NOT NULL,
    body   jsonb NOT NULL,
    digest bytea NOT NULL
) ON COMMIT DROP

-- name: declared_tables
-- Which of the datasets have a table, and the indexes that were made for their columns.
SELECT d.name, to_regclass(format('core.%%I', d.name)) IS NOT NULL,
       ARRAY(SELECT c.relname::text
               FROM pg_index AS i
               JOIN pg_class AS c ON c.oid = i.indexrelid
              WHERE i.indrelid = to_regclass(format('core.%%I', d.name))
                AND obj_description(c.oid, 'pg_class') = %(mark)s)
  FROM unnest(%(datasets)s::text[]) AS d (name)

-- name: make_table
-- The table of a declared dataset, and its head.
INSERT INTO feed.head (dataset, source) VALUES ({dataset}, {source}) ON CONFLICT DO NOTHING;
CREATE TABLE {table} (LIKE feed.record INCLUDING ALL, CONSTRAINT {primary_key} PRIMARY KEY (key))

-- name: make_index
-- The index of a declared column; without the key, which may fill an entry alone.
CREATE INDEX {index} ON {table} ({value});
COMMENT ON INDEX {qualified} IS {mark}

-- name: list_records
-- A page of records with the value they are sorted by and their declared columns.
SELECT m.key, m.body::text, m.seq, m.first_seen_at, m.changed_at, ({position})::text {values}
  FROM {table} AS m
 WHERE {where}
 ORDER BY {order}
 LIMIT %(limit)s

-- name: count_records
-- The number of records that a list has.
SELECT count(*) FROM {table} AS m WHERE {where}

-- name: project_bodies
-- The declared columns of bodies that are not in the table, in the given order.
SELECT m.place {values}
  FROM unnest(%(keys)s::text[], %(bodies)s::jsonb[]) WITH ORDINALITY AS m (key, body, place)
 ORDER BY m.place


-- name: add_hold
-- Add a hold that waits for a decision.
INSERT INTO feed.hold (id, job, source, datasets, scopes, params, runs, seconds, preview)
VALUES (%(run)s, %(job)s, %(source)s, %(datasets)s, %(scopes)s, %(params)s, ARRAY[%(run)s::bigint],
        %(seconds)s, %(preview)s)

-- name: repeat_hold
-- Add a run to the open hold with the same finding and the same input; no row if there is none.
UPDATE feed.hold AS h
   SET runs = h.runs || %(run)s::bigint, seconds = %(seconds)s, announced = false
 WHERE h.state = 'waiting' AND h.job = %(job)s AND h.datasets = %(datasets)s::text[]
   AND h.scopes = %(scopes)s AND h.preview -> 'measures' = %(preview)s -> 'measures'
   AND (SELECT coalesce(jsonb_object_agg(i.name, encode(i.sha256, 'hex') || coalesce(i.machine, '')),
                        '{}')
          FROM feed.held_input AS i WHERE i.run = h.id) = %(inputs)s
RETURNING h.id

-- name: supersede_holds
-- Close the open holds of some datasets when a newer run is held.
UPDATE feed.hold
   SET state = 'superseded', decided_at = clock_timestamp()
 WHERE state = 'waiting' AND datasets && %(datasets)s::text[]

-- name: close_holds
-- Close the approved hold, and open ones about scopes that this commit has changed.
UPDATE feed.hold AS h
   SET state = CASE WHEN h.id = %(approving)s THEN 'approved' ELSE 'superseded' END,
       decided_at = clock_timestamp()
 WHERE h.state = 'waiting'
   AND (h.id = %(approving)s
        OR EXISTS (SELECT FROM jsonb_each(%(changed)s) AS c (dataset, scope)
                    WHERE c.dataset = ANY (h.datasets)
                      AND (c.scope = '{{"whole": true}}' OR c.scope = h.scopes -> c.dataset)))

-- name: close_approved
-- Close an approved hold that still waits after its run: there was nothing left to change.
UPDATE feed.hold SET state = 'approved', decided_at = clock_timestamp()
 WHERE id = %(id)s AND state = 'waiting'

-- name: list_holds
-- Holds, newest first: one, those of a state or source, or older ones than a given one.
SELECT h.id, h.job, h.source, h.datasets, h.params, h.state, h.at, h.runs, h.preview,
       h.decided_at, h.decided_by, h.reason,
       (SELECT max(i.machine) FROM feed.held_input AS i WHERE i.run = h.id) AS machine
  FROM feed.hold AS h
 WHERE (%(id)s::bigint IS NULL OR %(id)s = ANY (h.runs))
   AND (%(state)s::text IS NULL OR h.state = %(state)s)
   AND (%(source)s::text IS NULL OR h.source = %(source)s)
   AND (%(before)s::bigint IS NULL OR h.id < %(before)s)
 ORDER BY h.id DESC
 LIMIT %(limit)s

-- name: decide_hold
-- Record a decision about an open hold; without a state, only who asked for it.
UPDATE feed.hold
   SET state = coalesce(%(state)s, state), decided_by = %(by)s, reason = %(reason)s,
       decided_at = CASE WHEN %(state)s::text IS NOT NULL THEN clock_timestamp() END
 WHERE id = %(id)s AND state = 'waiting'
RETURNING id

-- name: save_held_input
-- Record where an input of a held run is stored; a repeated attempt replaces it.
INSERT INTO feed.held_input (run, name, path, sha256, size, machine)
VALUES (%(run)s, %(name)s, %(path)s, %(sha256)s, %(size)s, %(machine)s)
ON CONFLICT (run, name) DO UPDATE
   SET path = excluded.path, sha256 = excluded.sha256, size = excluded.size,
       machine = excluded.machine

-- name: decided_inputs
-- Input of runs that are neither active nor waiting, on this machine or in the object store.
SELECT i.run, i.name, i.path, i.sha256, i.size, i.machine
  FROM feed.held_input AS i
 WHERE (i.machine IS NULL OR i.machine = %(machine)s)
   AND NOT EXISTS (SELECT FROM feed.hold AS h WHERE h.id = i.run AND h.state = 'waiting')
   AND NOT EXISTS (SELECT FROM jobs.run AS r WHERE r.id = i.run AND r.state <> 'finished')
   AND NOT EXISTS (SELECT FROM jobs.run AS r
                    WHERE r.state <> 'finished' AND r.params ->> 'approve' = i.run::text
                      AND r.id IS DISTINCT FROM %(run)s::bigint)

-- name: other_finding
-- A hold without stored input whose changes differ from these; no row if they may be applied.
SELECT h.id
  FROM feed.hold AS h
 WHERE h.id = %(id)s AND h.preview -> 'datasets' IS DISTINCT FROM %(datasets)s::jsonb
   AND NOT EXISTS (SELECT FROM feed.held_input AS i WHERE i.run = h.id)
