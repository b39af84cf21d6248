-- Matches by whatever is given, the latest first, with what is inferred about them.
SELECT f.fixture_id, f.league_id, f.body #>> '{league,name}' AS league, f.season, f.round, f.date,
       f.status_short, f.elapsed,
       f.home_team_id, f.body #>> '{teams,home,name}' AS home_team,
       f.away_team_id, f.body #>> '{teams,away,name}' AS away_team,
       f.goals_home, f.goals_away, t.told_at, t.details_at,
       i.inferred_status, coalesce(i.needs_score_verification, false) AS needs_score_verification
  FROM core.fixtures AS f
  LEFT JOIN football.fixture_told AS t USING (fixture_id)
  LEFT JOIN core.fixture_inferences AS i USING (fixture_id)
 WHERE (%(ids)s::bigint[] IS NULL OR f.fixture_id = ANY (%(ids)s))
   AND (%(league)s::bigint IS NULL OR f.league_id = %(league)s)
   AND (%(season)s::bigint IS NULL OR f.season = %(season)s)
   AND (%(team)s::bigint IS NULL OR %(team)s IN (f.home_team_id, f.away_team_id))
   AND (%(date)s::date IS NULL OR (f.date AT TIME ZONE 'UTC')::date = %(date)s)
   AND (%(status)s::text[] IS NULL OR f.status_short = ANY (%(status)s))
 ORDER BY f.date DESC NULLS LAST, f.fixture_id
 LIMIT %(limit)s
