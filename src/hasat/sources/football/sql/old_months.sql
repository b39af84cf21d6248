-- Partitions of raw.api_responses whose whole month is older than that, oldest first.
SELECT to_date(right(child.relname, 7), 'YYYY_MM')
  FROM pg_inherits AS i
  JOIN pg_class AS child ON child.oid = i.inhrelid
 WHERE i.inhparent = 'raw.api_responses'::regclass
   AND to_date(right(child.relname, 7), 'YYYY_MM') + interval '1 month'
       <= (clock_timestamp() AT TIME ZONE 'UTC') - make_interval(days => %(days)s)
 ORDER BY 1
