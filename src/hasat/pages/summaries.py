"""Summaries of runs and quotas that several pages show."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hasat.budget import Quota
from hasat.jobs import Run
from hasat.jobs.runs import rate_per_second
from hasat.messages import restored


@dataclass(frozen=True)
class RunSummary:
    """One run; `status` is its outcome, its state while it has none, or its hold's decision."""

    id: int
    job: str
    trigger: str
    status: str
    queued_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    seconds: float | None
    share: float | None
    """The completed share, from 0 to 1, if it is known."""
    note: str
    seconds_to_go: float | None
    requests: int
    rows_changed: int
    message: str | None
    """The message of the run, or the last line of its error."""


@dataclass(frozen=True)
class QuotaSummary:
    """The use of an upstream's daily quota, with its forecast."""

    upstream: str
    spent: int
    limit: int | None
    """The effective one: the smaller of the configured limit and what the upstream allows."""
    remaining: int | None
    endpoints: int
    paused_until: datetime | None
    exhausted_at: datetime | None
    forecast: str | None
    """spent, runs_out, unused or on_target."""
    forecast_at: datetime | None
    unused: int
    target: float | None
    """The share of the limit of which `unused` is the rest; None if it is the whole limit."""


def summarize_run(run: Run, now: datetime) -> RunSummary:
    """Summarize a run as of now."""
    seconds = None
    if run.started_at is not None:
        seconds = max(0.0, ((run.finished_at or now) - run.started_at).total_seconds())
    share = _completed_share(run) if run.state == "running" else None
    rate = None if share is None or seconds is None else rate_per_second(share, seconds)
    error = (run.error or "").strip().splitlines()
    return RunSummary(
        id=run.id,
        job=run.job,
        trigger=run.trigger,
        # A decided hold needs no attention.
        status=run.hold if run.hold and run.hold != "waiting" else run.outcome or run.state,
        queued_at=run.queued_at,
        started_at=run.started_at,
        finished_at=run.finished_at,
        seconds=seconds,
        share=share,
        note=_progress_note(run.progress or {}) if run.state == "running" else "",
        seconds_to_go=(1 - share) / rate if share and rate and share < 1 else None,
        requests=run.requests,
        rows_changed=run.rows_changed,
        message=run.message or (error[-1] if error else None),
    )


def _progress_note(progress: Mapping[str, Any]) -> str:
    return restored(str(progress.get("note") or ""), progress.get("noteData")) or ""


def _completed_share(run: Run) -> float | None:
    progress = run.progress or {}
    done, total = progress.get("done"), progress.get("total")
    if not isinstance(done, int | float) or not isinstance(total, int | float) or total <= 0:
        return None
    return min(1.0, max(0.0, done / total))


def summarize_quota(quota: Quota) -> QuotaSummary:
    """Summarize a quota; where only endpoints have limits, these are added up."""
    w = quota.windows
    spent, limit, remaining = w.spent, w.effective_limit, w.remaining
    if limit is None and quota.endpoints and all(e.day_limit is not None for e in quota.endpoints):
        limit = sum(e.day_limit or 0 for e in quota.endpoints)
        spent = sum(e.spent for e in quota.endpoints)
        remaining = sum(
            0 if e.exhausted_at else max(0, (e.day_limit or 0) - e.spent) for e in quota.endpoints
        )
    if limit is not None and w.plan is not None:
        limit = min(limit, w.plan)
    forecast = quota.forecast
    return QuotaSummary(
        upstream=w.upstream,
        spent=spent,
        limit=limit,
        remaining=remaining,
        endpoints=len(quota.endpoints),
        paused_until=w.paused_until,
        exhausted_at=w.exhausted_at,
        forecast=forecast.kind if forecast else None,
        forecast_at=forecast.at if forecast else None,
        unused=forecast.unused if forecast else 0,
        target=forecast.target if forecast else None,
    )
