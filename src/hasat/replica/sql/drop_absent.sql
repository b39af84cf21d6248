DELETE FROM {table} AS t WHERE NOT EXISTS (SELECT 1 FROM aside WHERE aside.key = t.key)
