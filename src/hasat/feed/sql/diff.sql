-- How what the run saw differs from the mirror; absence counts only inside the run's scope.
CREATE TEMP TABLE {changes} ON COMMIT DROP AS
SELECT %(head)s::bigint + row_number() OVER (ORDER BY key) AS seq,
       CASE WHEN digest_before IS NULL THEN 1 WHEN digest IS NULL THEN 3 ELSE 2 END::smallint AS kind,
       key, body, digest, before, digest_before
  FROM (
        SELECT s.key, s.body, s.digest, m.body AS before, m.digest AS digest_before
          FROM {staged} AS s
          LEFT JOIN {table} AS m ON m.key = s.key
        UNION ALL
        SELECT m.key, NULL, NULL, m.body, m.digest
          FROM {table} AS m
         WHERE ({scope})
           AND NOT EXISTS (SELECT FROM {staged} AS s WHERE s.key = m.key)
           AND m.key <> ALL (%(spared)s::text[])
       ) AS seen
 WHERE digest IS DISTINCT FROM digest_before
