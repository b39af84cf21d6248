-- The matches of a day, with what is inferred about them beside it.
SELECT f.fixture_id, f.body #>> '{league,name}' AS league, f.date,
       f.body #>> '{teams,home,name}' AS home, f.body #>> '{teams,away,name}' AS away,
       f.goals_home, f.goals_away, f.status_short AS status, f.elapsed,
       i.inferred_status AS inferred, i.reason
  FROM core.fixtures AS f
  LEFT JOIN core.fixture_inferences AS i ON i.fixture_id = f.fixture_id
 WHERE f.date >= %(since)s AND f.date < %(until)s
   AND (%(league)s::bigint IS NULL OR f.league_id = %(league)s)
 ORDER BY f.date, f.league_id, f.fixture_id
 LIMIT %(limit)s
