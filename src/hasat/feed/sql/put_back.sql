-- Put back what was staged and is missing, with the numbers and times that its changes have.
-- A record without a change that is kept was there from the first version on, as far as is known.
INSERT INTO {table} (key, body, digest, seq, first_seen_at, changed_at)
SELECT s.key, s.body, s.digest, coalesce(c.seq, 0), coalesce(c.added_at, f.at), coalesce(c.changed_at, f.at)
  FROM {staged} AS s
 CROSS JOIN (SELECT min(committed_at) AS at FROM feed.version_dataset WHERE dataset = %(dataset)s) AS f
  LEFT JOIN (SELECT key, max(seq) AS seq, max(changed_at) AS changed_at,
                    max(changed_at) FILTER (WHERE kind = 1) AS added_at
               FROM feed.change
              WHERE dataset = %(dataset)s
              GROUP BY key) AS c
    ON c.key = s.key
 WHERE NOT EXISTS (SELECT FROM {table} AS m WHERE m.key = s.key)
