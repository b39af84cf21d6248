-- name: leagues
-- The tracked seasons: coverage according to /leagues, and the stored data.
SELECT s.league_id, s.season, l.name, l.country, listed.covered,
       coalesce(f.matches, 0) AS matches, counted.matches AS expected, coalesce(f.finished, 0) AS finished,
       coalesce(f.detailed, 0) AS detailed, coalesce(f.inferred, 0) AS inferred,
       EXISTS (SELECT FROM core.standings AS x WHERE (x.league_id, x.season) = (s.league_id, s.season)) AS standings,
       EXISTS (SELECT FROM core.injuries AS x WHERE (x.league_id, x.season) = (s.league_id, s.season)) AS injuries,
       EXISTS (SELECT FROM core.top_scorers AS x WHERE (x.league_id, x.season) = (s.league_id, s.season)) AS top_scorers,
       EXISTS (SELECT FROM core.team_statistics AS x WHERE (x.league_id, x.season) = (s.league_id, s.season)) AS team_statistics
  FROM unnest(%(leagues)s::bigint[], %(seasons)s::bigint[]) WITH ORDINALITY AS s (league_id, season, no)
  LEFT JOIN core.leagues AS l ON l.league_id = s.league_id
  LEFT JOIN LATERAL (
       SELECT jsonb_object_agg(c.endpoint, c.covered) AS covered
         FROM mart.season_coverage AS c
        WHERE c.league_id = s.league_id AND c.season = s.season
       ) AS listed ON true
  LEFT JOIN LATERAL (
       SELECT count(*) AS matches,
              count(*) FILTER (WHERE x.status_short IN ('FT', 'AET', 'PEN')) AS finished,
              count(*) FILTER (WHERE x.status_short IN ('FT', 'AET', 'PEN')
                                 AND t.details_at >= x.changed_at - interval '1 minute') AS detailed,
              count(i.fixture_id) AS inferred
         FROM core.fixtures AS x
         LEFT JOIN football.fixture_told AS t ON t.fixture_id = x.fixture_id
         LEFT JOIN core.fixture_inferences AS i ON i.fixture_id = x.fixture_id
        WHERE x.league_id = s.league_id AND x.season = s.season
       ) AS f ON true
  LEFT JOIN football.season_listed AS counted ON counted.league_id = s.league_id AND counted.season = s.season
 ORDER BY s.no

-- name: matches
-- The matches of a day with their inferred states. The day's end is computed here: date.max has no next
-- day in Python.
SELECT f.fixture_id, f.league_id, f.season, f.body #>> '{league,name}' AS league, f.date,
       f.body #>> '{teams,home,name}' AS home, f.body #>> '{teams,away,name}' AS away,
       f.goals_home, f.goals_away, f.status_short AS status, f.elapsed,
       i.inferred_status AS inferred, i.reason, football.unconfirmed_since(f.status_short, f.date, t.told_at) AS unconfirmed_since
  FROM core.fixtures AS f
  LEFT JOIN core.fixture_inferences AS i ON i.fixture_id = f.fixture_id
  LEFT JOIN football.fixture_told AS t ON t.fixture_id = f.fixture_id
 WHERE f.date >= %(day)s::date::timestamp AT TIME ZONE %(zone)s
   AND f.date < (%(day)s::date + 1)::timestamp AT TIME ZONE %(zone)s
   AND (%(league)s::bigint IS NULL OR f.league_id = %(league)s)
 ORDER BY f.date, f.league_id, f.fixture_id
 LIMIT %(limit)s

