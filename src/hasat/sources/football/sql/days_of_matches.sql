-- The days after one and up to another, by UTC, on which matches of these leagues are planned.
SELECT DISTINCT (date AT TIME ZONE 'UTC')::date AS day
  FROM core.fixtures
 WHERE league_id = ANY (%(leagues)s)
   AND date >= (%(after)s::date + 1)::timestamp AT TIME ZONE 'UTC'
   AND date < (%(until)s::date + 1)::timestamp AT TIME ZONE 'UTC'
 ORDER BY day
