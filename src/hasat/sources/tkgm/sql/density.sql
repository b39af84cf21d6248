-- How many parcels lie in each cell of a grid over a box; a parcel lies where its middle is.
SELECT cell_x, cell_y, count(*)
  FROM (SELECT least(floor(((p.west + p.east) / 2 - %(west)s) / %(width)s), %(across)s - 1)::int
                   AS cell_x,
               least(floor(((p.south + p.north) / 2 - %(south)s) / %(height)s), %(across)s - 1)::int
                   AS cell_y
          FROM core.parcels AS p
         WHERE {touches}) AS placed
 WHERE cell_x >= 0 AND cell_y >= 0
 GROUP BY cell_x, cell_y
 ORDER BY cell_x, cell_y
