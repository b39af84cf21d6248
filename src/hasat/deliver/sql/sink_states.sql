-- How many changes each dataset's stream is behind, since when, and the error if publishing fails.
-- After a new epoch or a rewound database, every change that the feed still has is to be published.
SELECT h.dataset, h.seq - s.published AS lag,
       CASE WHEN s.behind THEN greatest(0, extract(epoch FROM clock_timestamp() - coalesce(
           (SELECT c.changed_at
              FROM feed.change AS c
             WHERE c.dataset = h.dataset AND c.seq > s.published
             ORDER BY c.seq
             LIMIT 1), h.committed_at)))::float8 ELSE 0 END AS lag_seconds,
       CASE WHEN s.behind THEN f.error END AS error,
       CASE WHEN s.behind THEN f.since END AS failing_since
  FROM feed.head AS h
  LEFT JOIN deliver.position AS p ON p.sink = 'nats' AND p.dataset = h.dataset
  LEFT JOIN deliver.sink_failure AS f ON f.sink = 'nats' AND f.dataset = h.dataset
 CROSS JOIN LATERAL (
     SELECT CASE WHEN p.epoch = h.epoch AND p.seq <= h.seq THEN p.seq ELSE h.floor END AS published,
            (p.epoch, p.seq) IS DISTINCT FROM (h.epoch, h.seq) AS behind) AS s
 WHERE h.version IS NOT NULL
   AND (%(configured)s OR EXISTS (
       SELECT FROM deliver.sink
        WHERE name = 'nats' AND seen_at > clock_timestamp() - interval '10 minutes'))
 ORDER BY h.dataset
