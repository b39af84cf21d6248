-- Parcels whose own box reaches into the asked one and beyond it: only their outline can tell.
SELECT p.key, (p.body -> 'geometry')::text
  FROM core.parcels AS p
 WHERE {touches}
   AND NOT (box(point(%(west)s, %(south)s), point(%(east)s, %(north)s))
            @> box(point(p.east, p.north), point(p.west, p.south)))
