-- A day out of JSON, or nothing where no calendar has it or no season can lie: a league whose dates
-- are 0000-00-00 must not stop the jobs of all others.
CREATE FUNCTION core.day(value jsonb) RETURNS date LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN part.day <= extract(day FROM make_date(part.year, part.month, 1) + interval '1 month - 1 day')
                THEN make_date(part.year, part.month, part.day) END
      FROM (SELECT found[1]::integer AS year, found[2]::integer AS month, found[3]::integer AS day
              FROM regexp_match(CASE jsonb_typeof(value) WHEN 'string' THEN value #>> '{}' END,
                                '^((?:19|20|21)[0-9]{2})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$') AS found
             WHERE found IS NOT NULL) AS part
$$;

-- The seasons that /leagues lists. One that ends before it begins or lasts for years has no dates.
CREATE FUNCTION football.seasons_of(leagues bigint[])
RETURNS TABLE (league_id bigint, year integer, first_day date, last_day date, is_current boolean, coverage jsonb)
LANGUAGE sql STABLE AS $$
    SELECT l.league_id, core.whole(s -> 'year')::integer,
           CASE WHEN (days.last - days.first BETWEEN 0 AND 1000) IS NOT FALSE THEN days.first END,
           CASE WHEN (days.last - days.first BETWEEN 0 AND 1000) IS NOT FALSE THEN days.last END,
           s -> 'current' = 'true', s -> 'coverage'
      FROM core.leagues AS l,
           jsonb_array_elements(CASE jsonb_typeof(l.seasons) WHEN 'array' THEN l.seasons ELSE '[]' END) AS s,
           LATERAL (SELECT core.day(s -> 'start') AS first, core.day(s -> 'end') AS last) AS days
     WHERE l.league_id = ANY (leagues)
       AND core.whole(s -> 'year') BETWEEN 1800 AND 2200
$$;
