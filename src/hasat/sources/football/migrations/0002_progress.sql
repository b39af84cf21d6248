-- What is known about the collecting itself: nothing in here was published by the API.

CREATE SCHEMA football;

-- When the API last told of each fixture, and how far its details are.
CREATE TABLE football.fixture_told (
    fixture_id    bigint PRIMARY KEY,
    told_at       timestamptz NOT NULL,
    details_at    timestamptz,
    details_times integer NOT NULL DEFAULT 0
);

-- When each league's season was last asked for, by what.
CREATE TABLE football.season_asked (
    endpoint  text NOT NULL,
    league_id bigint NOT NULL,
    season    bigint NOT NULL,
    team_id   bigint NOT NULL DEFAULT 0,
    asked_at  timestamptz NOT NULL,
    PRIMARY KEY (endpoint, league_id, season, team_id)
);

-- What Hasat infers about a fixture; it ends when the API answers.
CREATE TABLE core.fixture_inferences (
    fixture_id               bigint PRIMARY KEY,
    inferred_status          text NOT NULL,
    needs_score_verification boolean NOT NULL DEFAULT true,
    reason                   text NOT NULL,
    inferred_at              timestamptz NOT NULL,
    attempts                 integer NOT NULL DEFAULT 0,
    last_attempt_at          timestamptz
);

-- How far a backfill is: everything before next_date is in the mirror.
CREATE TABLE core.backfill_progress (
    job        text NOT NULL,
    league_id  bigint NOT NULL,
    season     bigint NOT NULL,
    first_date date,
    next_date  date,
    completed  boolean NOT NULL DEFAULT false,
    last_error text,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (job, league_id, season)
);

-- /teams is asked once for each league's season.
CREATE TABLE core.team_bootstrap_progress (
    league_id  bigint NOT NULL,
    season     bigint NOT NULL,
    completed  boolean NOT NULL DEFAULT false,
    last_error text,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (league_id, season)
);

CREATE VIEW core.team_statistics_progress AS
SELECT league_id, season, team_id, asked_at AS last_fetched_at
  FROM football.season_asked
 WHERE endpoint = 'teams/statistics';

-- Matches that began long ago and of which nothing was heard for long. Where a competition has no
-- live events, a match stays NS for up to two days after its end: nothing can be known there.
CREATE FUNCTION football.may_be_over(leagues bigint[], statuses text[], threshold interval, lag interval)
RETURNS TABLE (fixture_id bigint, date timestamptz, status_short text, told_at timestamptz)
LANGUAGE sql STABLE AS $$
    SELECT f.fixture_id, f.date, f.status_short, t.told_at
      FROM core.fixtures AS f
      LEFT JOIN football.fixture_told AS t USING (fixture_id)
     WHERE f.league_id = ANY (leagues) AND f.status_short = ANY (statuses)
       AND f.date < clock_timestamp() - threshold
       AND (t.told_at IS NULL OR t.told_at < clock_timestamp() - lag)
       AND NOT EXISTS (SELECT FROM core.fixture_inferences AS i WHERE i.fixture_id = f.fixture_id)
       AND (f.status_short <> 'NS'
            OR EXISTS (SELECT FROM core.leagues AS l,
                              jsonb_array_elements(CASE jsonb_typeof(l.seasons) WHEN 'array' THEN l.seasons ELSE '[]' END) AS s
                        WHERE l.league_id = f.league_id AND core.whole(s -> 'year') = f.season
                          AND s #> '{coverage,fixtures,events}' = 'true'))
$$;
