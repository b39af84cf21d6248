-- Versions that were not announced yet, oldest first.
SELECT v.dataset, v.version, v.epoch, v.seq_before, v.seq, v.added, v.modified, v.removed,
       v.records, encode(v.digest, 'hex') AS digest, v.committed_at
  FROM deliver.seen_version AS s
  JOIN feed.version_dataset AS v ON v.dataset = s.dataset AND v.version > s.version
 ORDER BY v.version, v.dataset
 LIMIT 1000
