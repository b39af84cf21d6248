-- What analysts compute from matches: results by team, tables after any round, form, corrections.

-- The stage and the number of a round such as "Regular Season - 12"; without a number it is all stage.
CREATE FUNCTION football.stage_of(round text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN regexp_replace(round, ' - [0-9]{1,4}$', '');
CREATE FUNCTION football.round_number(round text) RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (substring(round FROM ' - ([0-9]{1,4})$'))::integer;

CREATE VIEW mart.results AS
SELECT f.fixture_id, f.league_id, f.season, football.stage_of(f.round) AS stage,
       football.round_number(f.round) AS round, f.date, side.is_home, side.team_id, side.team,
       side.opponent_id, side.opponent, side.scored, side.conceded,
       CASE WHEN side.scored > side.conceded THEN 'W' WHEN side.scored = side.conceded THEN 'D' ELSE 'L' END AS result
  FROM core.fixtures AS f
 CROSS JOIN LATERAL (VALUES
       (true, f.home_team_id, f.body #>> '{teams,home,name}', f.away_team_id, f.body #>> '{teams,away,name}',
        f.goals_home, f.goals_away),
       (false, f.away_team_id, f.body #>> '{teams,away,name}', f.home_team_id, f.body #>> '{teams,home,name}',
        f.goals_away, f.goals_home)
       ) AS side (is_home, team_id, team, opponent_id, opponent, scored, conceded)
 WHERE (f.status_short IN ('FT', 'AET', 'PEN') OR football.state_of(f.status_short) = 'not_played')
   AND side.team_id IS NOT NULL AND side.scored BETWEEN 0 AND 999 AND side.conceded BETWEEN 0 AND 999;
COMMENT ON VIEW mart.results IS 'Each finished or awarded match twice, once for each team.';

-- Stages with a numbered round have a table; by default the one with the most matches.
CREATE FUNCTION mart.league_table(
    _league bigint, _season bigint, _until_round integer DEFAULT NULL, _stage text DEFAULT NULL
) RETURNS TABLE (
    rank bigint, team_id bigint, team text, played bigint, won bigint, drawn bigint, lost bigint,
    scored bigint, conceded bigint, difference bigint, points bigint, form text
) LANGUAGE sql STABLE AS $$
    WITH stage AS (
        SELECT coalesce(_stage, (SELECT r.stage
                                   FROM mart.results AS r
                                  WHERE r.league_id = _league AND r.season = _season AND r.round IS NOT NULL
                                  GROUP BY r.stage
                                  ORDER BY count(*) DESC, r.stage
                                  LIMIT 1)) AS name
    ), counted AS (
        SELECT r.team_id, (array_agg(r.team ORDER BY r.date DESC NULLS LAST))[1] AS team, count(*) AS played,
               count(*) FILTER (WHERE r.result = 'W') AS won,
               count(*) FILTER (WHERE r.result = 'D') AS drawn,
               count(*) FILTER (WHERE r.result = 'L') AS lost,
               sum(r.scored)::bigint AS scored, sum(r.conceded)::bigint AS conceded,
               right(string_agg(r.result, '' ORDER BY r.date, r.fixture_id), 5) AS form
          FROM mart.results AS r
         WHERE r.league_id = _league AND r.season = _season AND r.stage = (SELECT name FROM stage)
           AND r.round IS NOT NULL AND (_until_round IS NULL OR r.round <= _until_round)
         GROUP BY r.team_id
    )
    SELECT rank() OVER (ORDER BY 3 * won + drawn DESC, scored - conceded DESC, scored DESC), team_id, team,
           played, won, drawn, lost, scored, conceded, scored - conceded, 3 * won + drawn, form
      FROM counted
     ORDER BY 1, team, team_id
$$;
COMMENT ON FUNCTION mart.league_table IS 'The table after a round: points, goal difference, goals; a league''s own rules for ties and deducted points are in core.standings.';

CREATE VIEW mart.team_seasons AS
SELECT r.league_id, r.season, r.team_id, (array_agg(r.team ORDER BY r.date DESC NULLS LAST))[1] AS team,
       count(*) AS played, count(*) FILTER (WHERE r.result = 'W') AS won,
       count(*) FILTER (WHERE r.result = 'D') AS drawn, count(*) FILTER (WHERE r.result = 'L') AS lost,
       sum(r.scored)::bigint AS scored, sum(r.conceded)::bigint AS conceded,
       count(*) FILTER (WHERE r.conceded = 0) AS clean_sheets,
       right(string_agg(r.result, '' ORDER BY r.date, r.fixture_id), 10) AS form
  FROM mart.results AS r
 GROUP BY r.league_id, r.season, r.team_id;

CREATE VIEW mart.player_seasons AS
SELECT f.league_id, f.season, p.player_id, p.team_id, max(p.name) AS name,
       count(*) FILTER (WHERE core.whole(s.line #> '{games,minutes}') > 0) AS matches,
       sum(core.whole(s.line #> '{games,minutes}'))::bigint AS minutes,
       sum(core.whole(s.line #> '{goals,total}'))::bigint AS goals,
       sum(core.whole(s.line #> '{goals,assists}'))::bigint AS assists,
       sum(core.whole(s.line #> '{cards,yellow}'))::bigint AS yellow,
       sum(core.whole(s.line #> '{cards,red}'))::bigint AS red
  FROM core.fixture_players AS p
  JOIN core.fixtures AS f ON f.fixture_id = p.fixture_id
 CROSS JOIN LATERAL (SELECT p.body #> '{statistics,0}') AS s (line)
 WHERE p.player_id > 0
 GROUP BY f.league_id, f.season, p.player_id, p.team_id;
COMMENT ON VIEW mart.player_seasons IS 'Computed from the statistics of each match; core.player_statistics has the API''s own figures.';

CREATE VIEW mart.corrections AS
SELECT c.seq, c.changed_at, core.whole(c.body #> '{fixture,id}') AS fixture_id,
       core.whole(c.body #> '{league,id}') AS league_id, core.whole(c.body #> '{league,season}') AS season,
       c.body #>> '{teams,home,name}' AS home, c.body #>> '{teams,away,name}' AS away,
       c.before #>> '{fixture,status,short}' AS status_before, c.body #>> '{fixture,status,short}' AS status,
       core.whole(c.before #> '{goals,home}') AS home_before, core.whole(c.before #> '{goals,away}') AS away_before,
       core.whole(c.body #> '{goals,home}') AS goals_home, core.whole(c.body #> '{goals,away}') AS goals_away
  FROM feed.change AS c
 WHERE c.dataset = 'fixtures' AND c.kind = 2
   AND c.before #>> '{fixture,status,short}' IN ('FT', 'AET', 'PEN')
   AND (c.before -> 'goals' IS DISTINCT FROM c.body -> 'goals'
        OR c.before #> '{fixture,status,short}' IS DISTINCT FROM c.body #> '{fixture,status,short}');
COMMENT ON VIEW mart.corrections IS 'Results that changed after the final whistle, as long as changes are stored.';
