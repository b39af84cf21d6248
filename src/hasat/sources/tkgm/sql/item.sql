-- One parcel, with the time when it was last told.
SELECT jsonb_set(p.body, '{properties,fetchedAt}', to_jsonb(
           to_char(coalesce(t.told_at, p.changed_at) AT TIME ZONE 'UTC',
                   'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')))::text
  FROM core.parcels AS p
  LEFT JOIN tkgm.parcel_told AS t USING (key)
 WHERE p.key = %(key)s
