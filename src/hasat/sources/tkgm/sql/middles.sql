-- Where the parcels of a box have their middle, and how large they are.
SELECT (p.west + p.east) / 2, (p.south + p.north) / 2,
       CASE jsonb_typeof(p.body #> '{{properties,alan}}')
           WHEN 'number' THEN (p.body #>> '{{properties,alan}}')::double precision END
  FROM core.parcels AS p
 WHERE {touches}
