-- Make the table say what a piece of the published state says, with the numbers and times that its
-- changes have; as in put_back.sql. Each record is looked up by its key, however large the table is.
INSERT INTO {table} AS mirrored (key, body, digest, seq, first_seen_at, changed_at)
SELECT s.key, s.body, s.digest, coalesce(c.seq, 0), coalesce(c.added_at, f.at), coalesce(c.changed_at, f.at)
  FROM {piece} AS s
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
