-- Endpoints with a window of their own, and what they spent today.
SELECT e.name, e.day_limit, coalesce(d.spent, 0) AS spent, d.exhausted_at,
    CASE WHEN e.rest_until > %(now)s THEN e.rest_until END AS rest_until
FROM budget.endpoint e
LEFT JOIN budget.endpoint_day d
    ON d.upstream = e.upstream AND d.endpoint = e.name AND d.day = %(day)s
WHERE e.upstream = %(upstream)s
ORDER BY e.name;
