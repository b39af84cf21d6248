CREATE TABLE IF NOT EXISTS {state} (
    dataset     TEXT PRIMARY KEY,
    epoch       TEXT,
    cursor      TEXT,
    seq         INTEGER NOT NULL,
    digest      TEXT NOT NULL,
    records     INTEGER NOT NULL,
    verified_at TEXT
)
