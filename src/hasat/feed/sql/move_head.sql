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
