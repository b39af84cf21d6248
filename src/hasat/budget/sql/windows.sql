-- The rules of the upstreams and where their windows stand now.
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
