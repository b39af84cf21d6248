-- The season that the API calls current, of some leagues.
SELECT l.league_id, l.name, max(s.year)
  FROM football.seasons_of(%(leagues)s) AS s
  JOIN core.leagues AS l USING (league_id)
 WHERE s.is_current
 GROUP BY l.league_id, l.name
