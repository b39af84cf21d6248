-- name: add
-- A file of a batch that is published.
INSERT INTO feed.archive (batch, dataset, name, format, size, sha256, epoch, seq, version,
                          records, digest, committed_at, seat)
VALUES (%(batch)s, %(dataset)s, %(name)s, %(format)s, %(size)s, %(sha256)s, %(epoch)s, %(seq)s,
        %(version)s, %(records)s, %(digest)s, %(committed_at)s, %(seat)s)

-- name: add_delta
-- A file of a cumulative delta that is published.
INSERT INTO feed.cumulative_delta (batch, dataset, days, name, format, size, sha256, epoch, from_seq,
                                   from_version, from_digest, from_at, seq, version, records, digest,
                                   committed_at, added, modified, removed, seat)
VALUES (%(batch)s, %(dataset)s, %(days)s, %(name)s, %(format)s, %(size)s, %(sha256)s, %(epoch)s,
        %(from_seq)s, %(from_version)s, %(from_digest)s, %(from_at)s, %(seq)s, %(version)s,
        %(records)s, %(digest)s, %(committed_at)s, %(added)s, %(modified)s, %(removed)s, %(seat)s)

-- name: beginnings
-- The versions at which the deltas of the last days begin: the newest that is as old, else the oldest
-- from which the feed has all changes. The head is one too: after a restore its epoch has no other.
WITH usable AS (
    SELECT v.seq, v.version, v.digest, v.committed_at
      FROM feed.head AS h
      JOIN feed.version_dataset AS v
        ON v.dataset = h.dataset AND v.epoch = h.epoch AND v.seq >= h.floor
     WHERE h.dataset = %(dataset)s
    UNION ALL
    SELECT seq, version, digest, committed_at FROM feed.head WHERE dataset = %(dataset)s
)
SELECT d.days, v.seq, v.version, v.digest, v.committed_at
  FROM unnest(%(days)s::integer[]) AS d (days)
 CROSS JOIN LATERAL (
       SELECT u.*
         FROM usable AS u
        CROSS JOIN LATERAL (SELECT u.committed_at
                                   <= clock_timestamp() - make_interval(days => d.days)) AS o (old)
        ORDER BY o.old DESC, CASE WHEN o.old THEN u.committed_at END DESC, u.committed_at
        LIMIT 1
       ) AS v
 ORDER BY d.days

-- name: current
-- The archives that hold what the dataset is now, and whose commit time the feed still takes.
SELECT a.id, a.batch, a.dataset, a.name, a.format, a.size, a.sha256, a.epoch, a.seq, a.version,
       a.records, a.digest, a.committed_at, a.created_at, a.seat
  FROM feed.archive AS a
  JOIN feed.head AS h ON h.dataset = a.dataset AND h.epoch = a.epoch AND h.seq = a.seq
 WHERE a.dataset = %(dataset)s AND (h.floor_at IS NULL OR a.committed_at >= h.floor_at)
 ORDER BY a.id DESC

-- name: delta
-- Some of the changes between two numbers, each as a line of JSON.
SELECT c.seq,
       '{"seq":' || c.seq || ',"changeType":"' || (ARRAY['added', 'modified', 'removed'])[c.kind]
       || '","key":' || to_json(c.key)::text || ',"body":' || coalesce(c.body::text, 'null') || '}'
  FROM feed.change AS c
 WHERE c.dataset = %(dataset)s AND c.seq > %(after)s AND c.seq <= %(last)s
 ORDER BY c.seq
 LIMIT %(limit)s

-- name: due
-- The datasets that need an archive now. One that a consumer can start from may fall behind for
-- the minimum interval; without one, it is written at once. After a failure the pauses grow to an hour.
SELECT h.dataset
  FROM feed.head AS h
  LEFT JOIN feed.archive_failure AS f ON f.dataset = h.dataset
 WHERE h.dataset = ANY(%(datasets)s) AND h.committed_at IS NOT NULL
   AND NOT EXISTS (
           SELECT
             FROM feed.archive AS a
            WHERE a.dataset = h.dataset AND a.epoch = h.epoch AND a.seq >= h.floor
              AND (h.floor_at IS NULL OR a.committed_at >= h.floor_at)
              AND (a.seq = h.seq
                   OR clock_timestamp() - a.created_at BETWEEN interval '0' AND %(min_interval)s)
       )
   AND (f.dataset IS NULL
        OR clock_timestamp() - f.failed_at
           > least(interval '1 minute' * 2 ^ least(f.failures - 1, 6), interval '1 hour'))
 ORDER BY h.dataset

-- name: expire_deltas
-- Deltas go with the archives of their batch; their files are to be removed.
WITH expired AS (
    DELETE FROM feed.cumulative_delta AS d
     WHERE d.dataset = %(dataset)s
       AND NOT EXISTS (SELECT FROM feed.archive AS a WHERE a.batch = d.batch)
    RETURNING d.batch, d.name, d.seat
)
INSERT INTO feed.archive_leftover (batch, dataset, names, seat)
SELECT batch, %(dataset)s, array_agg(name), max(seat) FROM expired GROUP BY batch
ON CONFLICT (batch) DO UPDATE SET names = archive_leftover.names || excluded.names

