-- Whole datasets as files, for those who begin to follow.

-- One row a file. All files of a batch hold the same state, and their rows appear together.
CREATE TABLE feed.archive (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    batch        text NOT NULL,
    dataset      text NOT NULL,
    name         text NOT NULL UNIQUE,
    format       text NOT NULL,
    size         bigint NOT NULL,
    sha256       bytea NOT NULL,
    epoch        uuid NOT NULL,
    seq          bigint NOT NULL,
    version      bigint NOT NULL,
    records      bigint NOT NULL,
    digest       bytea NOT NULL,
    committed_at timestamptz NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    seat         text NOT NULL,
    UNIQUE (batch, format)
);
CREATE INDEX archive_dataset ON feed.archive (dataset, id);
COMMENT ON COLUMN feed.archive.seat IS 'the machine and home that wrote it';

-- Files that are no archive yet, or no longer: whoever finds a row here removes them.
CREATE TABLE feed.archive_leftover (
    batch   text PRIMARY KEY,
    dataset text NOT NULL,
    names   text[] NOT NULL,
    seat    text NOT NULL,
    since   timestamptz NOT NULL DEFAULT clock_timestamp()
);
