-- name: drop_absent
DELETE FROM {table} AS t WHERE NOT EXISTS (SELECT 1 FROM aside WHERE aside.key = t.key)

-- name: drop_removed
DELETE FROM {table} WHERE key IN (SELECT key FROM aside WHERE body IS NULL)

-- name: merge
-- Compared as text: to jsonb 1 and 1.0 are equal, to a digest they are not.
INSERT INTO {table} AS t (key, body, seq, changed_at)
SELECT key, body, seq, changed_at FROM aside WHERE body IS NOT NULL
ON CONFLICT (key) DO UPDATE
   SET body = excluded.body, seq = excluded.seq, changed_at = excluded.changed_at
 WHERE CAST(t.body AS text) <> CAST(excluded.body AS text)

-- name: postgres_state
CREATE TABLE IF NOT EXISTS {state} (
    dataset     text PRIMARY KEY,
    epoch       text,
    cursor      text,
    seq         bigint NOT NULL,
    digest      text NOT NULL,
    records     bigint NOT NULL,
    verified_at timestamptz
)

-- name: postgres_table
CREATE TABLE {table} (
    key        text COLLATE "C" PRIMARY KEY,
    body       jsonb NOT NULL,
    seq        bigint NOT NULL,
    changed_at timestamptz NOT NULL
)

-- name: read_all
SELECT key, CAST(body AS text) FROM {table}

-- name: read_aside
-- What the records kept aside looked like before.
SELECT t.key, CAST(t.body AS text) FROM {table} AS t JOIN aside ON aside.key = t.key

-- name: read_record
SELECT CAST(body AS text) FROM {table} WHERE key = %(key)s

-- name: read_state
SELECT epoch, cursor, seq, digest, records, verified_at FROM {state} WHERE dataset = %(dataset)s

-- name: sqlite_state
CREATE TABLE IF NOT EXISTS {state} (
    dataset     TEXT PRIMARY KEY,
    epoch       TEXT,
    cursor      TEXT,
    seq         INTEGER NOT NULL,
    digest      TEXT NOT NULL,
    records     INTEGER NOT NULL,
    verified_at TEXT
)

-- name: sqlite_table
CREATE TABLE {table} (
    key        TEXT PRIMARY KEY,
    body       TEXT NOT NULL,
    seq        INTEGER NOT NULL,
    changed_at TEXT NOT NULL
)

-- name: write_state
INSERT INTO {state} (dataset, epoch, cursor, seq, digest, records, verified_at)
VALUES (%(dataset)s, %(epoch)s, %(cursor)s, %(seq)s, %(digest)s, %(records)s, %(verified_at)s)
ON CONFLICT (dataset) DO UPDATE
   SET epoch = excluded.epoch, cursor = excluded.cursor, seq = excluded.seq,
       digest = excluded.digest, records = excluded.records, verified_at = excluded.verified_at
