-- Every league by name and country, and the seasons it has.
SELECT l.league_id, coalesce(l.name, ''), coalesce(l.country, ''),
       ARRAY(SELECT core.whole(s -> 'year')
               FROM jsonb_array_elements(CASE jsonb_typeof(l.seasons) WHEN 'array' THEN l.seasons ELSE '[]' END) AS s
              WHERE core.whole(s -> 'year') IS NOT NULL)
  FROM core.leagues AS l
 WHERE l.league_id IS NOT NULL
 ORDER BY l.league_id
