-- Give every dataset that has a version a position. A new one begins before the first version that
-- a subscriber may receive, not at the newest: that one is not announced yet.
INSERT INTO deliver.seen_version (dataset, version)
SELECT h.dataset, coalesce(
           (SELECT max(v.version)
              FROM feed.version_dataset AS v
             WHERE v.dataset = h.dataset AND v.committed_at < earliest.at), 0)
  FROM feed.head AS h
 CROSS JOIN (SELECT coalesce(min(since), clock_timestamp()) - interval '1 minute' AS at
               FROM deliver.subscription
              WHERE kind = 'DatasetChanged' AND ended_at IS NULL) AS earliest
 WHERE h.version IS NOT NULL
ON CONFLICT DO NOTHING
