-- The last complete scan of an area, if any, and the time after which parcels are not asked about
-- again: so long ago, or since the same scan was complete last.
SELECT (SELECT b.id
          FROM tkgm.scan AS b
         WHERE b.area = %(area)s AND b.method ->> 'method' = 'coverage'
           AND b.finished_at IS NOT NULL
         ORDER BY b.finished_at DESC
         LIMIT 1),
       greatest(clock_timestamp() - %(age)s,
                (SELECT max(same.finished_at) FROM tkgm.scan AS same WHERE same.wish = s.wish))
  FROM tkgm.scan AS s
 WHERE s.id = %(scan)s
