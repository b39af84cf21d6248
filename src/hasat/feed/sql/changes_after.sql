-- The changes after a number, with the head as the same snapshot saw it (so retention cannot race).
SELECT h.epoch, h.seq AS head, h.floor, h.committed_at,
       c.seq, c.kind, c.key, c.body, c.before, c.changed_at, c.version
  FROM feed.head AS h
  LEFT JOIN LATERAL (
       SELECT *
         FROM feed.change
        WHERE dataset = h.dataset AND seq > coalesce(%(after)s, h.floor)
          AND (%(keys)s::text[] IS NULL OR key = ANY (%(keys)s::text[]))
        ORDER BY seq
        LIMIT %(limit)s
       ) AS c ON true
 WHERE h.dataset = %(dataset)s
 ORDER BY c.seq
