-- The matches of a day, with what is inferred about them beside it. The last day that Python knows has
-- a next one here.
SELECT f.fixture_id, f.body #>> '{league,name}' AS league, f.date,
       f.body #>> '{teams,home,name}' AS home, f.body #>> '{teams,away,name}' AS away,
       f.goals_home, f.goals_away, f.status_short AS status, f.elapsed,
       i.inferred_status AS inferred, i.reason
  FROM core.fixtures AS f
  LEFT JOIN core.fixture_inferences AS i ON i.fixture_id = f.fixture_id
 WHERE f.date >= %(day)s::date::timestamp AT TIME ZONE %(zone)s
   AND f.date < (%(day)s::date + 1)::timestamp AT TIME ZONE %(zone)s
   AND (%(league)s::bigint IS NULL OR f.league_id = %(league)s)
 ORDER BY f.date, f.league_id, f.fixture_id
 LIMIT %(limit)s
