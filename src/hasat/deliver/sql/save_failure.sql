-- Record that publishing failed: of one dataset, or of all that are behind. Not while another process
-- publishes: then the failure is this process's own.
INSERT INTO deliver.sink_failure AS f (sink, dataset, error)
SELECT 'nats', h.dataset, %(error)s
  FROM feed.head AS h
  LEFT JOIN deliver.position AS p ON p.sink = 'nats' AND p.dataset = h.dataset
 WHERE h.version IS NOT NULL
   AND (p.epoch, p.seq) IS DISTINCT FROM (h.epoch, h.seq)
   AND h.dataset = coalesce(%(dataset)s, h.dataset)
   AND NOT EXISTS (
       SELECT FROM deliver.lease
        WHERE name = 'nats' AND holder <> %(holder)s AND until > clock_timestamp())
 ORDER BY h.dataset
ON CONFLICT (sink, dataset) DO UPDATE
   SET error = excluded.error, at = excluded.at, attempts = f.attempts + 1
