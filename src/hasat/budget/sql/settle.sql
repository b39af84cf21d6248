-- What became of a request; corrects the windows where the answer says so.
SELECT budget.settle(
    %(request)s, %(outcome)s, %(latency_ms)s, %(retry_after)s,
    %(day)s, %(day_limit)s, %(minute)s, %(minute_limit)s
);
