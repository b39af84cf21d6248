-- Make the table say what was staged of the published state, with the numbers and times that its
-- changes have. A record without a change that is kept was there from the first version on, as far
-- as is known.
INSERT INTO {table} AS mirrored (key, body, digest, seq, first_seen_at, changed_at)
SELECT s.key, s.body, s.digest, coalesce(c.seq, 0), coalesce(c.added_at, f.at), coalesce(c.changed_at, f.at)
  FROM {staged} AS s
 CROSS JOIN (SELECT min(committed_at) AS at FROM feed.version_dataset WHERE dataset = %(dataset)s) AS f
  LEFT JOIN {table} AS m ON m.key = s.key
  LEFT JOIN LATERAL (
       SELECT max(seq) AS seq, max(changed_at) AS changed_at,
              max(changed_at) FILTER (WHERE kind = 1) AS added_at
         FROM feed.change
        WHERE dataset = %(dataset)s AND key = s.key) AS c ON true
 WHERE m.key IS NULL OR m.digest <> s.digest OR m.body <> s.body
    ON CONFLICT (key) DO UPDATE
   SET body = excluded.body, digest = excluded.digest, seq = excluded.seq,
       first_seen_at = excluded.first_seen_at, changed_at = excluded.changed_at
