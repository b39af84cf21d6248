-- Drop records that are not in what was staged.
DELETE FROM {table} AS m
 WHERE NOT EXISTS (SELECT FROM {staged} AS s WHERE s.key = m.key)
