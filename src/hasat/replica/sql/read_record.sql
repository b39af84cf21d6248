SELECT CAST(body AS text) FROM {table} WHERE key = %(key)s
