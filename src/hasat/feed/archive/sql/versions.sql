-- The versions of a dataset after one, in order, with what the feed still has of them.
SELECT v.version, n.run, v.committed_at, v.epoch, v.seq_before, v.seq, v.added, v.modified,
       v.removed, v.records, v.digest, h.epoch AS epoch_now, h.floor
  FROM feed.version_dataset AS v
  JOIN feed.version AS n ON n.id = v.version
  JOIN feed.head AS h ON h.dataset = v.dataset
 WHERE v.dataset = %(dataset)s AND v.version > %(after)s
 ORDER BY v.version
 LIMIT %(limit)s
