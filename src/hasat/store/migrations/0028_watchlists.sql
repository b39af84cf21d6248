-- Watch lists: stored sets of keys, or filters on columns, whose changes go to channels.

ALTER TABLE serve.api_key
    ADD COLUMN datasets text[] CHECK (cardinality(datasets) > 0),
    ADD CONSTRAINT api_key_operates_everywhere CHECK (scope = 'read' OR datasets IS NULL);
COMMENT ON COLUMN serve.api_key.datasets IS 'the only datasets that it may read; null for all';

CREATE TABLE deliver.watchlist (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text NOT NULL,
    owner      text NOT NULL,
    dataset    text NOT NULL,
    filter     jsonb,
    mode       text NOT NULL CHECK (mode IN ('immediate', 'hourly', 'daily')),
    epoch      uuid NOT NULL,
    seq        bigint NOT NULL,
    digest_at  timestamptz,
    gap        jsonb,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (owner, name),
    CHECK ((mode = 'immediate') = (digest_at IS NULL))
);
COMMENT ON COLUMN deliver.watchlist.owner IS 'the caller that made it: key:ID, client:ACCESS_KEY or local';
COMMENT ON COLUMN deliver.watchlist.filter IS 'conditions on columns; null for a list of keys';
COMMENT ON COLUMN deliver.watchlist.seq IS 'the position in the feed; it moves with what was collected';
COMMENT ON COLUMN deliver.watchlist.digest_at IS 'when the next digest is due; null if changes are sent at once';
COMMENT ON COLUMN deliver.watchlist.gap IS 'the last time that changes were lost: at, reason, after, floor';

CREATE TABLE deliver.watchlist_key (
    watchlist bigint NOT NULL REFERENCES deliver.watchlist ON DELETE CASCADE,
    key       text COLLATE "C" NOT NULL,
    since     bigint NOT NULL,
    PRIMARY KEY (watchlist, key)
);
CREATE INDEX watchlist_key_key ON deliver.watchlist_key (key, watchlist);
COMMENT ON COLUMN deliver.watchlist_key.since IS 'the head when it was added: only later changes count';

CREATE TABLE deliver.watchlist_channel (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    watchlist bigint NOT NULL REFERENCES deliver.watchlist ON DELETE CASCADE,
    type      text NOT NULL CHECK (type IN ('webhook', 'email', 'slack', 'teams', 'telegram')),
    settings  jsonb NOT NULL,
    endpoint  text NOT NULL
);
CREATE INDEX watchlist_channel_watchlist ON deliver.watchlist_channel (watchlist);
COMMENT ON COLUMN deliver.watchlist_channel.endpoint IS 'its name among the endpoints of deliveries';

-- Changes that wait for a digest, and for an instant those that are sent at once.
CREATE TABLE deliver.watchlist_change (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    watchlist  bigint NOT NULL REFERENCES deliver.watchlist ON DELETE CASCADE,
    seq        bigint NOT NULL,
    kind       smallint NOT NULL CHECK (kind IN (0, 1, 2, 3)),
    key        text COLLATE "C",
    body       jsonb,
    before     jsonb,
    changed_at timestamptz NOT NULL
);
CREATE INDEX watchlist_change_watchlist ON deliver.watchlist_change (watchlist, id);
COMMENT ON COLUMN deliver.watchlist_change.kind IS '1 added, 2 modified, 3 removed; 0 changes were lost, as body says';

ALTER TABLE deliver.event
    ADD COLUMN owner text,
    ADD COLUMN watchlist bigint REFERENCES deliver.watchlist ON DELETE SET NULL;
CREATE INDEX event_watchlist ON deliver.event (watchlist) WHERE watchlist IS NOT NULL;
COMMENT ON COLUMN deliver.event.owner IS 'the owner of the watch list; null for events of the platform';

ALTER TABLE deliver.delivery
    ADD COLUMN channel bigint REFERENCES deliver.watchlist_channel ON DELETE SET NULL;
CREATE INDEX delivery_channel ON deliver.delivery (channel) WHERE channel IS NOT NULL;

-- Whether the owner of a watch list may read its dataset now; a revoked key pauses its lists.
CREATE FUNCTION deliver.may_watch(owner text, dataset text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT owner NOT LIKE 'key:%' OR EXISTS (
        SELECT FROM serve.api_key AS k
         WHERE k.id = substr(owner, 5) AND k.revoked_at IS NULL
           AND (k.expires_at IS NULL OR k.expires_at > now())
           AND (k.datasets IS NULL OR dataset = ANY (k.datasets)))
$$;

-- When the next digest is due: at the full hour, or at eight in the morning.
CREATE FUNCTION deliver.next_digest(mode text, zone text) RETURNS timestamptz
LANGUAGE sql VOLATILE AS $$
    SELECT CASE mode
        WHEN 'hourly' THEN date_trunc('hour', clock_timestamp(), zone) + interval '1 hour'
        WHEN 'daily' THEN
            (date_trunc('day', clock_timestamp() AT TIME ZONE zone - interval '8 hours')
             + interval '1 day 8 hours') AT TIME ZONE zone
    END
$$;
