-- The archives that hold what the dataset is now, and whose commit time the feed still takes.
SELECT a.id, a.batch, a.dataset, a.name, a.format, a.size, a.sha256, a.epoch, a.seq, a.version,
       a.records, a.digest, a.committed_at, a.created_at, a.seat
  FROM feed.archive AS a
  JOIN feed.head AS h ON h.dataset = a.dataset AND h.epoch = a.epoch AND h.seq = a.seq
 WHERE a.dataset = %(dataset)s AND (h.floor_at IS NULL OR a.committed_at >= h.floor_at)
 ORDER BY a.id DESC
