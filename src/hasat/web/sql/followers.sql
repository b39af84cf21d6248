-- Up to where each dataset was passed on, or read with a key, and how far that is behind; all of it
-- after a new epoch.
SELECT CASE WHEN k.id IS NULL THEN 'stream' ELSE 'key' END AS kind, coalesce(k.name, p.sink) AS name,
       p.dataset, p.seq, h.seq AS head,
       CASE WHEN p.epoch = h.epoch THEN greatest(h.seq - p.seq, 0) ELSE h.seq END AS lag, p.at
  FROM deliver.position AS p
  JOIN feed.head AS h ON h.dataset = p.dataset
  LEFT JOIN serve.api_key AS k ON p.sink = 'key:' || k.id
 WHERE k.revoked_at IS NULL
 ORDER BY kind, name, p.sink, p.dataset
