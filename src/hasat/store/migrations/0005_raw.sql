-- What an upstream said that could not be read: kept aside, counted, looked at by a person.
CREATE TABLE raw.set_aside (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    source   text NOT NULL,
    run      bigint,
    origin   text NOT NULL,
    key      text,
    reason   text NOT NULL,
    content  bytea NOT NULL
);
CREATE INDEX set_aside_source ON raw.set_aside (source, id);
COMMENT ON COLUMN raw.set_aside.origin IS 'where it stood: a list and its byte, an endpoint and its parameters';
