-- One page of the changes committed in a span of time; the span's numbers come from whole versions.
WITH span AS (
    SELECT h.dataset, h.epoch, h.floor, h.floor_at, h.seq AS head, h.committed_at,
           least(%(until)s::timestamptz, h.committed_at) AS until,
           coalesce((SELECT v.seq FROM feed.version_dataset AS v
                      WHERE v.dataset = h.dataset AND v.epoch = h.epoch
                        AND v.committed_at <= %(since)s
                      ORDER BY v.committed_at DESC LIMIT 1), h.floor) AS low,
           coalesce((SELECT v.seq FROM feed.version_dataset AS v
                      WHERE v.dataset = h.dataset AND v.epoch = h.epoch
                        AND v.committed_at <= least(%(until)s::timestamptz, h.committed_at)
                      ORDER BY v.committed_at DESC LIMIT 1), h.floor) AS high
      FROM feed.head AS h
     WHERE h.dataset = %(dataset)s
)
SELECT span.epoch, span.head, span.floor, span.floor_at, span.committed_at, span.until,
       greatest(span.high - span.low, 0) AS total,
       c.seq, c.kind, c.key, c.body, c.before, c.changed_at, c.version
  FROM span
  LEFT JOIN feed.change AS c
    ON c.dataset = span.dataset
   AND c.seq > span.low + %(skip)s
   AND c.seq <= least(span.low + %(skip)s + %(size)s, span.high)
 ORDER BY c.seq
