-- Endpoints of upstreams as all processes see them: who asks now, what is left, which of them rest.
CREATE SCHEMA IF NOT EXISTS fetching;

-- One row an upstream. It rests when all of its endpoints fail alike, and stops at a refused key.
CREATE TABLE fetching.upstream (
    upstream    text PRIMARY KEY,
    rest_until  timestamptz,
    rest_cause  text,
    rest_level  int NOT NULL DEFAULT 0,
    prober      uuid,
    probe_until timestamptz,
    refused_key text
);
COMMENT ON COLUMN fetching.upstream.rest_level IS 'rests in a row; until an answer comes, one process at a time probes';
COMMENT ON COLUMN fetching.upstream.refused_key IS 'fingerprint of the key that was refused';

-- One row an endpoint. Its holder has the only request in flight and writes what came of it.
CREATE TABLE fetching.endpoint (
    upstream     text NOT NULL REFERENCES fetching.upstream,
    url          text NOT NULL,
    holder       uuid,
    held_until   timestamptz,
    next_at      timestamptz,
    quota_day    date,
    points       int NOT NULL DEFAULT 0,
    learned      int,
    rest_until   timestamptz,
    rest_cause   text,
    rest_level   int NOT NULL DEFAULT 0,
    streak       int NOT NULL DEFAULT 0,
    last_outcome text,
    last_at      timestamptz,
    successes    bigint NOT NULL DEFAULT 0,
    failures     bigint NOT NULL DEFAULT 0,
    hedges       bigint NOT NULL DEFAULT 0,
    hedges_won   bigint NOT NULL DEFAULT 0,
    cancelled    bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (upstream, url)
);
COMMENT ON COLUMN fetching.endpoint.points IS 'spent on quota_day';
COMMENT ON COLUMN fetching.endpoint.learned IS 'points a day after which it once said that the day is over';
COMMENT ON COLUMN fetching.endpoint.streak IS 'failures in a row';

-- How long an endpoint takes for one kind of question; written by the endpoint's holder.
CREATE TABLE fetching.latency (
    upstream    text NOT NULL,
    url         text NOT NULL,
    kind        text NOT NULL,
    mean        double precision NOT NULL,
    weight      double precision NOT NULL,
    measured_at timestamptz NOT NULL,
    sketch      bytea NOT NULL,
    PRIMARY KEY (upstream, url, kind),
    FOREIGN KEY (upstream, url) REFERENCES fetching.endpoint ON DELETE CASCADE
);
COMMENT ON COLUMN fetching.latency.mean IS 'seconds that a question is expected to cost, failures included';
