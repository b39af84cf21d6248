-- After the rest of a whole upstream, one process at a time may ask whether it is over.
UPDATE fetching.upstream
SET prober = %(holder)s, probe_until = clock_timestamp() + make_interval(secs => %(lease)s)
WHERE upstream = %(upstream)s
  AND rest_level > 0
  AND (rest_until IS NULL OR rest_until <= clock_timestamp())
  AND (probe_until IS NULL OR probe_until <= clock_timestamp())
