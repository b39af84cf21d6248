"""Who may ask an upstream now: windows, lanes and the ledger, shared by any number of processes.

Reads and writes the schema `budget`; knows no source by name and sends nothing itself.

    upstream = Upstream("football", zone="UTC", day_limit=75_000, minute_limit=280, ...)
    budget = Budget(store, upstream)          # one a process and upstream; close() at the end
    grant = await budget.acquire(             # one round trip; waits for a slot, never blocks
        lane="daily", cost=1, endpoint="/standings", job="daily_standings", run=17, timeout=60.0
    )                                         # OutOfQuotaError: not now, and `until` says when
    ...send exactly one request...
    await grant.settle(                       # also when it failed: "transient", "broken", ...
        "ok", headers=Remaining(day=61_000, minute=250), latency=0.21, retry_after=None
    )
    await budget.slow_down(0.8)               # answers get slow: ask everybody to ask less
    quota = await read_quota(store, "football")           # every window and lane, and a forecast

A run that waits leaves its worker slot to others meanwhile (`waiting`). A grant is for now, and
spent once given: whoever dies, is cancelled or gets no answer has used it. Only two outcomes mean
something here, `minute_limited` and `day_exhausted`; all are written down. `endpoint` is a label,
unless the upstream declares windows per endpoint: then it has its own day, spacing and rest.
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
