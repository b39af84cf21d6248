-- name: acquire
-- Decide about one request under one row lock: granted, wait or refused.
SELECT verdict, reason, wait, until, request, new_day
FROM budget.acquire(
    %(upstream)s, %(lane)s, %(cost)s, %(endpoint)s, %(job)s, %(run)s, %(waited)s
);

-- name: declare
-- Write the limits of an upstream; its counts and pauses stay.
WITH declared AS (
    INSERT INTO budget.upstream AS known (
        name, zone, day_limit, target, minute_limit, minute_hard, opening_seconds, endpoint_limit,
        endpoint_seconds, has_endpoints, shadow, lanes, keeps, keep_shares, needs, paced,
        early, shares
    ) VALUES (
        %(name)s, %(zone)s, %(day_limit)s, %(target)s, %(minute_limit)s, %(minute_hard)s,
        %(opening_seconds)s, %(endpoint_limit)s, %(endpoint_seconds)s, %(has_endpoints)s,
        %(shadow)s, %(lanes)s::text[], %(keeps)s::bigint[], %(keep_shares)s::float8[],
        %(needs)s::bigint[], %(paced)s::boolean[], %(early)s::boolean[], %(shares)s::float8[]
    )
    ON CONFLICT (name) DO UPDATE SET
        zone = excluded.zone, day_limit = excluded.day_limit, target = excluded.target,
        minute_limit = excluded.minute_limit, minute_hard = excluded.minute_hard,
        opening_seconds = excluded.opening_seconds, endpoint_limit = excluded.endpoint_limit,
        endpoint_seconds = excluded.endpoint_seconds, has_endpoints = excluded.has_endpoints,
        shadow = excluded.shadow, lanes = excluded.lanes, keeps = excluded.keeps,
        keep_shares = excluded.keep_shares, needs = excluded.needs, paced = excluded.paced, early = excluded.early,
        shares = excluded.shares
    WHERE NOT %(if_missing)s
    RETURNING name
)
INSERT INTO budget.endpoint (upstream, name, day_limit, seconds)
SELECT declared.name, endpoint.name, endpoint.day_limit, endpoint.seconds
FROM declared, unnest(
    %(endpoints)s::text[], %(endpoint_days)s::bigint[], %(endpoint_spacings)s::float8[]
) AS endpoint (name, day_limit, seconds)
ON CONFLICT (upstream, name) DO UPDATE SET
    day_limit = excluded.day_limit, seconds = excluded.seconds;

-- name: endpoints
-- Return the endpoints with their own windows, and their use today.
SELECT e.name, e.day_limit, coalesce(d.spent, 0) AS spent, d.exhausted_at,
    CASE WHEN e.rest_until > %(now)s THEN e.rest_until END AS rest_until
FROM budget.endpoint e
LEFT JOIN budget.endpoint_day d
    ON d.upstream = e.upstream AND d.endpoint = e.name AND d.day = %(day)s
WHERE e.upstream = %(upstream)s
ORDER BY e.name;

-- name: grant_recheck
-- Grant the only request of a re-check.
SELECT budget.grant_recheck(%(upstream)s, %(lane)s, %(cost)s, %(endpoint)s, %(job)s, %(run)s);

-- name: lanes
-- Return the use of each lane today and in the last hour, and what it may still send now.
SELECT
    lane.name, lane.paced, least(lane.keep, kept.units) AS keep,
    coalesce(used.units, 0)::bigint AS spent, coalesce(used.grants, 0)::bigint AS grants,
    coalesce(used.waits, 0)::bigint AS waits,
    coalesce(used.waited_seconds, 0)::float8 AS waited_seconds,
    coalesce(used.refusals, 0)::bigint AS refusals,
    coalesce(hour.units, 0)::bigint AS last_hour,
    promise.units AS kept_for_others,
    CASE WHEN u.day_limit IS NOT NULL THEN greatest(
        0, budget.remaining(
            u.day_limit, d.plan, coalesce(d.spent, 0), coalesce(d.foreign_use, 0), d.exhausted_at
        ) - kept.units - promise.units
    ) END AS may_spend
FROM budget.upstream u
CROSS JOIN LATERAL unnest(u.lanes, u.paced, u.keeps, u.keep_shares)
    WITH ORDINALITY AS lane (name, paced, keep, share, no)
