-- What the upstreams of strategies and lists sent, verbatim, with the request it answers. One row a
-- distinct response: the same body to the same request again only moves `last_received_at`.
CREATE TABLE raw.response (
    id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source           text NOT NULL,
    dataset          text NOT NULL,
    key              text COLLATE "C",
    request          text NOT NULL,
    status           integer NOT NULL,
    headers          jsonb NOT NULL,
    sha256           bytea NOT NULL,
    size             bigint NOT NULL,
    content          bytea,
    path             text,
    machine          text,
    complete         boolean NOT NULL DEFAULT true,
    received_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    times            integer NOT NULL DEFAULT 1,
    run              bigint,
    applied_at       timestamptz,
    CHECK ((content IS NULL) <> (path IS NULL))
);
CREATE INDEX response_request ON raw.response (dataset, key, last_received_at DESC);
CREATE INDEX response_received ON raw.response (source, last_received_at);
COMMENT ON COLUMN raw.response.key IS 'the record that was requested; null: the whole dataset';
COMMENT ON COLUMN raw.response.path IS 'the file of a large response, in the object store or HASAT_HOME';
COMMENT ON COLUMN raw.response.machine IS 'the only machine that has the file; null: the object store';
COMMENT ON COLUMN raw.response.complete IS 'false until its file is stored';
COMMENT ON COLUMN raw.response.applied_at IS 'when its records entered the mirror; null: held or unreadable';

-- The keys that a dataset of one request per record follows.
CREATE TABLE feed.watched_key (
    dataset      text NOT NULL,
    key          text COLLATE "C" NOT NULL,
    added_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    attempted_at timestamptz,
    checked_at   timestamptz,
    outcome      text,
    PRIMARY KEY (dataset, key)
);
CREATE INDEX watched_key_oldest ON feed.watched_key (dataset, attempted_at NULLS FIRST, added_at, key);
COMMENT ON COLUMN feed.watched_key.checked_at IS 'the last response that decided whether the record exists';
COMMENT ON COLUMN feed.watched_key.outcome IS 'the outcome of the last attempt; empty: the upstream has no such record';
