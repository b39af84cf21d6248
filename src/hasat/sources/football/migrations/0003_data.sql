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
    path        text PRIMARY KEY,
    month       date NOT NULL,
    answers     bigint NOT NULL,
    last_order  bigint NOT NULL,
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

CREATE INDEX fixture_told_told_at ON football.fixture_told (told_at);

-- What a state's code means for whoever waits for the end of a match.
CREATE FUNCTION football.state_of(code text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN code IN ('TBD', 'NS') THEN 'scheduled'
                WHEN code IN ('1H', 'HT', '2H', 'ET', 'BT', 'P', 'SUSP', 'INT', 'LIVE') THEN 'live'
                WHEN code IN ('FT', 'AET', 'PEN') THEN 'finished'
                WHEN code = 'PST' THEN 'postponed'
                WHEN code = 'CANC' THEN 'cancelled'
                WHEN code = 'ABD' THEN 'abandoned'
                WHEN code IN ('AWD', 'WO') THEN 'not_played'
                ELSE 'unknown' END
$$;

-- Matches as people look at them: what the API told, and beside it what Hasat infers.
CREATE VIEW mart.daily_fixtures_dashboard AS
SELECT f.fixture_id, (f.date AT TIME ZONE 'UTC')::date AS day, f.date, f.league_id,
       f.body #>> '{league,name}' AS league_name, f.body #>> '{league,country}' AS country,
       f.season, f.round, f.status_short, f.body #>> '{fixture,status,long}' AS status_long,
       football.state_of(f.status_short) AS state, f.elapsed,
       f.home_team_id, f.body #>> '{teams,home,name}' AS home_team,
       f.away_team_id, f.body #>> '{teams,away,name}' AS away_team,
       f.goals_home, f.goals_away, f.score,
       i.inferred_status, i.reason AS inference_reason, i.inferred_at,
       coalesce(i.needs_score_verification, false) AS needs_score_verification,
       t.told_at, t.details_at, f.changed_at
  FROM core.fixtures AS f
  LEFT JOIN core.fixture_inferences AS i USING (fixture_id)
  LEFT JOIN football.fixture_told AS t USING (fixture_id);

CREATE VIEW mart.live_score_panel AS
SELECT * FROM mart.daily_fixtures_dashboard WHERE status_short IN ('1H', 'HT', '2H', 'ET', 'BT', 'P', 'SUSP', 'INT', 'LIVE');

-- How many matches a day has, by league and by what became of them.
CREATE VIEW mart.daily_fixture_counts AS
SELECT (f.date AT TIME ZONE 'UTC')::date AS day, f.league_id, f.season, count(*) AS fixtures,
       count(*) FILTER (WHERE football.state_of(f.status_short) = 'finished') AS finished,
       count(*) FILTER (WHERE football.state_of(f.status_short) = 'live') AS live,
       count(*) FILTER (WHERE football.state_of(f.status_short) = 'scheduled') AS scheduled,
       count(i.fixture_id) AS inferred,
       count(t.details_at) FILTER (WHERE football.state_of(f.status_short) = 'finished') AS detailed
  FROM core.fixtures AS f
  LEFT JOIN core.fixture_inferences AS i USING (fixture_id)
  LEFT JOIN football.fixture_told AS t USING (fixture_id)
 GROUP BY 1, 2, 3;

-- What /leagues says that the API has of a season; null where it says nothing.
CREATE VIEW mart.season_coverage AS
SELECT l.league_id, l.name AS league_name, l.type AS league_type, l.country,
       core.whole(s -> 'year') AS season, s -> 'current' = 'true' AS current,
       s ->> 'start' AS start_date, s ->> 'end' AS end_date, flag.endpoint, (flag.value)::boolean AS covered
  FROM core.leagues AS l
 CROSS JOIN LATERAL jsonb_array_elements(CASE jsonb_typeof(l.seasons) WHEN 'array' THEN l.seasons ELSE '[]' END) AS s
 CROSS JOIN LATERAL (VALUES
       ('/fixtures', 'true'::jsonb),
       ('/teams', 'true'::jsonb),
       ('/fixtures/events', s #> '{coverage,fixtures,events}'),
       ('/fixtures/lineups', s #> '{coverage,fixtures,lineups}'),
       ('/fixtures/statistics', s #> '{coverage,fixtures,statistics_fixtures}'),
       ('/fixtures/players', s #> '{coverage,fixtures,statistics_players}'),
       ('/standings', s #> '{coverage,standings}'),
       ('/teams/statistics', s #> '{coverage,standings}'),
       ('/players/topscorers', s #> '{coverage,top_scorers}'),
       ('/injuries', s #> '{coverage,injuries}')) AS raw_flag (endpoint, told)
 CROSS JOIN LATERAL (SELECT raw_flag.endpoint, CASE WHEN jsonb_typeof(raw_flag.told) = 'boolean' THEN raw_flag.told END AS value) AS flag
 WHERE core.whole(s -> 'year') IS NOT NULL;

-- For each season of which there are matches or tables, and each endpoint: what should be there, what
-- is, the share of it in percent, and when the API last told. Where a season is not covered, nothing
-- is expected; how many injuries there should be, nobody can know.
CREATE VIEW mart.coverage_status AS
WITH ended AS NOT MATERIALIZED (
    SELECT league_id, season, fixture_id
      FROM core.fixtures
     WHERE status_short IN ('FT', 'AET', 'PEN')
), sides AS NOT MATERIALIZED (
    SELECT f.league_id, f.season, side.team_id, bool_or(f.status_short IN ('FT', 'AET', 'PEN')) AS played
      FROM core.fixtures AS f
     CROSS JOIN LATERAL (VALUES (f.home_team_id), (f.away_team_id)) AS side (team_id)
     WHERE side.team_id IS NOT NULL
     GROUP BY f.league_id, f.season, side.team_id
), counted AS (
    SELECT f.league_id, f.season, '/fixtures' AS endpoint, count(*) AS expected, count(*) AS present,
           max(t.told_at) AS told_at
      FROM core.fixtures AS f LEFT JOIN football.fixture_told AS t USING (fixture_id)
     GROUP BY f.league_id, f.season
    UNION ALL
    SELECT e.league_id, e.season, b.endpoint, count(*), count(*) FILTER (WHERE b.present), max(t.details_at)
      FROM ended AS e
      LEFT JOIN football.fixture_told AS t USING (fixture_id)
     CROSS JOIN LATERAL (VALUES
           ('/fixtures/events', EXISTS (SELECT FROM core.fixture_events AS d WHERE d.fixture_id = e.fixture_id)),
           ('/fixtures/lineups', EXISTS (SELECT FROM core.fixture_lineups AS d WHERE d.fixture_id = e.fixture_id)),
           ('/fixtures/statistics', EXISTS (SELECT FROM core.fixture_statistics AS d WHERE d.fixture_id = e.fixture_id)),
           ('/fixtures/players', EXISTS (SELECT FROM core.fixture_players AS d WHERE d.fixture_id = e.fixture_id))
           ) AS b (endpoint, present)
     GROUP BY e.league_id, e.season, b.endpoint
    UNION ALL
    SELECT s.league_id, s.season, '/teams', count(*),
           count(*) FILTER (WHERE EXISTS (SELECT FROM core.teams AS t WHERE t.team_id = s.team_id)),
           max(p.updated_at)
      FROM sides AS s LEFT JOIN core.team_bootstrap_progress AS p USING (league_id, season)
     GROUP BY s.league_id, s.season
    UNION ALL
    SELECT s.league_id, s.season, '/standings', count(*),
           count(*) FILTER (WHERE EXISTS (SELECT FROM core.standings AS t WHERE t.league_id = s.league_id
                                             AND t.season = s.season AND t.team_id = s.team_id)),
           NULL
      FROM sides AS s
     GROUP BY s.league_id, s.season
    UNION ALL
    SELECT s.league_id, s.season, '/teams/statistics', count(*),
           count(*) FILTER (WHERE EXISTS (SELECT FROM core.team_statistics AS t WHERE t.league_id = s.league_id
                                             AND t.season = s.season AND t.team_id = s.team_id)),
           NULL
      FROM sides AS s
     WHERE s.played
     GROUP BY s.league_id, s.season
    UNION ALL
    SELECT e.league_id, e.season, '/players/topscorers', 1,
           (EXISTS (SELECT FROM core.top_scorers AS t WHERE t.league_id = e.league_id AND t.season = e.season))::integer,
           NULL
      FROM ended AS e
     GROUP BY e.league_id, e.season
    UNION ALL
    SELECT league_id, season, '/injuries', NULL, count(*), max(changed_at)
      FROM core.injuries
     GROUP BY league_id, season
), asked AS (
    SELECT endpoint, league_id, season, max(asked_at) AS asked_at
      FROM football.season_asked
     GROUP BY endpoint, league_id, season
)
SELECT c.league_id, coalesce(k.league_name, l.name) AS league_name, c.season, c.endpoint, k.covered,
       CASE WHEN k.covered IS FALSE THEN 0 ELSE c.expected END AS expected_count,
       c.present AS actual_count,
       CASE WHEN k.covered IS FALSE OR c.expected = 0 THEN 100.00
            ELSE round(100.0 * c.present / c.expected, 2) END AS count_coverage,
       coalesce(c.told_at, a.asked_at) AS last_update
  FROM counted AS c
  LEFT JOIN mart.season_coverage AS k ON k.league_id = c.league_id AND k.season = c.season AND k.endpoint = c.endpoint
  LEFT JOIN core.leagues AS l ON l.league_id = c.league_id
  LEFT JOIN asked AS a ON '/' || a.endpoint = c.endpoint AND a.league_id = c.league_id AND a.season = c.season;
