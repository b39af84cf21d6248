-- A page of parcels in the order of their keys, each with the time when it was last told.
SELECT p.key,
       jsonb_set(p.body, '{{properties,fetchedAt}}', to_jsonb(
           to_char(found.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')))::text
  FROM (SELECT p.key, coalesce(t.told_at, p.changed_at) AS at
          FROM core.parcels AS p
          LEFT JOIN tkgm.parcel_told AS t USING (key)
         WHERE p.key > %(after)s AND {matches}
         ORDER BY p.key
         LIMIT %(limit)s) AS found
  JOIN core.parcels AS p USING (key)
 ORDER BY p.key
