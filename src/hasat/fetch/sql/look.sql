-- Every declared endpoint of the upstream, with times as seconds from now.
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
    coalesce(extract(epoch FROM u.rest_until - clock.now), 0)::float8 AS upstream_rest_in,
    u.rest_cause AS upstream_cause,
    u.rest_level AS upstream_level,
    u.refused_key,
    extract(epoch FROM (clock.today + 1)::timestamp AT TIME ZONE %(zone)s - clock.now)::float8
        AS day_ends_in
FROM (
    SELECT clock_timestamp() AS now, (clock_timestamp() AT TIME ZONE %(zone)s)::date AS today
) AS clock
JOIN fetching.upstream AS u ON u.upstream = %(upstream)s
JOIN fetching.endpoint AS e ON e.upstream = u.upstream AND e.url = ANY (%(urls)s)
LEFT JOIN fetching.latency AS l ON l.upstream = e.upstream AND l.url = e.url AND l.kind = %(kind)s
