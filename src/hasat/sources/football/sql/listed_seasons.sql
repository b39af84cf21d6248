-- The seasons of some leagues as /leagues lists them; a date that is none is left out.
SELECT l.league_id,
       core.whole(s -> 'year')::integer,
       CASE WHEN s ->> 'start' ~ '^\d{4}-\d\d-\d\d$' THEN (s ->> 'start')::date END,
       CASE WHEN s ->> 'end' ~ '^\d{4}-\d\d-\d\d$' THEN (s ->> 'end')::date END,
       s -> 'coverage'
  FROM core.leagues AS l,
       jsonb_array_elements(CASE jsonb_typeof(l.seasons) WHEN 'array' THEN l.seasons ELSE '[]' END) AS s
 WHERE l.league_id = ANY (%(leagues)s) AND core.whole(s -> 'year') IS NOT NULL
