-- The archives in one form whose cursor the feed still takes, newest first.
SELECT a.id, a.batch, a.dataset, a.name, a.format, a.size, a.sha256, a.epoch, a.seq, a.version,
       a.records, a.digest, a.committed_at, a.created_at, a.seat
  FROM feed.archive AS a
  JOIN feed.head AS h ON h.dataset = a.dataset AND h.epoch = a.epoch AND h.floor <= a.seq
 WHERE a.dataset = %(dataset)s AND a.format = %(format)s
 ORDER BY a.id DESC
