CREATE TABLE {table} (
    key        TEXT PRIMARY KEY,
    body       TEXT NOT NULL,
    seq        INTEGER NOT NULL,
    changed_at TEXT NOT NULL
)
