-- How many parcels there are, where, and when they were told.
SELECT count(*), min(p.west), min(p.south), max(p.east), max(p.north),
       min(coalesce(t.told_at, p.changed_at)), max(coalesce(t.told_at, p.changed_at))
  FROM core.parcels AS p
  LEFT JOIN tkgm.parcel_told AS t USING (key)
