-- Today's use of each lane, what it may still take now, and what it took in the last hour.
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
