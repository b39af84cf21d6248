DELETE FROM {table} WHERE key IN (SELECT key FROM aside WHERE body IS NULL)
