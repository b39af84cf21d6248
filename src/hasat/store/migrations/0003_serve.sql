-- Keys of the HTTP API. The secret itself is shown once, when the key is made.
CREATE TABLE serve.api_key (
    id text PRIMARY KEY CHECK (id ~ '^[a-z2-7]{10}$'),
    name text NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    scope text NOT NULL CHECK (scope IN ('read', 'operate')),
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    last_used_at timestamptz,
    revoked_at timestamptz
);

COMMENT ON TABLE serve.api_key IS 'Who may use the HTTP API; one row per key, revoked ones kept.';
COMMENT ON COLUMN serve.api_key.digest IS 'SHA-256 of the secret part of the key.';
COMMENT ON COLUMN serve.api_key.scope IS 'read, or operate, which includes read.';
COMMENT ON COLUMN serve.api_key.last_used_at IS 'Written at most once a minute.';
