-- Compared as text: to jsonb 1 and 1.0 are equal, to a digest they are not.
INSERT INTO {table} AS t (key, body, seq, changed_at)
SELECT key, body, seq, changed_at FROM aside WHERE body IS NOT NULL
ON CONFLICT (key) DO UPDATE
   SET body = excluded.body, seq = excluded.seq, changed_at = excluded.changed_at
 WHERE CAST(t.body AS text) <> CAST(excluded.body AS text)
