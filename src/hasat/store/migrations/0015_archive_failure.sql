-- Datasets whose newest archive could not be written; a row goes away with the next success.
CREATE TABLE feed.archive_failure (
    dataset   text PRIMARY KEY,
    since     timestamptz NOT NULL DEFAULT clock_timestamp(),
    failed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    failures  integer NOT NULL DEFAULT 1,
    error     text NOT NULL,
    announced boolean NOT NULL DEFAULT false
);
COMMENT ON COLUMN feed.archive_failure.announced IS 'whether MvRefreshFailed was announced';
