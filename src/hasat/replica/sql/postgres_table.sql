CREATE TABLE {table} (
    key        text COLLATE "C" PRIMARY KEY,
    body       jsonb NOT NULL,
    seq        bigint NOT NULL,
    changed_at timestamptz NOT NULL
)
