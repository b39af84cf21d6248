-- What is there of what should be, by endpoint.
SELECT endpoint, count(*) AS league_seasons,
       count(*) FILTER (WHERE count_coverage >= 100) AS complete,
       count(*) FILTER (WHERE expected_count IS NULL) AS unknown,
       coalesce(sum(expected_count), 0)::bigint AS expected_count,
       sum(actual_count)::bigint AS actual_count, min(last_update) AS oldest_update
  FROM mart.coverage_status
 WHERE %(season)s::bigint IS NULL OR season = %(season)s
 GROUP BY endpoint
 ORDER BY endpoint
