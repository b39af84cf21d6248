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
), page AS (
    SELECT *, greatest(high - low, 0) AS total, low + %(skip)s + %(size)s AS covered FROM span
)
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
), matched AS (
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
   AND c.seq IN (SELECT seq FROM matched ORDER BY seq OFFSET %(skip)s LIMIT %(size)s)
 ORDER BY c.seq

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
-- Delete changes below the floor; the floor itself moved in the same transaction.
DELETE FROM feed.change WHERE dataset = %(dataset)s AND seq <= %(floor)s

-- name: drop_surplus
-- Delete records that are not staged.
DELETE FROM {table} AS m
 WHERE NOT EXISTS (SELECT FROM {staged} AS s WHERE s.key = m.key)

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

-- name: head
-- The head of a dataset.
SELECT dataset, epoch, seq, floor, floor_at, records, digest, version, committed_at
  FROM feed.head
 WHERE dataset = %(dataset)s

-- name: history
-- The stored changes of one record, oldest first.
SELECT seq, kind, key, body, before, changed_at, version
  FROM feed.change
 WHERE dataset = %(dataset)s AND key = %(key)s
 ORDER BY seq

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
-- One record as of a moment: the state before the first later change, else the current one.
SELECT h.committed_at,
       greatest(h.floor_at, (SELECT min(v.committed_at) FROM feed.version_dataset AS v
                              WHERE v.dataset = h.dataset)) AS known_from,
       CASE WHEN later.seq IS NULL THEN m.body ELSE later.before END AS body
  FROM feed.head AS h
  LEFT JOIN {table} AS m ON m.key = %(key)s
  LEFT JOIN LATERAL (
       SELECT seq, before
         FROM feed.change
        WHERE dataset = h.dataset AND key = %(key)s AND changed_at > %(at)s
        ORDER BY seq
        LIMIT 1
       ) AS later ON true
 WHERE h.dataset = %(dataset)s

-- name: stage
-- The records of this run in one dataset.
CREATE TEMP TABLE {staged} (
    key    text COLLATE "C" NOT NULL,
    body   jsonb NOT NULL,
    digest bytea NOT NULL
) ON COMMIT DROP
