-- How many parcels there are, where, and when they were told: each from the smallest table that knows.
SELECT coalesce((SELECT records FROM feed.head WHERE dataset = 'parcels'), 0),
       ground.*, told.*
  FROM (SELECT min(west), min(south), max(east), max(north) FROM core.parcels
         WHERE %(ground)s) AS ground,
       (SELECT min(told_at), max(told_at) FROM tkgm.parcel_told) AS told
