-- Tables, top scorers and team statistics are not missing where the API returned none since a match
-- last ended, as with details (0011_coverage).
CREATE OR REPLACE VIEW mart.coverage_status AS
WITH ended AS NOT MATERIALIZED (
    SELECT league_id, season, fixture_id, changed_at
      FROM core.fixtures
     WHERE status_short IN ('FT', 'AET', 'PEN')
), sides AS NOT MATERIALIZED (
    SELECT f.league_id, f.season, side.team_id,
           max(f.changed_at) FILTER (WHERE f.status_short IN ('FT', 'AET', 'PEN')) AS ended_at
      FROM core.fixtures AS f
     CROSS JOIN LATERAL (VALUES (f.home_team_id), (f.away_team_id)) AS side (team_id)
     WHERE side.team_id IS NOT NULL
     GROUP BY f.league_id, f.season, side.team_id
), answered AS (
    -- Seasons of which the API was asked since a match last ended.
    SELECT a.endpoint, a.league_id, a.season
      FROM football.season_asked AS a
      LEFT JOIN (SELECT league_id, season, max(changed_at) AS at FROM ended GROUP BY league_id, season) AS news
             USING (league_id, season)
     WHERE a.team_id = 0 AND (news.at IS NULL OR a.asked_at >= news.at - interval '1 minute')
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
                                             AND t.season = s.season AND t.team_id = s.team_id)
                               OR (EXISTS (SELECT FROM answered AS a WHERE a.endpoint = 'standings'
                                              AND a.league_id = s.league_id AND a.season = s.season)
                                   AND NOT EXISTS (SELECT FROM core.standings AS t
                                                    WHERE t.league_id = s.league_id AND t.season = s.season))),
           NULL
      FROM sides AS s
     GROUP BY s.league_id, s.season
    UNION ALL
    SELECT s.league_id, s.season, '/teams/statistics', count(*),
           count(*) FILTER (WHERE EXISTS (SELECT FROM core.team_statistics AS t WHERE t.league_id = s.league_id
                                             AND t.season = s.season AND t.team_id = s.team_id)
                               OR EXISTS (SELECT FROM football.season_asked AS a
                                           WHERE a.endpoint = 'teams/statistics' AND a.league_id = s.league_id
                                             AND a.season = s.season AND a.team_id = s.team_id
                                             AND a.asked_at >= s.ended_at - interval '1 minute')),
           NULL
      FROM sides AS s
     WHERE s.ended_at IS NOT NULL
     GROUP BY s.league_id, s.season
    UNION ALL
    SELECT e.league_id, e.season, '/players/topscorers', 1,
           (EXISTS (SELECT FROM core.top_scorers AS t WHERE t.league_id = e.league_id AND t.season = e.season)
            OR EXISTS (SELECT FROM answered AS a WHERE a.endpoint = 'players/topscorers'
                          AND a.league_id = e.league_id AND a.season = e.season))::integer,
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
