-- Which endpoint receives which kind of event, and from when on: a webhook receives only what
-- happened while it was configured.
CREATE TABLE deliver.subscription (
    endpoint text NOT NULL,
    kind     text NOT NULL,
    since    timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- When a running process last had it in its settings.
    seen_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- When it was removed from the settings.
    ended_at timestamptz,
    PRIMARY KEY (endpoint, kind)
);

-- Endpoints that exist already keep what they have not received yet.
INSERT INTO deliver.subscription (endpoint, kind, since)
SELECT d.endpoint, e.kind, min(e.at)
  FROM deliver.delivery AS d
  JOIN deliver.event AS e ON e.id = d.event
 GROUP BY d.endpoint, e.kind;
