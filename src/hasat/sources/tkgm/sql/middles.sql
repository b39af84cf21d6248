-- Where the parcels of a box have their middle.
SELECT p.key, (p.west + p.east) / 2, (p.south + p.north) / 2
  FROM core.parcels AS p
 WHERE {touches}
