-- Where a dataset stands and its newest changes, newest first, as one snapshot saw them.
SELECT h.seq AS head, h.floor, h.records, h.committed_at, c.*
  FROM feed.head AS h
  LEFT JOIN LATERAL (
       SELECT seq, kind, key, body, before, changed_at, version
         FROM feed.change
        WHERE dataset = h.dataset AND (%(before)s::bigint IS NULL OR seq < %(before)s)
        ORDER BY seq DESC
        LIMIT %(limit)s
       ) AS c ON true
 WHERE h.dataset = %(dataset)s
 ORDER BY c.seq DESC
