-- Drop records that are not what was staged, in any part.
DELETE FROM {table} AS m
 WHERE NOT EXISTS (SELECT FROM {staged} AS s
                    WHERE s.key = m.key AND s.digest = m.digest AND s.body = m.body)
