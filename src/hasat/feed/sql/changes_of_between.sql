-- The same of some records only; a version without a change of theirs counts as covered.
WITH head AS (
    SELECT dataset, epoch, floor, floor_at, committed_at,
           least(%(until)s::timestamptz, committed_at) AS window_end
      FROM feed.head
     WHERE dataset = %(dataset)s
), span AS (
    SELECT head.*,
           coalesce((SELECT v.seq FROM feed.version_dataset AS v
                      WHERE v.dataset = head.dataset AND v.epoch = head.epoch
                        AND v.committed_at <= %(since)s
                      ORDER BY v.committed_at DESC LIMIT 1), head.floor) AS low,
           coalesce((SELECT v.seq FROM feed.version_dataset AS v
                      WHERE v.dataset = head.dataset AND v.epoch = head.epoch
                        AND v.committed_at <= head.window_end
                      ORDER BY v.committed_at DESC LIMIT 1), head.floor) AS high
      FROM head
), matched AS (
    SELECT c.seq
      FROM span
      JOIN feed.change AS c ON c.dataset = span.dataset AND c.key = ANY (%(keys)s)
                           AND c.seq > span.low AND c.seq <= span.high
), page AS (
    SELECT *, (SELECT count(*) FROM matched) AS total,
           coalesce((SELECT seq - 1 FROM matched ORDER BY seq OFFSET %(skip)s + %(size)s LIMIT 1),
                    high) AS covered
      FROM span
)
SELECT page.floor_at, page.committed_at, page.window_end, page.total,
       CASE WHEN page.covered >= page.high THEN page.window_end
            ELSE coalesce((SELECT v.committed_at FROM feed.version_dataset AS v
                            WHERE v.dataset = page.dataset AND v.epoch = page.epoch
                              AND v.committed_at > %(since)s AND v.committed_at <= page.window_end
                              AND v.seq <= page.covered
                            ORDER BY v.committed_at DESC LIMIT 1), %(since)s)
       END AS until,
       c.seq, c.kind, c.key, c.body, c.before, c.changed_at, c.version
  FROM page
  LEFT JOIN feed.change AS c
    ON c.dataset = page.dataset
   AND c.seq IN (SELECT seq FROM matched ORDER BY seq OFFSET %(skip)s LIMIT %(size)s)
 ORDER BY c.seq
