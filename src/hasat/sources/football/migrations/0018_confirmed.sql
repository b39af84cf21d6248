-- When states that may be outdated were last confirmed; more of what analysts compute from results.

CREATE FUNCTION football.unconfirmed_since(status text, kick_off timestamptz, told_at timestamptz)
RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT told_at
     WHERE told_at < clock_timestamp() - interval '30 minutes'
       AND (football.state_of(status) IN ('live', 'unknown')
            OR (football.state_of(status) = 'scheduled' AND kick_off <= clock_timestamp()))
$$;
COMMENT ON FUNCTION football.unconfirmed_since IS 'When the API last confirmed the state of a match that should have changed since; NULL if it is confirmed or final.';

-- The key lets a query read the changes of one match by index.
CREATE OR REPLACE VIEW mart.corrections AS
SELECT c.seq, c.changed_at, core.whole(c.body #> '{fixture,id}') AS fixture_id,
       core.whole(c.body #> '{league,id}') AS league_id, core.whole(c.body #> '{league,season}') AS season,
       c.body #>> '{teams,home,name}' AS home, c.body #>> '{teams,away,name}' AS away,
       c.before #>> '{fixture,status,short}' AS status_before, c.body #>> '{fixture,status,short}' AS status,
       core.whole(c.before #> '{goals,home}') AS home_before, core.whole(c.before #> '{goals,away}') AS away_before,
       core.whole(c.body #> '{goals,home}') AS goals_home, core.whole(c.body #> '{goals,away}') AS goals_away, c.key
  FROM feed.change AS c
 WHERE c.dataset = 'fixtures' AND c.kind = 2
   AND c.before #>> '{fixture,status,short}' IN ('FT', 'AET', 'PEN')
   AND (c.before -> 'goals' IS DISTINCT FROM c.body -> 'goals'
        OR c.before #> '{fixture,status,short}' IS DISTINCT FROM c.body #> '{fixture,status,short}');

CREATE VIEW mart.team_form AS
SELECT league_id, season, team_id, (array_agg(team ORDER BY date DESC NULLS LAST))[1] AS team,
       right(string_agg(result, '' ORDER BY date, fixture_id), 5) AS form,
       right(coalesce(string_agg(result, '' ORDER BY date, fixture_id) FILTER (WHERE is_home), ''), 5) AS form_home,
       right(coalesce(string_agg(result, '' ORDER BY date, fixture_id) FILTER (WHERE NOT is_home), ''), 5) AS form_away,
       (sum(CASE result WHEN 'W' THEN 3 WHEN 'D' THEN 1 ELSE 0 END) FILTER (WHERE latest <= 5))::bigint AS points_of_5,
       (sum(scored) FILTER (WHERE latest <= 5))::bigint AS scored_of_5,
       (sum(conceded) FILTER (WHERE latest <= 5))::bigint AS conceded_of_5,
       max(date) AS last_match
  FROM (SELECT r.*, row_number() OVER (PARTITION BY league_id, season, team_id
                                       ORDER BY date DESC NULLS LAST, fixture_id DESC) AS latest
          FROM mart.results AS r) AS r
 GROUP BY league_id, season, team_id;
COMMENT ON VIEW mart.team_form IS 'The last five results of each team in a season, at home, away and together.';
SELECT core.make_read_only('mart.team_form');

CREATE VIEW mart.head_to_head AS
SELECT team_id, opponent_id, (array_agg(team ORDER BY date DESC NULLS LAST))[1] AS team,
       (array_agg(opponent ORDER BY date DESC NULLS LAST))[1] AS opponent, count(*) AS played,
       count(*) FILTER (WHERE result = 'W') AS won, count(*) FILTER (WHERE result = 'D') AS drawn,
       count(*) FILTER (WHERE result = 'L') AS lost, sum(scored)::bigint AS scored,
       sum(conceded)::bigint AS conceded, max(date) AS last_match
  FROM mart.results
 WHERE opponent_id IS NOT NULL
 GROUP BY team_id, opponent_id;
COMMENT ON VIEW mart.head_to_head IS 'The balance of each pair of teams over all mirrored seasons.';
SELECT core.make_read_only('mart.head_to_head');

CREATE OR REPLACE VIEW mart.daily_fixtures_dashboard AS
SELECT f.fixture_id, (f.date AT TIME ZONE 'UTC')::date AS day, f.date, f.league_id,
       f.body #>> '{league,name}' AS league_name, f.body #>> '{league,country}' AS country,
       f.season, f.round, f.status_short, f.body #>> '{fixture,status,long}' AS status_long,
       football.state_of(f.status_short) AS state, f.elapsed,
       f.home_team_id, f.body #>> '{teams,home,name}' AS home_team,
       f.away_team_id, f.body #>> '{teams,away,name}' AS away_team,
       f.goals_home, f.goals_away, f.score,
       i.inferred_status, i.reason AS inference_reason, i.inferred_at,
       coalesce(i.needs_score_verification, false) AS needs_score_verification,
       t.told_at, t.details_at, f.changed_at,
       football.unconfirmed_since(f.status_short, f.date, t.told_at) AS unconfirmed_since
  FROM core.fixtures AS f
  LEFT JOIN core.fixture_inferences AS i USING (fixture_id)
  LEFT JOIN football.fixture_told AS t USING (fixture_id);
CREATE OR REPLACE VIEW mart.live_score_panel AS
SELECT * FROM mart.daily_fixtures_dashboard WHERE status_short IN ('1H', 'HT', '2H', 'ET', 'BT', 'P', 'SUSP', 'INT', 'LIVE');
