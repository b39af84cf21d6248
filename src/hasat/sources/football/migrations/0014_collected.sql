-- Optional data: what was requested, and how much there is to request.

CREATE TABLE football.collected (
    endpoint text NOT NULL,
    params jsonb NOT NULL,
    requested_at timestamptz,
    refused_at timestamptz,
    next_page integer,
    PRIMARY KEY (endpoint, params)
);
COMMENT ON TABLE football.collected IS 'Requests for optional data; next_page is set while pages are missing.';

CREATE TABLE football.collection (
    endpoint text PRIMARY KEY,
    units bigint NOT NULL,
    counted_at timestamptz NOT NULL
);
COMMENT ON TABLE football.collection IS 'How many units each optional endpoint had when it was last collected.';

CREATE VIEW mart.collection_status AS
SELECT c.endpoint, c.units,
       count(d.requested_at) AS collected,
       round(100.0 * count(d.requested_at) / nullif(greatest(c.units, count(d.requested_at)), 0), 1) AS coverage,
       count(*) FILTER (WHERE d.refused_at > coalesce(d.requested_at, '-infinity')) AS refused,
       min(d.requested_at) AS oldest, max(d.requested_at) AS newest
  FROM football.collection AS c
  LEFT JOIN football.collected AS d USING (endpoint)
 GROUP BY c.endpoint, c.units;
