-- Every record's digest, its typed columns and the record as a line of JSON, in the order of keys.
-- JSON has no control characters, so with these separators CSV leaves the lines as they are.
COPY (
    SELECT encode(digest, 'hex'), {typed},
           '{{"key":' || to_json(key)::text || ',"body":' || body::text || '}}'
      FROM {table}
     ORDER BY key
) TO STDOUT (FORMAT csv, DELIMITER E'\x02', QUOTE E'\x01', ENCODING 'UTF8')
