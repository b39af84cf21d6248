-- Rate limits of the HTTP API: one per key, shared by every server on this database.

ALTER TABLE serve.api_key
    ADD COLUMN per_minute integer CHECK (per_minute BETWEEN 0 AND 1000000);
COMMENT ON COLUMN serve.api_key.per_minute IS 'requests a minute; 0 for any number, null for serve.requests_per_minute';

-- Unlogged: a lease costs no write to disk, and an empty table means that every bucket is full.
CREATE UNLOGGED TABLE serve.token_bucket (
    name text PRIMARY KEY,
    tokens double precision NOT NULL,
    filled_at timestamptz NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE serve.token_bucket IS 'What each caller has left; a row older than a minute is full and may be deleted.';

-- Take up to _wanted tokens from a bucket that holds a minute's worth and refills evenly.
CREATE FUNCTION serve.lease_tokens(
    _name text, _per_minute integer, _wanted integer,
    OUT granted integer, OUT remaining double precision
) LANGUAGE plpgsql AS $$
DECLARE
    b serve.token_bucket;
    t timestamptz;
BEGIN
    LOOP
        SELECT * INTO b FROM serve.token_bucket WHERE name = _name FOR UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO serve.token_bucket VALUES (_name, _per_minute, clock_timestamp())
        ON CONFLICT DO NOTHING;
    END LOOP;
    -- Only now: the lock may have been waited for. A clock that was set back refills nothing.
    t := greatest(clock_timestamp(), b.filled_at);
    remaining := least(
        _per_minute, b.tokens + extract(epoch FROM t - b.filled_at) * _per_minute / 60.0
    );
    granted := least(_wanted, floor(remaining));
    remaining := remaining - granted;
    UPDATE serve.token_bucket SET tokens = remaining, filled_at = t WHERE name = _name;
END
$$;
