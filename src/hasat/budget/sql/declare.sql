-- Tell the rules of an upstream; its counts and pauses stay.
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
