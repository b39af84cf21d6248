-- One record as the newest version up to a moment left it: what the first later change replaced,
-- else what is there now.
SELECT h.committed_at,
       greatest(h.floor_at, (SELECT min(v.committed_at) FROM feed.version_dataset AS v
                              WHERE v.dataset = h.dataset)) AS known_from,
       CASE WHEN later.seq IS NULL THEN m.body ELSE later.before END AS body
  FROM feed.head AS h
  LEFT JOIN {table} AS m ON m.key = %(key)s
  LEFT JOIN LATERAL (
       SELECT seq, before
         FROM feed.change
        WHERE dataset = h.dataset AND key = %(key)s AND changed_at > %(at)s
        ORDER BY seq
        LIMIT 1
       ) AS later ON true
 WHERE h.dataset = %(dataset)s
