-- The archives of a dataset, newest first.
SELECT id, batch, dataset, name, format, size, sha256, epoch, seq, version, records, digest,
       committed_at, created_at, seat
  FROM feed.archive
 WHERE dataset = %(dataset)s
 ORDER BY id DESC
