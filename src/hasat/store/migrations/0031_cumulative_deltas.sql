-- Files with the net changes of the last days, written with the archives of a batch and removed with them.
CREATE TABLE feed.cumulative_delta (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    batch        text NOT NULL,
    dataset      text NOT NULL,
    days         integer NOT NULL CHECK (days > 0),
    name         text NOT NULL UNIQUE,
    format       text NOT NULL,
    size         bigint NOT NULL,
    sha256       bytea NOT NULL,
    epoch        uuid NOT NULL,
    from_seq     bigint NOT NULL,
    from_version bigint NOT NULL,
    from_digest  bytea NOT NULL,
    from_at      timestamptz NOT NULL,
    seq          bigint NOT NULL CHECK (seq >= from_seq),
    version      bigint NOT NULL,
    records      bigint NOT NULL,
    digest       bytea NOT NULL,
    committed_at timestamptz NOT NULL,
    added        bigint NOT NULL,
    modified     bigint NOT NULL,
    removed      bigint NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    seat         text NOT NULL,
    UNIQUE (batch, days, format)
);
CREATE INDEX cumulative_delta_dataset ON feed.cumulative_delta (dataset, id);
COMMENT ON COLUMN feed.cumulative_delta.from_seq IS 'the state it begins at: any from here to seq becomes that of seq';
