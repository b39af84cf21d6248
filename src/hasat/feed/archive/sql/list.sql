-- The archives of a dataset, newest first; of a batch first the XML, which the original's clients
-- expect.
SELECT id, batch, dataset, name, format, size, sha256, epoch, seq, version, records, digest,
       committed_at, created_at, seat
  FROM feed.archive
 WHERE dataset = %(dataset)s
 ORDER BY max(id) OVER (PARTITION BY batch) DESC, format = 'xml' DESC, id DESC
