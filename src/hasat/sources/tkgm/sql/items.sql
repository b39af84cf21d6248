-- A page of parcels in the order of their keys, each with the time when it was last told.
-- Nothing is known of how many a box holds: left alone, the planner walks through all keys.
WITH matching AS {materialized} (
    SELECT p.key
      FROM core.parcels AS p
      LEFT JOIN tkgm.parcel_told AS t USING (key)
     WHERE {matches}
), page AS (
    SELECT key FROM matching WHERE key > %(after)s ORDER BY key LIMIT %(limit)s
)
SELECT p.key,
       jsonb_set(p.body, '{{properties,fetchedAt}}', to_jsonb(
           to_char(coalesce(t.told_at, p.changed_at) AT TIME ZONE 'UTC',
                   'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')))::text
  FROM page
  JOIN core.parcels AS p USING (key)
  LEFT JOIN tkgm.parcel_told AS t USING (key)
 ORDER BY p.key
