-- The one request of a re-check.
SELECT budget.grant_recheck(%(upstream)s, %(lane)s, %(cost)s, %(endpoint)s, %(job)s, %(run)s);
