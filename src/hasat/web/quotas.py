"""What is left of a budget, in one line."""

from dataclasses import dataclass
from datetime import datetime

from hasat.budget import Quota


@dataclass(frozen=True)
class QuotaLine:
    """An upstream's day: what was spent of what, and what the day will come to."""

    upstream: str
    spent: int
    limit: int | None
    remaining: int | None
    endpoints: int
    paused_until: datetime | None
    exhausted_at: datetime | None
    forecast: str | None
    """spent, runs_out, unused or on_target."""
    forecast_at: datetime | None
    unused: int
    target: float | None
    """The share of the limit that `unused` stays short of; without one, all that may be spent."""


def quota_line(quota: Quota) -> QuotaLine:
    """The line; where only endpoints have windows, theirs are added up."""
    w = quota.windows
    spent, limit, remaining = w.spent, w.day_limit, w.remaining
    if limit is None and quota.endpoints and all(e.day_limit is not None for e in quota.endpoints):
        limit = sum(e.day_limit or 0 for e in quota.endpoints)
        spent = sum(e.spent for e in quota.endpoints)
        remaining = sum(
            0 if e.exhausted_at else max(0, (e.day_limit or 0) - e.spent) for e in quota.endpoints
        )
    told = quota.forecast
    return QuotaLine(
        upstream=w.upstream,
        spent=spent,
        limit=limit,
        remaining=remaining,
        endpoints=len(quota.endpoints),
        paused_until=w.paused_until,
        exhausted_at=w.exhausted_at,
        forecast=told.kind if told else None,
        forecast_at=told.at if told else None,
        unused=told.unused if told else 0,
        target=told.target if told else None,
    )