LEFT JOIN budget.day d ON d.upstream = u.name AND d.day = %(day)s
CROSS JOIN LATERAL (
    SELECT budget.kept(lane.keep, lane.share, lane.paced, u.day_limit, d.plan, u.target) AS units
) AS kept
CROSS JOIN LATERAL (
    SELECT coalesce(budget.promised_above(
        u.promised, lane.no::integer,
        greatest(0, extract(epoch FROM %(now)s - %(starts_at)s)::float8 / 3600)
    ), 0) AS units
) AS promise
LEFT JOIN LATERAL (
    SELECT sum(units) AS units, sum(grants) AS grants, sum(waits) AS waits,
        sum(s.waited_seconds) AS waited_seconds, sum(refusals) AS refusals
    FROM budget.usage s
    WHERE s.upstream = u.name AND s.day = %(day)s AND s.lane = lane.name
) AS used ON true
LEFT JOIN LATERAL (
    SELECT sum(cost) AS units FROM budget.request r
    WHERE r.upstream = u.name AND r.lane = lane.name AND r.day = %(day)s
      AND r.at > %(now)s - interval '1 hour'
) AS hour ON true
WHERE u.name = %(upstream)s
ORDER BY lane.no;

-- name: learn_needs
-- Compute what each lane must leave for higher lanes, after a declaration.
UPDATE budget.upstream u
SET promised = budget.promised(u, (budget.now() AT TIME ZONE u.zone)::date)
WHERE u.name = %(name)s;

-- name: outcomes
-- Count today's requests by outcome; NULL means no response, or none yet.
SELECT outcome, count(*) AS requests, sum(cost)::bigint AS spent,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY latency_ms) AS median_ms,
    percentile_cont(0.95) WITHIN GROUP (ORDER BY latency_ms) AS p95_ms
FROM budget.request
WHERE upstream = %(upstream)s AND day = %(day)s AND at >= %(starts_at)s
GROUP BY outcome
ORDER BY requests DESC, outcome;

-- name: settle
-- Record the outcome of a request, and correct the windows by its headers.
SELECT budget.settle(
    %(request)s, %(outcome)s, %(latency_ms)s, %(retry_after)s,
    %(day)s, %(day_limit)s, %(minute)s, %(minute_limit)s
);

-- name: spenders
-- Return the use of each job today, largest first.
SELECT job, lane, sum(units)::bigint AS spent, sum(grants)::bigint AS grants,
    sum(refusals)::bigint AS refusals
FROM budget.usage
WHERE upstream = %(upstream)s AND day = %(day)s
GROUP BY job, lane
ORDER BY spent DESC, job, lane;

-- name: delete_expired
-- Delete expired requests and days; the last eight days are needed to learn the lanes' needs.
WITH old_requests AS (
    DELETE FROM budget.request WHERE at < budget.now() - make_interval(days => %(request_days)s)
), old_usage AS (
    DELETE FROM budget.usage WHERE day < budget.now()::date - %(usage_days)s::integer
), old_endpoint_days AS (
    DELETE FROM budget.endpoint_day WHERE day < budget.now()::date - %(usage_days)s::integer
)
DELETE FROM budget.day WHERE day < budget.now()::date - %(usage_days)s::integer;

-- name: windows
-- Return the limits of the upstreams and the current state of their windows.
SELECT
    u.name AS upstream, u.zone, t.now, u.shadow, u.opening_seconds,
    u.day_limit, u.target, d.plan, coalesce(d.spent, 0) AS spent,
    coalesce(d.written_off, 0) AS written_off, coalesce(d.foreign_use, 0) AS foreign_use,
    d.exhausted_at, budget.recheck_at(d) AS recheck_at, t.day, t.starts_at, t.ends_at,
    budget.remaining(
        u.day_limit, d.plan, coalesce(d.spent, 0), coalesce(d.foreign_use, 0), d.exhausted_at
    ) AS remaining,
    u.minute_limit, u.minute_hard, d.minute_plan,
    least(u.minute_limit, d.minute_plan * u.minute_limit::float8 / u.minute_hard)
        * coalesce(budget.pace(d.slow, d.slowed_at, t.now), 1) AS minute_rate,
    (
        SELECT count(*) FROM budget.request r
        WHERE r.upstream = u.name AND r.at > t.now - interval '1 minute'
    ) AS last_minute,
    CASE WHEN d.paused_until > t.now THEN d.paused_until END AS paused_until
FROM budget.upstream u
CROSS JOIN LATERAL (SELECT budget.now() AS now) AS clock
CROSS JOIN LATERAL (
    SELECT
        clock.now,
        (clock.now AT TIME ZONE u.zone)::date AS day,
        (clock.now AT TIME ZONE u.zone)::date::timestamp AT TIME ZONE u.zone AS starts_at,
        ((clock.now AT TIME ZONE u.zone)::date + 1)::timestamp AT TIME ZONE u.zone AS ends_at
) AS t
LEFT JOIN budget.day d ON d.upstream = u.name AND d.day = t.day
WHERE %(upstream)s::text IS NULL OR u.name = %(upstream)s
ORDER BY u.name;
