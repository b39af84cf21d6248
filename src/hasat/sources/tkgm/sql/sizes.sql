-- How large the registry says that parcels are; some are told without.
SELECT (body #>> '{properties,alan}')::double precision
  FROM core.parcels
 WHERE key = ANY (%(keys)s) AND jsonb_typeof(body #> '{properties,alan}') = 'number'