-- name: expire
-- Archives past their time are no longer known, and their files are to be removed.
-- The newest batch stays whatever its age, and so does the newest that can be gone on from.
WITH spared AS (
    SELECT max(a.id) AS id FROM feed.archive AS a WHERE a.dataset = %(dataset)s
    UNION ALL
    SELECT max(a.id)
      FROM feed.archive AS a
      JOIN feed.head AS h ON h.dataset = a.dataset AND h.epoch = a.epoch AND h.floor <= a.seq
     WHERE a.dataset = %(dataset)s
), expired AS (
    DELETE FROM feed.archive AS a
     WHERE a.dataset = %(dataset)s
       AND a.created_at < clock_timestamp() - make_interval(days => %(retention_days)s)
       AND a.batch NOT IN (SELECT b.batch FROM feed.archive AS b JOIN spared USING (id))
    RETURNING a.batch, a.name, a.seat
)
INSERT INTO feed.archive_leftover (batch, dataset, names, seat)
SELECT batch, %(dataset)s, array_agg(name), max(seat) FROM expired GROUP BY batch
ON CONFLICT (batch) DO UPDATE SET names = archive_leftover.names || excluded.names

-- name: leftovers
-- Leftovers that this writer may remove: its own, and those older than a day.
SELECT batch, names
  FROM feed.archive_leftover
 WHERE dataset = %(dataset)s
   AND (seat = %(seat)s OR since < clock_timestamp() - interval '1 day')
 ORDER BY since

-- name: list
-- The archives of a dataset, newest first; of a batch first the XML, which the original's clients
-- expect.
SELECT id, batch, dataset, name, format, size, sha256, epoch, seq, version, records, digest,
       committed_at, created_at, seat
  FROM feed.archive
 WHERE dataset = %(dataset)s
 ORDER BY max(id) OVER (PARTITION BY batch) DESC, format = 'xml' DESC, id DESC

-- name: list_deltas
-- The cumulative deltas of a dataset, newest first; of a batch first the shortest.
SELECT id, batch, dataset, days, name, format, size, sha256, epoch, from_seq, from_version,
       from_digest, from_at, seq, version, records, digest, committed_at, added, modified, removed,
       created_at, seat
  FROM feed.cumulative_delta
 WHERE dataset = %(dataset)s
 ORDER BY max(id) OVER (PARTITION BY batch) DESC, days, id

-- name: net_changes
-- Every record that changed between two numbers, once: how, the newest number, the typed columns and
-- the record as it is now, as a line of JSON. One that changed and changed back is among them.
COPY (
    SELECT CASE WHEN key IS NULL THEN 3 WHEN existed THEN 2 ELSE 1 END, last_seq, {typed},
           '{{"key":' || to_json(changed_key)::text || ',"body":' || coalesce(body::text, 'null') || '}}'
      FROM (
            SELECT c.key AS changed_key, max(c.seq) AS last_seq,
                   (array_agg(c.kind ORDER BY c.seq))[1] <> 1 AS existed
              FROM feed.change AS c
             WHERE c.dataset = {dataset} AND c.seq > {after} AND c.seq <= {last}
             GROUP BY c.key
           ) AS changed
      LEFT JOIN {table} ON key = changed_key
     ORDER BY changed_key
) TO STDOUT (FORMAT csv, DELIMITER E'\x02', QUOTE E'\x01', ENCODING 'UTF8')

-- name: save_failure
-- An archive could not be written.
INSERT INTO feed.archive_failure AS f (dataset, error)
VALUES (%(dataset)s, %(error)s)
ON CONFLICT (dataset) DO UPDATE
   SET failed_at = clock_timestamp(), failures = f.failures + 1, error = excluded.error

-- name: read
-- Every record's digest, its typed columns and the record as a line of JSON, in the order of keys.
-- JSON has no control characters, so with these separators CSV leaves the lines as they are.
COPY (
    SELECT encode(digest, 'hex'), {typed},
           '{{"key":' || to_json(key)::text || ',"body":' || body::text || '}}'
      FROM {table}
     ORDER BY key
) TO STDOUT (FORMAT csv, DELIMITER E'\x02', QUOTE E'\x01', ENCODING 'UTF8')

-- name: typed_columns
-- The columns of a mirror's table beyond those of every record, in their order.
SELECT a.attname AS name, format_type(a.atttypid, NULL) AS type
  FROM pg_attribute AS a
 WHERE a.attrelid = %(table)s::regclass AND a.attnum > 0 AND NOT a.attisdropped
   AND a.attname NOT IN (SELECT r.attname
                           FROM pg_attribute AS r
                          WHERE r.attrelid = 'feed.record'::regclass AND r.attnum > 0)
 ORDER BY a.attnum

-- name: usable
-- The archives in one form whose cursor the feed still takes, newest first.
SELECT a.id, a.batch, a.dataset, a.name, a.format, a.size, a.sha256, a.epoch, a.seq, a.version,
       a.records, a.digest, a.committed_at, a.created_at, a.seat
  FROM feed.archive AS a
  JOIN feed.head AS h ON h.dataset = a.dataset AND h.epoch = a.epoch AND h.floor <= a.seq
 WHERE a.dataset = %(dataset)s AND a.format = %(format)s
 ORDER BY a.id DESC

-- name: versions
-- The versions of a dataset after one, in order, with what the feed still has of them.
SELECT v.version, n.run, v.committed_at, v.epoch, v.seq_before, v.seq, v.added, v.modified,
       v.removed, v.records, v.digest, h.epoch AS epoch_now, h.floor
  FROM feed.version_dataset AS v
  JOIN feed.version AS n ON n.id = v.version
  JOIN feed.head AS h ON h.dataset = v.dataset
 WHERE v.dataset = %(dataset)s AND v.version > %(after)s
 ORDER BY v.version
 LIMIT %(limit)s
