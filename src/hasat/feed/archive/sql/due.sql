-- The datasets that need an archive now. One that a follower can start from may fall behind for
-- the minimum interval; without one, nobody waits. After a failure the pauses grow to an hour.
SELECT h.dataset
  FROM feed.head AS h
  LEFT JOIN feed.archive_failure AS f ON f.dataset = h.dataset
 WHERE h.dataset = ANY(%(datasets)s) AND h.committed_at IS NOT NULL
   AND NOT EXISTS (
           SELECT
             FROM feed.archive AS a
            WHERE a.dataset = h.dataset AND a.epoch = h.epoch AND a.seq >= h.floor
              AND (h.floor_at IS NULL OR a.committed_at >= h.floor_at)
              AND (a.seq = h.seq
                   OR clock_timestamp() - a.created_at BETWEEN interval '0' AND %(min_interval)s)
       )
   AND (f.dataset IS NULL
        OR clock_timestamp() - f.failed_at
           > least(interval '1 minute' * 2 ^ least(f.failures - 1, 6), interval '1 hour'))
 ORDER BY h.dataset