-- name: standings
-- The standings of a season.
SELECT coalesce(group_name, '') AS "group", rank, team_id, body #>> '{team,name}' AS team,
       core.whole(body #> '{all,played}') AS played, core.whole(body #> '{all,win}') AS won,
       core.whole(body #> '{all,draw}') AS drawn, core.whole(body #> '{all,lose}') AS lost,
       core.whole(body #> '{all,goals,for}') AS scored,
       core.whole(body #> '{all,goals,against}') AS conceded, points, body ->> 'form' AS form
  FROM core.standings
 WHERE league_id = %(league)s AND season = %(season)s
 ORDER BY group_name, rank
 LIMIT 200

-- name: table_after
-- The table of a season after a round.
SELECT '' AS "group", rank, team_id, team, played, won, drawn, lost, scored, conceded, points, form
  FROM mart.league_table(%(league)s, %(season)s, %(round)s)

-- name: season
-- The name of a league and the years of its mirrored seasons.
SELECT coalesce((SELECT name FROM core.leagues WHERE league_id = %(league)s LIMIT 1),
                (SELECT max(body #>> '{league,name}') FROM core.fixtures
                  WHERE league_id = %(league)s AND season = %(season)s)) AS name,
       (SELECT country FROM core.leagues WHERE league_id = %(league)s LIMIT 1) AS country,
       (SELECT count(*) FROM core.fixtures WHERE league_id = %(league)s AND season = %(season)s) AS matches,
       ARRAY(SELECT DISTINCT season FROM core.fixtures
              WHERE league_id = %(league)s AND season IS NOT NULL ORDER BY season DESC) AS seasons

-- name: rounds
-- The rounds of the season's main stage, the one with the most matches, and whether each has results.
SELECT football.round_number(f.round) AS number, min(f.round) AS name,
       bool_or(f.status_short IN ('FT', 'AET', 'PEN') OR football.state_of(f.status_short) = 'not_played') AS has_results
  FROM core.fixtures AS f
 WHERE f.league_id = %(league)s AND f.season = %(season)s
   AND football.stage_of(f.round) = (
       SELECT football.stage_of(m.round)
         FROM core.fixtures AS m
        WHERE m.league_id = %(league)s AND m.season = %(season)s AND football.round_number(m.round) IS NOT NULL
        GROUP BY 1
        ORDER BY count(*) DESC, 1
        LIMIT 1)
   AND football.round_number(f.round) IS NOT NULL
 GROUP BY 1
 ORDER BY 1

-- name: points
-- The points of each team after each round in which it played, in the main stage.
SELECT r.team_id, r.team, r.round,
       sum(sum(CASE r.result WHEN 'W' THEN 3 WHEN 'D' THEN 1 ELSE 0 END))
           OVER (PARTITION BY r.team_id ORDER BY r.round)::bigint AS points
  FROM (SELECT team_id, round, result, last_value(team) OVER (PARTITION BY team_id ORDER BY date
               ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS team
          FROM mart.results
         WHERE league_id = %(league)s AND season = %(season)s AND round IS NOT NULL AND stage = (
               SELECT m.stage
                 FROM mart.results AS m
                WHERE m.league_id = %(league)s AND m.season = %(season)s AND m.round IS NOT NULL
                GROUP BY m.stage
                ORDER BY count(*) DESC, m.stage
                LIMIT 1)) AS r
 GROUP BY r.team_id, r.team, r.round
 ORDER BY r.team_id, r.round

-- name: scorers
-- The top scorers of a season as the API lists them, or else computed from the details of matches.
SELECT player_id, body #>> '{player,name}' AS player, body #>> '{statistics,0,team,name}' AS team, goals,
       core.whole(body #> '{statistics,0,goals,assists}') AS assists, false AS computed
  FROM core.top_scorers
 WHERE league_id = %(league)s AND season = %(season)s
 UNION ALL
(SELECT p.player_id, p.name,
        (SELECT t.team FROM mart.team_seasons AS t
          WHERE t.league_id = p.league_id AND t.season = p.season AND t.team_id = p.team_id), p.goals, p.assists, true
   FROM mart.player_seasons AS p
  WHERE p.league_id = %(league)s AND p.season = %(season)s AND p.goals > 0
    AND NOT EXISTS (SELECT FROM core.top_scorers AS s WHERE s.league_id = %(league)s AND s.season = %(season)s)
  ORDER BY p.goals DESC, p.name, p.player_id
  LIMIT 20)
 ORDER BY goals DESC NULLS LAST, player, player_id
 LIMIT 20

-- name: season_matches
-- Matches of a round, or else those nearest to now: the latest that began and the next ones.
SELECT f.fixture_id, f.league_id, f.season, f.body #>> '{league,name}' AS league, f.round, f.date,
       f.body #>> '{teams,home,name}' AS home, f.body #>> '{teams,away,name}' AS away,
       f.goals_home, f.goals_away, f.status_short AS status, f.elapsed,
       i.inferred_status AS inferred, i.reason, football.unconfirmed_since(f.status_short, f.date, t.told_at) AS unconfirmed_since
  FROM (SELECT m.fixture_id
          FROM core.fixtures AS m
         WHERE m.league_id = %(league)s AND m.season = %(season)s AND m.round = %(name)s
         UNION
        (SELECT m.fixture_id
           FROM core.fixtures AS m
          WHERE %(name)s::text IS NULL AND m.league_id = %(league)s AND m.season = %(season)s AND m.date <= %(now)s
          ORDER BY m.date DESC
          LIMIT %(limit)s)
         UNION
        (SELECT m.fixture_id
           FROM core.fixtures AS m
          WHERE %(name)s::text IS NULL AND m.league_id = %(league)s AND m.season = %(season)s AND m.date > %(now)s
          ORDER BY m.date
          LIMIT %(limit)s)) AS chosen
  JOIN core.fixtures AS f USING (fixture_id)
  LEFT JOIN core.fixture_inferences AS i USING (fixture_id)
  LEFT JOIN football.fixture_told AS t USING (fixture_id)
 ORDER BY f.date, f.fixture_id
 LIMIT 200

-- name: match
-- A match as published, with what is inferred about it and when it was received.
SELECT f.fixture_id, f.key, f.league_id, f.season, f.body #>> '{league,name}' AS league, f.round, f.date,
       f.home_team_id AS home_id, f.body #>> '{teams,home,name}' AS home,
       f.away_team_id AS away_id, f.body #>> '{teams,away,name}' AS away,
       f.goals_home, f.goals_away, f.status_short AS status, f.elapsed,
       core.whole(f.body #> '{fixture,status,extra}') AS extra,
       f.body #>> '{fixture,venue,name}' AS venue, f.body #>> '{fixture,venue,city}' AS city,
       f.body #>> '{fixture,referee}' AS referee,
       core.whole(f.body #> '{score,halftime,home}') AS half_home, core.whole(f.body #> '{score,halftime,away}') AS half_away,
       core.whole(f.body #> '{score,penalty,home}') AS penalty_home, core.whole(f.body #> '{score,penalty,away}') AS penalty_away,
       f.changed_at, t.told_at, t.details_at, i.inferred_status AS inferred, i.reason, i.inferred_at,
       football.unconfirmed_since(f.status_short, f.date, t.told_at) AS unconfirmed_since
  FROM core.fixtures AS f
  LEFT JOIN football.fixture_told AS t USING (fixture_id)
  LEFT JOIN core.fixture_inferences AS i USING (fixture_id)
 WHERE f.fixture_id = %(fixture)s
 LIMIT 1

-- name: events
-- The events of a match in the order of its minutes.
SELECT elapsed, extra, type, detail, body ->> 'comments' AS comments, team_id,
       body #>> '{team,name}' AS team, body #>> '{player,name}' AS player, body #>> '{assist,name}' AS assist
  FROM core.fixture_events
 WHERE fixture_id = %(fixture)s
 ORDER BY elapsed NULLS LAST, extra NULLS FIRST, key
 LIMIT 500

-- name: lineups
-- The line-ups of a match.
SELECT team_id, formation, body FROM core.fixture_lineups WHERE fixture_id = %(fixture)s ORDER BY key LIMIT 4

-- name: statistics
-- The statistics of a match.
SELECT team_id, body FROM core.fixture_statistics WHERE fixture_id = %(fixture)s ORDER BY key LIMIT 4

-- name: players
-- The players of a match with their figures.
SELECT team_id, name, core.whole(s.line #> '{games,minutes}') AS minutes, s.line #>> '{games,rating}' AS rating,
       core.whole(s.line #> '{goals,total}') AS goals, core.whole(s.line #> '{goals,assists}') AS assists
  FROM core.fixture_players
 CROSS JOIN LATERAL (SELECT body #> '{statistics,0}') AS s (line)
 WHERE fixture_id = %(fixture)s AND core.whole(s.line #> '{games,minutes}') > 0
 ORDER BY minutes DESC, name, key
 LIMIT 200

-- name: corrections_of_match
-- How the result of a match changed after the final whistle, the newest first.
SELECT changed_at, status_before, status, home_before, away_before, goals_home, goals_away
  FROM mart.corrections
 WHERE key = %(key)s
 ORDER BY seq DESC
 LIMIT 20

-- name: meetings
-- The last results of two teams against each other, other than this match.
SELECT f.fixture_id, f.body #>> '{league,name}' AS league, f.date, f.body #>> '{teams,home,name}' AS home,
       f.body #>> '{teams,away,name}' AS away, f.goals_home, f.goals_away
  FROM core.fixtures AS f
 WHERE ((f.home_team_id, f.away_team_id) = (%(home)s, %(away)s) OR (f.home_team_id, f.away_team_id) = (%(away)s, %(home)s))
   AND f.fixture_id <> %(fixture)s AND f.status_short IN ('FT', 'AET', 'PEN')
 ORDER BY f.date DESC
 LIMIT 5
