"""A run as pages show it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hasat.jobs import Run
from hasat.jobs.runs import rate_per_second
from hasat.messages import restored


@dataclass(frozen=True)
class RunLine:
    """One run in a list; `how` is its outcome, or its state while it has none."""

    id: int
    job: str
    trigger: str
    how: str
    queued_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    seconds: float | None
    share: float | None
    """How much of it is done, from 0 to 1, where that is known."""
    note: str
    seconds_to_go: float | None
    requests: int
    rows_changed: int
    told: str | None
    """Its message, or the first line of its error."""


def line_of(run: Run, now: datetime) -> RunLine:
    """A run at this moment."""
    seconds = None
    if run.started_at is not None:
        seconds = max(0.0, ((run.finished_at or now) - run.started_at).total_seconds())
    share = _share(run) if run.state == "running" else None
    pace = None if share is None or seconds is None else rate_per_second(share, seconds)
    error = (run.error or "").strip().splitlines()
    return RunLine(
        id=run.id,
        job=run.job,
        trigger=run.trigger,
        how=run.outcome or run.state,
        queued_at=run.queued_at,
        started_at=run.started_at,
        finished_at=run.finished_at,
        seconds=seconds,
        share=share,
        note=_note(run.progress or {}) if run.state == "running" else "",
        seconds_to_go=(1 - share) / pace if share and pace and share < 1 else None,
        requests=run.requests,
        rows_changed=run.rows_changed,
        told=run.message or (error[-1] if error else None),
    )


def _note(progress: Mapping[str, Any]) -> str:
    return restored(str(progress.get("note") or ""), progress.get("noteData")) or ""


def _share(run: Run) -> float | None:
    progress = run.progress or {}
    done, total = progress.get("done"), progress.get("total")
    if not isinstance(done, int | float) or not isinstance(total, int | float) or total <= 0:
        return None
    return min(1.0, max(0.0, done / total))
