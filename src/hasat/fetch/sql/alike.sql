-- If the last word of every endpoint that has not spent its day is the same failure, the upstream
-- is to blame: it rests, and what the endpoints were charged with for it is forgiven.
WITH now AS (
    SELECT clock_timestamp() AS now
), in_service AS (
    SELECT e.url, e.last_outcome = %(outcome)s
        AND e.last_at > now.now - make_interval(secs => %(window)s) AS alike
    FROM fetching.endpoint AS e, now
    WHERE e.upstream = %(upstream)s AND e.url = ANY (%(urls)s)
      AND (e.rest_until > now.now AND e.rest_cause = %(day_over)s) IS NOT TRUE
), rested AS (
    UPDATE fetching.upstream AS u
    SET rest_until = now.now + make_interval(
            secs => greatest(%(retry_after)s, %(rest)s * 2 ^ least(u.rest_level, 6))
        ),
        rest_cause = %(cause)s,
        rest_level = u.rest_level + 1,
        prober = NULL,
        probe_until = NULL
    FROM now
    WHERE u.upstream = %(upstream)s
      AND (u.rest_until IS NULL OR u.rest_until <= now.now)
      AND (u.prober = %(holder)s
           OR (SELECT count(*) > 1 AND bool_and(coalesce(alike, false)) FROM in_service))
    RETURNING u.upstream
), resting AS (
    SELECT upstream FROM rested
    UNION
    -- Since before: this answer was under way then.
    SELECT u.upstream FROM fetching.upstream AS u, now
    WHERE u.upstream = %(upstream)s AND u.rest_until > now.now AND u.refused_key IS NULL
)
UPDATE fetching.endpoint AS e
SET rest_until = NULL, rest_cause = NULL, rest_level = 0, streak = 0
FROM resting, in_service
WHERE e.upstream = resting.upstream AND e.url = in_service.url AND in_service.alike
