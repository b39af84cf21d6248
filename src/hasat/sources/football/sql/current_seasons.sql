-- The season that the API calls current, of some leagues.
SELECT l.league_id, l.name, max(core.whole(s -> 'year'))::integer
  FROM core.leagues AS l,
       jsonb_array_elements(CASE jsonb_typeof(l.seasons) WHEN 'array' THEN l.seasons ELSE '[]' END) AS s
 WHERE l.league_id = ANY (%(leagues)s) AND s -> 'current' = 'true'
 GROUP BY l.league_id, l.name
