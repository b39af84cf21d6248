-- What a run asked of upstreams; the span of time keeps the look into the ledger small.
SELECT upstream, lane, outcome, count(*) AS requests, sum(cost)::bigint AS spent,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY latency_ms) AS median_ms
  FROM budget.request
 WHERE run = %(run)s
   AND at BETWEEN %(since)s - interval '1 minute' AND %(until)s + interval '1 minute'
 GROUP BY upstream, lane, outcome
 ORDER BY spent DESC, outcome
