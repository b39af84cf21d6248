-- One round trip, one row lock: granted, wait or refused.
SELECT verdict, reason, wait, until, request, new_day
FROM budget.acquire(
    %(upstream)s, %(lane)s, %(cost)s, %(endpoint)s, %(job)s, %(run)s, %(waited)s
);
