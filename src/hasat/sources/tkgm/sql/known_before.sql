-- Parcels in a box, when each was last told, and the point that told it in the scan before.
SELECT p.key, p.body, coalesce(t.told_at, p.changed_at) AS told_at, o.question
  FROM core.parcels AS p
  LEFT JOIN tkgm.parcel_told AS t USING (key)
  LEFT JOIN (SELECT DISTINCT ON (key) key, question
               FROM tkgm.told
              WHERE scan = %(before)s AND key IS NOT NULL AND question LIKE '%%,%%'
              ORDER BY key, told_at, question) AS o USING (key)
 WHERE box(point(p.east, p.north), point(p.west, p.south))
       && box(point(%(east)s, %(north)s), point(%(west)s, %(south)s))
 ORDER BY told_at, p.key
