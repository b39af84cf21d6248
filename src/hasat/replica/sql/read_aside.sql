-- What the records kept aside looked like before.
SELECT t.key, CAST(t.body AS text) FROM {table} AS t JOIN aside ON aside.key = t.key
