-- The log lines of a run, for its page; they go with the run.
CREATE TABLE jobs.run_log (
    run     bigint NOT NULL REFERENCES jobs.run ON DELETE CASCADE,
    attempt int NOT NULL,
    number  int NOT NULL,
    at      timestamptz NOT NULL,
    level   text NOT NULL,
    event   text NOT NULL,
    fields  jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (run, attempt, number)
);
COMMENT ON COLUMN jobs.run_log.number IS 'the order within the attempt; the first and the newest lines are stored';
