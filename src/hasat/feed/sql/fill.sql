-- The first filling of a whole dataset: records without changes.
INSERT INTO {table} (key, body, digest, first_seen_at, changed_at)
SELECT key, body, digest, %(at)s, %(at)s FROM {staged}
