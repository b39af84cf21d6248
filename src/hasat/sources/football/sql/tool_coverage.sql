-- What is there of what should be, where most is missing first.
SELECT *
  FROM mart.coverage_status
 WHERE (%(league)s::bigint IS NULL OR league_id = %(league)s)
   AND (%(season)s::bigint IS NULL OR season = %(season)s)
   AND (%(endpoint)s::text IS NULL OR endpoint = %(endpoint)s)
 ORDER BY count_coverage NULLS LAST, league_id, season DESC, endpoint
