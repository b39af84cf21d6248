-- The columns of a mirror's table beyond those of every record, in their order.
SELECT a.attname AS name, format_type(a.atttypid, NULL) AS type
  FROM pg_attribute AS a
 WHERE a.attrelid = %(table)s::regclass AND a.attnum > 0 AND NOT a.attisdropped
   AND a.attname NOT IN (SELECT r.attname
                           FROM pg_attribute AS r
                          WHERE r.attrelid = 'feed.record'::regclass AND r.attnum > 0)
 ORDER BY a.attnum
