-- Parcels in a box, or all of them, and when each was last told.
SELECT p.body, coalesce(t.told_at, p.changed_at)
  FROM core.parcels AS p
  LEFT JOIN tkgm.parcel_told AS t USING (key)
 WHERE %(west)s::double precision IS NULL
    OR box(point(p.east, p.north), point(p.west, p.south))
       && box(point(%(east)s, %(north)s), point(%(west)s, %(south)s))
 ORDER BY p.key
