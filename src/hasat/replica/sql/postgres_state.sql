CREATE TABLE IF NOT EXISTS {state} (
    dataset     text PRIMARY KEY,
    epoch       text,
    cursor      text,
    seq         bigint NOT NULL,
    digest      text NOT NULL,
    records     bigint NOT NULL,
    verified_at timestamptz
)
