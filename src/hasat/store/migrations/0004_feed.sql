-- The change feed: what every dataset has, whatever its source.

-- The shape of a mirrored record; a dataset's table is made LIKE it, in schema core.
CREATE TABLE feed.record (
    key           text COLLATE "C" NOT NULL,
    body          jsonb NOT NULL,
    digest        bytea NOT NULL,
    seq           bigint NOT NULL DEFAULT 0,
    first_seen_at timestamptz NOT NULL DEFAULT now(),
    changed_at    timestamptz NOT NULL DEFAULT now()
);

-- One row a dataset; whoever holds its lock is the dataset's only writer.
CREATE TABLE feed.head (
    dataset      text PRIMARY KEY,
    source       text NOT NULL,
    epoch        uuid NOT NULL DEFAULT gen_random_uuid(),
    seq          bigint NOT NULL DEFAULT 0,
    floor        bigint NOT NULL DEFAULT 0 CHECK (floor <= seq),
    floor_at     timestamptz,
    records      bigint NOT NULL DEFAULT 0 CHECK (records >= 0),
    digest       bytea NOT NULL DEFAULT '\x00000000000000000000000000000000',
    version      bigint,
    committed_at timestamptz
);

-- One row a committed reconcile, also when it changed nothing.
CREATE TABLE feed.version (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run          bigint,
    source       text NOT NULL,
    scope        jsonb NOT NULL,
    committed_at timestamptz NOT NULL
);

CREATE TABLE feed.version_dataset (
    version      bigint NOT NULL REFERENCES feed.version,
    dataset      text NOT NULL,
    epoch        uuid NOT NULL,
    committed_at timestamptz NOT NULL,
    seq_before   bigint NOT NULL,
    seq          bigint NOT NULL,
    added        bigint NOT NULL,
    modified     bigint NOT NULL,
    removed      bigint NOT NULL,
    records      bigint NOT NULL,
    digest       bytea NOT NULL,
    PRIMARY KEY (dataset, version)
);
CREATE UNIQUE INDEX version_dataset_committed_at ON feed.version_dataset (dataset, committed_at);

CREATE TABLE feed.change (
    dataset    text NOT NULL,
    seq        bigint NOT NULL,
    version    bigint NOT NULL,
    kind       smallint NOT NULL CHECK (kind IN (1, 2, 3)),
    key        text COLLATE "C" NOT NULL,
    body       jsonb,
    before     jsonb,
    changed_at timestamptz NOT NULL,
    PRIMARY KEY (dataset, seq)
);
CREATE INDEX change_key ON feed.change (dataset, key, seq);
COMMENT ON COLUMN feed.change.kind IS '1 added, 2 modified, 3 removed';
