-- The same of some records only: each by its own index entries, however many others changed.
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
