-- The datasets of which not everything is known to be published.
SELECT h.dataset
  FROM feed.head AS h
  LEFT JOIN deliver.position AS p ON p.sink = 'nats' AND p.dataset = h.dataset
 WHERE h.version IS NOT NULL
   AND (p.epoch, p.seq) IS DISTINCT FROM (h.epoch, h.seq)
 ORDER BY h.dataset
