-- How many matches the API counted in its last listing of a whole season.
CREATE TABLE football.season_listed (
    league_id bigint NOT NULL,
    season    bigint NOT NULL,
    matches   bigint NOT NULL,
    listed_at timestamptz NOT NULL,
    PRIMARY KEY (league_id, season)
);
INSERT INTO football.season_listed (league_id, season, matches, listed_at)
SELECT DISTINCT ON (1, 2) (requested_params ->> 'league')::bigint, (requested_params ->> 'season')::bigint,
       results, last_fetched_at
  FROM raw.api_responses
 WHERE endpoint = '/fixtures' AND requested_params - 'timezone' - 'league' - 'season' = '{}'
   AND requested_params ->> 'league' ~ '^\d{1,18}$' AND requested_params ->> 'season' ~ '^\d{1,18}$'
   AND errors = '{}' AND results > 0
 ORDER BY 1, 2, seen_order DESC;

-- The kinds of details that the API gave as an empty list when it was last asked for them.
ALTER TABLE football.fixture_told ADD COLUMN empty_blocks text[] NOT NULL DEFAULT '{}';
-- Of details that were fetched before this was noted, those without a record were empty.
UPDATE football.fixture_told AS t
   SET empty_blocks = array_remove(ARRAY[
           CASE WHEN NOT EXISTS (SELECT FROM core.fixture_events AS d WHERE d.fixture_id = t.fixture_id) THEN 'events' END,
           CASE WHEN NOT EXISTS (SELECT FROM core.fixture_lineups AS d WHERE d.fixture_id = t.fixture_id) THEN 'lineups' END,
           CASE WHEN NOT EXISTS (SELECT FROM core.fixture_statistics AS d WHERE d.fixture_id = t.fixture_id) THEN 'statistics' END,
           CASE WHEN NOT EXISTS (SELECT FROM core.fixture_players AS d WHERE d.fixture_id = t.fixture_id) THEN 'players' END], NULL)
 WHERE details_at IS NOT NULL;

-- For each season of which there are matches or tables, and each endpoint: what should be there, what
-- is, the share of it in percent, and when the API last responded. As many matches are expected as the
-- API counted in the last listing of the whole season; before the first one the number is unknown (null),
-- as it always is for injuries. Where a season is not covered, nothing is expected. Details of a finished
-- match are there if there are records, or if the API gave an empty list since the match last changed.
CREATE OR REPLACE VIEW mart.coverage_status AS
WITH ended AS NOT MATERIALIZED (
    SELECT league_id, season, fixture_id, changed_at
      FROM core.fixtures
     WHERE status_short IN ('FT', 'AET', 'PEN')
), sides AS NOT MATERIALIZED (
    SELECT f.league_id, f.season, side.team_id, bool_or(f.status_short IN ('FT', 'AET', 'PEN')) AS played
      FROM core.fixtures AS f
     CROSS JOIN LATERAL (VALUES (f.home_team_id), (f.away_team_id)) AS side (team_id)
     WHERE side.team_id IS NOT NULL
     GROUP BY f.league_id, f.season, side.team_id
), counted AS (
    SELECT league_id, season, '/fixtures' AS endpoint, s.matches AS expected, coalesce(f.present, 0) AS present,
           coalesce(f.told_at, s.listed_at) AS told_at
      FROM (SELECT f.league_id, f.season, count(*) AS present, max(t.told_at) AS told_at
              FROM core.fixtures AS f LEFT JOIN football.fixture_told AS t USING (fixture_id)
             GROUP BY f.league_id, f.season) AS f
      FULL JOIN football.season_listed AS s USING (league_id, season)
    UNION ALL
    SELECT e.league_id, e.season, b.endpoint, count(*), count(*) FILTER (WHERE b.present OR (t.details_at >= e.changed_at - interval '1 minute'
                                                   AND b.block = ANY (t.empty_blocks))), max(t.details_at)
      FROM ended AS e
      LEFT JOIN football.fixture_told AS t USING (fixture_id)
     CROSS JOIN LATERAL (VALUES
           ('/fixtures/events', 'events', EXISTS (SELECT FROM core.fixture_events AS d WHERE d.fixture_id = e.fixture_id)),
           ('/fixtures/lineups', 'lineups', EXISTS (SELECT FROM core.fixture_lineups AS d WHERE d.fixture_id = e.fixture_id)),
           ('/fixtures/statistics', 'statistics', EXISTS (SELECT FROM core.fixture_statistics AS d WHERE d.fixture_id = e.fixture_id)),
           ('/fixtures/players', 'players', EXISTS (SELECT FROM core.fixture_players AS d WHERE d.fixture_id = e.fixture_id))
           ) AS b (endpoint, block, present)
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
            ELSE round(100.0 * least(c.present, c.expected) / c.expected, 2) END AS count_coverage,
       coalesce(c.told_at, a.asked_at) AS last_update
  FROM counted AS c
  LEFT JOIN mart.season_coverage AS k ON k.league_id = c.league_id AND k.season = c.season AND k.endpoint = c.endpoint
  LEFT JOIN core.leagues AS l ON l.league_id = c.league_id
  LEFT JOIN asked AS a ON '/' || a.endpoint = c.endpoint AND a.league_id = c.league_id AND a.season = c.season;
