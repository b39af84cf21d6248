-- name: list_largest_tables
-- List the largest tables; partitions are added up.
SELECT format('%I.%I', n.nspname, root.relname) AS "table",
       sum(greatest(part.reltuples, 0))::bigint AS rows_estimated,
       sum(pg_total_relation_size(part.oid))::bigint AS bytes
  FROM pg_class AS part
  JOIN pg_class AS root ON root.oid = coalesce(pg_partition_root(part.oid), part.oid)
  JOIN pg_namespace AS n ON n.oid = root.relnamespace
 WHERE part.relkind IN ('r', 'm') AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
 GROUP BY n.nspname, root.relname
 ORDER BY bytes DESC, 1
 LIMIT 40
