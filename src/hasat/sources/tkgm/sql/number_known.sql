-- What is known of a parcel's number, however it was asked for; the newest word.
SELECT feature, told_at
  FROM (
    SELECT feature, told_at FROM tkgm.answer WHERE question = %(number)s OR key = %(number)s
    UNION ALL
    SELECT p.body, t.told_at
      FROM core.parcels AS p
      JOIN tkgm.parcel_told AS t USING (key)
     WHERE p.key = %(number)s
  ) AS found
 WHERE told_at > clock_timestamp() - CASE
       WHEN feature IS NULL THEN %(not_found_age)s::interval
       ELSE %(parcel_age)s::interval
   END
 ORDER BY told_at DESC
 LIMIT 1
