-- The key was refused: everything stops, but for one probe after each rest.
UPDATE fetching.upstream
SET rest_until = clock_timestamp() + make_interval(secs => %(rest)s * 2 ^ least(rest_level, 5)),
    rest_cause = %(cause)s,
    rest_level = rest_level + 1,
    prober = NULL,
    probe_until = NULL,
    refused_key = %(key)s
WHERE upstream = %(upstream)s
  AND (rest_until IS NULL OR rest_until <= clock_timestamp() OR refused_key IS DISTINCT FROM %(key)s)
