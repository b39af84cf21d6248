SELECT key, CAST(body AS text) FROM {table}
