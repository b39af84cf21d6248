-- An answer came: the upstream is there, and takes the key.
UPDATE fetching.upstream
SET rest_until = NULL, rest_cause = NULL, rest_level = 0, prober = NULL, probe_until = NULL,
    refused_key = NULL
WHERE upstream = %(upstream)s AND rest_level > 0
