-- What is known of points: told for the very point, or a parcel around it; the newest word first.
SELECT asked.question, found.feature, found.told_at, found.exact
  FROM unnest(%(questions)s::text[], %(lats)s::float8[], %(lons)s::float8[])
       AS asked (question, lat, lon)
 CROSS JOIN LATERAL (
    SELECT a.feature, a.told_at, true AS exact
      FROM tkgm.answer AS a
     WHERE a.question = asked.question
    UNION ALL
    SELECT a.feature, a.told_at, false
      FROM tkgm.answer AS a
     WHERE box(point(a.east, a.north), point(a.west, a.south))
           && box(point(asked.lon, asked.lat), point(asked.lon, asked.lat))
    UNION ALL
    SELECT p.body, t.told_at, false
      FROM core.parcels AS p
      JOIN tkgm.parcel_told AS t USING (key)
     WHERE box(point(p.east, p.north), point(p.west, p.south))
           && box(point(asked.lon, asked.lat), point(asked.lon, asked.lat))
 ) AS found
 WHERE found.told_at > clock_timestamp() - CASE
       WHEN found.feature IS NULL THEN %(not_found_age)s::interval
       ELSE %(parcel_age)s::interval
   END
 ORDER BY found.told_at DESC, found.exact DESC
