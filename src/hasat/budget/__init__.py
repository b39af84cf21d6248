"""Request budgets of upstreams: windows, lanes and the ledger, shared by any number of processes.

The state is in the schema `budget`.

    upstream = Upstream("rates", zone="UTC", day_limit=75_000, minute_limit=280, ...)
    budget = Budget(store, upstream)          # one per process and upstream; close() at the end
    grant = await budget.acquire(             # one round trip; waits without blocking
        lane="daily", cost=1, endpoint="/standings", job="daily_standings", run=17, timeout=60.0
    )                                         # OutOfQuotaError: `until` is when to try again
    ...send exactly one request...
    await grant.settle(                       # also when it failed: "transient", "broken", ...
        "ok", headers=Remaining(day=61_000, minute=250), latency=0.21, retry_after=None
    )
    await budget.slow_down(0.8)               # responses are slow: reduce the rate everywhere
    quota = await read_quota(store, "rates")           # every window and lane, and a forecast

A run that waits vacates its worker slot (`waiting`). A grant counts as spent once given, also if
the process dies, the request is cancelled or there is no response. All outcomes are recorded; only
`minute_limited` and `day_exhausted` change the budget. `endpoint` is a label, unless the upstream
declares windows per endpoint: then it has its own daily limit, spacing and cooldown.
"""

from hasat.budget.budget import Budget, Grant, Remaining, Waiting, keep_slot
from hasat.budget.quota import Forecast, Quota, forecast, read_quota, read_quotas, reopen
from hasat.budget.upstream import EndpointLimit, Lane, Upstream, declare

__all__ = [
    "Budget",
    "EndpointLimit",
    "Forecast",
    "Grant",
    "Lane",
    "Quota",
    "Remaining",
    "Upstream",
    "Waiting",
    "declare",
    "forecast",
    "keep_slot",
    "read_quota",
    "read_quotas",
    "reopen",
]
