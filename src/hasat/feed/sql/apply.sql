-- Bring the mirror to what the run saw, and write down each change.
WITH gone AS (
    DELETE FROM {table} AS m USING {changes} AS c WHERE c.kind = 3 AND m.key = c.key
), changed AS (
    UPDATE {table} AS m
       SET body = c.body, digest = c.digest, seq = c.seq, changed_at = %(at)s
      FROM {changes} AS c
     WHERE c.kind = 2 AND m.key = c.key
), new AS (
    INSERT INTO {table} (key, body, digest, seq, first_seen_at, changed_at)
    SELECT key, body, digest, seq, %(at)s, %(at)s FROM {changes} WHERE kind = 1
)
INSERT INTO feed.change (dataset, seq, version, kind, key, body, before, changed_at)
SELECT %(dataset)s, seq, %(version)s, kind, key, body, before, %(at)s FROM {changes}
