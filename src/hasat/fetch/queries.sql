-- name: rest_upstream
-- Start a cooldown of the upstream if every endpoint with quota last failed in the same way, and
-- lift the cooldowns of these endpoints.
WITH now AS (
    SELECT clock_timestamp() AS now
), in_service AS (
    SELECT e.url, e.last_outcome = %(outcome)s
        AND e.last_at > now.now - make_interval(secs => %(window)s) AS is_same
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
        rest_urls = %(urls)s,
        prober = NULL,
        probe_until = NULL
    FROM now
    WHERE u.upstream = %(upstream)s
      AND (u.rest_until IS NULL OR u.rest_until <= now.now OR NOT %(urls)s::text[] <@ u.rest_urls)
      AND (u.prober = %(holder)s
           OR (SELECT count(*) > 1 AND bool_and(coalesce(is_same, false)) FROM in_service))
    RETURNING u.upstream
), resting AS (
    SELECT upstream FROM rested
    UNION
    -- The cooldown began while this request was in flight.
    SELECT u.upstream FROM fetching.upstream AS u, now
    WHERE u.upstream = %(upstream)s AND u.rest_until > now.now AND u.refused_key IS NULL
)
UPDATE fetching.endpoint AS e
SET rest_until = NULL, rest_cause = NULL, rest_level = 0, streak = 0
FROM resting, in_service
WHERE e.upstream = resting.upstream AND e.url = in_service.url AND in_service.is_same

-- name: claim_endpoint
-- Claim an endpoint for one request if it is free, not in cooldown, within its quota, and the upstream
-- is open. The commit does not wait for the disk: the ledger has what a server crash may lose.
-- A learned limit may be exceeded slightly, so that growth is noticed.
UPDATE fetching.endpoint AS e
SET holder = %(holder)s,
    held_until = clock.now + make_interval(secs => %(lease)s),
    next_at = clock.now + make_interval(secs => %(interval)s),
    quota_day = clock.today,
    points = CASE WHEN e.quota_day = clock.today THEN e.points ELSE 0 END + %(points)s
FROM
    (
        SELECT clock_timestamp() AS now, (clock_timestamp() AT TIME ZONE %(zone)s)::date AS today,
            set_config('synchronous_commit', 'off', true) AS asynchronous
    ) AS clock,
    fetching.upstream AS u
    LEFT JOIN fetching.latency AS l
        ON l.upstream = u.upstream AND l.url = %(url)s AND l.kind = %(kind)s
WHERE e.upstream = %(upstream)s AND e.url = %(url)s AND u.upstream = e.upstream
  AND (e.held_until IS NULL OR e.held_until <= clock.now)
  AND (e.next_at IS NULL OR e.next_at <= clock.now)
  AND (e.rest_until IS NULL OR e.rest_until <= clock.now)
  AND CASE WHEN e.quota_day = clock.today THEN e.points ELSE 0 END + %(points)s
      <= least(%(daily)s, e.learned + greatest(e.learned / 10, 20))
  AND (u.rest_level = 0 OR u.prober = %(holder)s OR u.refused_key <> %(key)s
       OR NOT %(urls)s::text[] <@ u.rest_urls)
RETURNING
    e.points, e.learned, e.streak, e.rest_level,
    coalesce(l.mean, 0) AS mean,
    coalesce(l.weight, 0) AS weight,
    coalesce(extract(epoch FROM clock.now - l.measured_at), 0)::float8 AS measured_ago,
    l.sketch

-- name: declare_endpoints
-- Add the missing rows of an upstream and its endpoints.
WITH known AS (
    INSERT INTO fetching.upstream (upstream) VALUES (%(upstream)s) ON CONFLICT DO NOTHING
)
INSERT INTO fetching.endpoint (upstream, url)
SELECT %(upstream)s, url FROM unnest(%(urls)s::text[]) AS url
ON CONFLICT DO NOTHING

