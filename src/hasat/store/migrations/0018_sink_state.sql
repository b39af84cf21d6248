-- The state of the streams that changes are published to, readable from any process.

CREATE TABLE deliver.sink (
    name    text PRIMARY KEY,
    seen_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON COLUMN deliver.sink.seen_at IS 'when a worker that publishes to the sink last ran';

-- Datasets that the sink rejects at the moment. The next change that it accepts deletes the row. Not
-- part of deliver.position: publishing can fail before a dataset has a position.
CREATE TABLE deliver.sink_failure (
    sink     text NOT NULL,
    dataset  text NOT NULL,
    since    timestamptz NOT NULL DEFAULT clock_timestamp(),
    at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    attempts integer NOT NULL DEFAULT 1,
    error    text NOT NULL,
    PRIMARY KEY (sink, dataset)
);
COMMENT ON COLUMN deliver.sink_failure.since IS 'when the first of these attempts failed';
