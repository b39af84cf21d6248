-- Those who want to be told: what happened, who was told of it, and how far the streams are.
CREATE SCHEMA deliver;

-- What happened. Written in the transaction in which it happened, so it exists if and only if that did.
CREATE TABLE deliver.event (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    message_id uuid NOT NULL DEFAULT gen_random_uuid(),
    kind       text NOT NULL,
    severity   text NOT NULL CHECK (severity IN ('Info', 'Warning', 'Critical')),
    summary    text NOT NULL,
    -- json, not jsonb: the order of its keys is part of the message.
    payload    json NOT NULL,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Whether every endpoint that wants it has its delivery.
    handed_out boolean NOT NULL DEFAULT false
);
CREATE INDEX event_to_hand_out ON deliver.event (id) WHERE NOT handed_out;
CREATE INDEX event_at ON deliver.event (at);

-- One event for one endpoint. An endpoint gets its own in the order of their ids.
CREATE TABLE deliver.delivery (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event         bigint NOT NULL REFERENCES deliver.event ON DELETE CASCADE,
    endpoint      text NOT NULL,
    state         text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'delivered', 'dead')),
    attempts      integer NOT NULL DEFAULT 0,
    waiting_since timestamptz NOT NULL DEFAULT clock_timestamp(),
    next_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    settled_at    timestamptz,
    last_status   integer,
    last_error    text,
    UNIQUE (event, endpoint),
    CHECK ((state = 'waiting') = (settled_at IS NULL))
);
CREATE INDEX delivery_waiting ON deliver.delivery (endpoint, id) WHERE state = 'waiting';
CREATE INDEX delivery_dead ON deliver.delivery (id DESC) WHERE state = 'dead';
COMMENT ON COLUMN deliver.delivery.attempts IS 'tries that failed; a replay starts to count anew';

-- Who alone may send to an endpoint, or publish, for the time being; it ends by itself.
CREATE TABLE deliver.lease (
    name   text PRIMARY KEY,
    holder uuid NOT NULL,
    until  timestamptz NOT NULL
);

-- Up to where a dataset's changes were passed on.
CREATE TABLE deliver.position (
    sink    text NOT NULL,
    dataset text NOT NULL,
    epoch   uuid NOT NULL,
    seq     bigint NOT NULL,
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (sink, dataset)
);

-- The newest version of each dataset of which DatasetChanged was announced.
CREATE TABLE deliver.seen_version (
    dataset text PRIMARY KEY,
    version bigint NOT NULL
);

-- The health that was last seen, so that a change of it is told once.
CREATE TABLE deliver.health (
    check_name text PRIMARY KEY,
    status     text NOT NULL,
    since      timestamptz NOT NULL DEFAULT clock_timestamp()
);
