-- What this run saw of one dataset.
CREATE TEMP TABLE {staged} (
    key    text COLLATE "C" NOT NULL,
    body   jsonb NOT NULL,
    digest bytea NOT NULL
) ON COMMIT DROP
