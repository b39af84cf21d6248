-- Up to where each dataset was passed on, and how far that is behind; all of it after a new epoch.
SELECT p.sink, p.dataset, p.seq, h.seq AS head,
       CASE WHEN p.epoch = h.epoch THEN h.seq - p.seq ELSE h.seq END AS lag, p.at
  FROM deliver.position AS p
  JOIN feed.head AS h ON h.dataset = p.dataset
 ORDER BY p.sink, p.dataset
