-- What RAW must say of itself so that CORE can be made of it again, and where old months of it lie.

-- The order in which answers came, whatever the clock said: one that came again is newer than before.
CREATE SEQUENCE raw.answer_order;
ALTER TABLE raw.api_responses ADD COLUMN seen_order bigint, ADD COLUMN leagues bigint[];
UPDATE raw.api_responses AS r
   SET seen_order = ordered.place
  FROM (SELECT id, row_number() OVER (ORDER BY last_fetched_at, id) AS place FROM raw.api_responses) AS ordered
 WHERE ordered.id = r.id;
SELECT setval('raw.answer_order', coalesce(max(seen_order), 0) + 1, false) FROM raw.api_responses;
ALTER TABLE raw.api_responses
    ALTER COLUMN seen_order SET NOT NULL,
    ALTER COLUMN seen_order SET DEFAULT nextval('raw.answer_order');
COMMENT ON COLUMN raw.api_responses.leagues IS 'the leagues that were let into CORE; null where all were';
DROP INDEX raw.api_responses_request;
CREATE INDEX api_responses_request ON raw.api_responses (request_hash, seen_order DESC);
CREATE INDEX api_responses_order ON raw.api_responses (seen_order);

-- Months of raw.api_responses that lie in Parquet files and no longer in the database.
CREATE TABLE raw.api_archives (
    month       date PRIMARY KEY,
    path        text NOT NULL,
    answers     bigint NOT NULL,
    digest      bytea NOT NULL,
    size        bigint NOT NULL,
    sha256      bytea NOT NULL,
    archived_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON COLUMN raw.api_archives.digest IS 'the sum of the rows'' hashes, as they were in the database and are in the file';

-- A moment out of JSON, or nothing where no calendar has it.
CREATE FUNCTION core.moment(value jsonb) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN core.whole(value) BETWEEN -62135510400 AND 253370764800
                THEN to_timestamp(core.whole(value)::double precision) END
$$;

ALTER TABLE core.fixtures DROP COLUMN date;
ALTER TABLE core.fixtures ADD COLUMN date timestamptz
    GENERATED ALWAYS AS (core.moment(body #> '{fixture,timestamp}')) STORED;
CREATE INDEX fixtures_league_season ON core.fixtures (league_id, season, date);
CREATE INDEX fixtures_date ON core.fixtures (date);
CREATE INDEX fixtures_status ON core.fixtures (status_short, date);
CREATE INDEX fixtures_home ON core.fixtures (home_team_id, date);
CREATE INDEX fixtures_away ON core.fixtures (away_team_id, date);

ALTER TABLE core.injuries DROP COLUMN fixture_date;
ALTER TABLE core.injuries ADD COLUMN fixture_date date
    GENERATED ALWAYS AS ((core.moment(body #> '{fixture,timestamp}') AT TIME ZONE 'UTC')::date) STORED;
CREATE INDEX injuries_fixture_date ON core.injuries (fixture_date);