-- name: report_endpoints
-- Return every endpoint that was ever declared, for reports and metrics.
SELECT
    e.upstream, e.url,
    e.successes, e.failures, e.hedges, e.hedges_won, e.cancelled,
    CASE WHEN e.quota_day = (clock_timestamp() AT TIME ZONE %(zone)s)::date THEN e.points ELSE 0
    END AS points,
    e.learned,
    CASE WHEN e.rest_until > clock_timestamp() THEN e.rest_until END AS rest_until,
    CASE WHEN e.rest_until > clock_timestamp() THEN e.rest_cause END AS rest_cause,
    CASE WHEN u.rest_until > clock_timestamp() THEN u.rest_until END AS upstream_rest_until,
    CASE WHEN u.rest_until > clock_timestamp() THEN u.rest_cause END AS upstream_rest_cause,
    e.last_outcome, e.last_at,
    coalesce(l.latencies, '{}') AS kinds,
    coalesce(l.sketches, '{}') AS sketches
FROM fetching.endpoint AS e
JOIN fetching.upstream AS u USING (upstream)
LEFT JOIN LATERAL (
    SELECT array_agg(kind ORDER BY kind) AS latencies, array_agg(sketch ORDER BY kind) AS sketches
    FROM fetching.latency WHERE upstream = e.upstream AND url = e.url
) AS l ON true
WHERE e.upstream = %(upstream)s
ORDER BY e.url

-- name: read_endpoints
-- Return every declared endpoint of the upstream, with times as seconds from now. A rest of the
-- upstream holds only if no other endpoint is declared than when it began.
SELECT
    e.url,
    e.holder IS NOT NULL AND e.held_until > clock.now AS held,
    coalesce(extract(epoch FROM e.next_at - clock.now), 0)::float8 AS next_in,
    coalesce(extract(epoch FROM e.rest_until - clock.now), 0)::float8 AS rest_in,
    e.rest_cause,
    CASE WHEN e.quota_day = clock.today THEN e.points ELSE 0 END AS points,
    e.learned,
    coalesce(l.mean, 0) AS mean,
    coalesce(l.weight, 0) AS weight,
    coalesce(extract(epoch FROM clock.now - l.measured_at), 0)::float8 AS measured_ago,
    l.sketch,
    CASE WHEN holds THEN coalesce(extract(epoch FROM u.rest_until - clock.now), 0) ELSE 0
    END::float8 AS upstream_rest_in,
    u.rest_cause AS upstream_cause,
    CASE WHEN holds THEN u.rest_level ELSE 0 END AS upstream_level,
    u.refused_key,
    extract(epoch FROM (clock.today + 1)::timestamp AT TIME ZONE %(zone)s - clock.now)::float8
        AS day_ends_in
FROM (
    SELECT clock_timestamp() AS now, (clock_timestamp() AT TIME ZONE %(zone)s)::date AS today
) AS clock
JOIN fetching.upstream AS u ON u.upstream = %(upstream)s
CROSS JOIN LATERAL (SELECT coalesce(%(urls)s::text[] <@ u.rest_urls, true) AS holds) AS rest
JOIN fetching.endpoint AS e ON e.upstream = u.upstream AND e.url = ANY (%(urls)s)
LEFT JOIN fetching.latency AS l ON l.upstream = e.upstream AND l.url = e.url AND l.kind = %(kind)s

-- name: read_endpoint_use
-- Return the requests and hedges of the declared endpoints since they were first used.
SELECT
    coalesce(sum(successes + failures + cancelled), 0)::bigint AS requests,
    coalesce(sum(hedges), 0)::bigint AS hedges
FROM fetching.endpoint
WHERE upstream = %(upstream)s AND url = ANY (%(urls)s)

-- name: open_upstream
-- End the cooldown of an upstream after a response.
UPDATE fetching.upstream
SET rest_until = NULL, rest_cause = NULL, rest_level = 0, rest_urls = NULL, prober = NULL,
    probe_until = NULL, refused_key = NULL
WHERE upstream = %(upstream)s AND rest_level > 0

-- name: probe_upstream
-- Let one process at a time probe the upstream after its cooldown.
UPDATE fetching.upstream
SET prober = %(holder)s, probe_until = clock_timestamp() + make_interval(secs => %(lease)s)
WHERE upstream = %(upstream)s
  AND rest_level > 0
  AND (rest_until IS NULL OR rest_until <= clock_timestamp())
  AND (probe_until IS NULL OR probe_until <= clock_timestamp())

