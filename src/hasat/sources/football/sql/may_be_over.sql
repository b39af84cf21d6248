-- Matches that began long ago and of which nothing was heard for long.
SELECT fixture_id
  FROM football.may_be_over(%(leagues)s, %(statuses)s, %(threshold)s, %(lag)s)
 ORDER BY date, fixture_id
 LIMIT %(limit)s
