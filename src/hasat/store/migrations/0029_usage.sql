-- How much each caller of the HTTP API uses, by day.
CREATE TABLE serve.usage (
    caller   text NOT NULL,
    day      date NOT NULL,
    requests bigint NOT NULL DEFAULT 0,
    refused  bigint NOT NULL DEFAULT 0,
    failed   bigint NOT NULL DEFAULT 0,
    bytes    bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (caller, day)
);
COMMENT ON COLUMN serve.usage.caller IS 'key:ID or client:ACCESS_KEY; logins count as their key';
COMMENT ON COLUMN serve.usage.day IS 'in the time zone of jobs.timezone';
COMMENT ON COLUMN serve.usage.refused IS 'requests over the rate limit (429)';
COMMENT ON COLUMN serve.usage.failed IS 'requests that failed in Hasat (500 and above)';
COMMENT ON COLUMN serve.usage.bytes IS 'bytes of response bodies';
