-- Where a dataset's feed stands.
SELECT dataset, epoch, seq, floor, floor_at, records, digest, version, committed_at
  FROM feed.head
 WHERE dataset = %(dataset)s
