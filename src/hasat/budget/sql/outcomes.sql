-- How today's requests ended; those without an outcome had no answer, or have none yet.
SELECT outcome, count(*) AS requests, sum(cost)::bigint AS spent,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY latency_ms) AS median_ms,
    percentile_cont(0.95) WITHIN GROUP (ORDER BY latency_ms) AS p95_ms
FROM budget.request
WHERE upstream = %(upstream)s AND day = %(day)s AND at >= %(starts_at)s
GROUP BY outcome
ORDER BY requests DESC, outcome;
