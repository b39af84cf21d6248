-- The head, then the changes after a number, as one snapshot saw them (so retention cannot race).
-- Only the head's row has an epoch.
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
       SELECT seq, kind, key, body::{form}, CASE WHEN %(before)s THEN before::{form} END,
              changed_at, version
         FROM feed.change
        WHERE dataset = head.dataset AND seq > coalesce(%(after)s, head.floor)
        ORDER BY seq
        LIMIT %(limit)s
       ) AS c