-- name: refuse_key
-- Stop all requests with a rejected key, except one probe after each cooldown.
UPDATE fetching.upstream
SET rest_until = clock_timestamp() + make_interval(secs => %(rest)s * 2 ^ least(rest_level, 5)),
    rest_cause = %(cause)s,
    rest_level = rest_level + 1,
    rest_urls = %(urls)s,
    prober = NULL,
    probe_until = NULL,
    refused_key = %(key)s
WHERE upstream = %(upstream)s
  AND (rest_until IS NULL OR rest_until <= clock_timestamp() OR refused_key IS DISTINCT FROM %(key)s
       OR NOT %(urls)s::text[] <@ rest_urls)

-- name: reset_rests
-- End the cooldowns of an upstream and its endpoints; what was spent and learned stays.
WITH opened AS (
    UPDATE fetching.upstream
    SET rest_until = NULL, rest_cause = NULL, rest_level = 0, rest_urls = NULL, prober = NULL,
        probe_until = NULL, refused_key = NULL
    WHERE upstream = %(upstream)s
)
UPDATE fetching.endpoint
SET rest_until = NULL, rest_cause = NULL, rest_level = 0, streak = 0
WHERE upstream = %(upstream)s

-- name: release_endpoint
-- Release an endpoint whose request was not sent.
UPDATE fetching.endpoint
SET holder = NULL, held_until = NULL, next_at = NULL, points = greatest(points - %(points)s, 0)
WHERE upstream = %(upstream)s AND holder = %(holder)s

-- name: settle_claim
-- Write the result of a request and release the endpoint, unless another process holds it now.
-- In the first minutes of a day, a used-up daily quota most likely refers to the previous day.
WITH time AS (
    SELECT clock_timestamp() AS now, (clock_timestamp() AT TIME ZONE %(zone)s)::date AS today,
        set_config('synchronous_commit', 'off', true) AS asynchronous
), clock AS (
    SELECT now, today,
        today::timestamp AT TIME ZONE %(zone)s + interval '10 minutes' AS opens
    FROM time
), mine AS (
    UPDATE fetching.endpoint AS e
    SET holder = NULL,
        held_until = NULL,
        rest_until = CASE
            WHEN %(until_day_ends)s AND clock.now < clock.opens THEN clock.opens
            WHEN %(until_day_ends)s THEN (clock.today + 1)::timestamp AT TIME ZONE %(zone)s
            WHEN %(rest)s::float8 IS NOT NULL THEN clock.now + make_interval(secs => %(rest)s)
            WHEN %(cancelled)s THEN e.rest_until
        END,
        rest_cause = CASE WHEN %(cancelled)s THEN e.rest_cause ELSE %(cause)s END,
        rest_level = %(rest_level)s,
        streak = %(streak)s,
        learned = CASE
            WHEN %(until_day_ends)s AND clock.now < clock.opens THEN e.learned
            ELSE %(learned)s
        END,
        last_outcome = CASE WHEN %(cancelled)s THEN e.last_outcome ELSE %(outcome)s END,
        last_at = CASE WHEN %(cancelled)s THEN e.last_at ELSE clock.now END,
        successes = e.successes + %(succeeded)s::int,
        failures = e.failures + %(failed)s::int,
        hedges = e.hedges + %(hedge)s::int,
        hedges_won = e.hedges_won + %(hedge_won)s::int,
        cancelled = e.cancelled + %(cancelled)s::int
    FROM clock
    WHERE e.upstream = %(upstream)s AND e.holder = %(holder)s
    RETURNING e.upstream, e.url, clock.now
)
INSERT INTO fetching.latency (upstream, url, kind, mean, weight, measured_at, sketch)
SELECT upstream, url, %(kind)s, %(mean)s, %(weight)s, now, %(sketch)s FROM mine
ON CONFLICT (upstream, url, kind) DO UPDATE
SET mean = excluded.mean, weight = excluded.weight, measured_at = excluded.measured_at,
    sketch = excluded.sketch
