-- Every endpoint that was ever declared, as people and Prometheus read it.
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
