"""Runs and jobs: the schedule, past runs, the details of one run, and starting runs."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from hasat.errors import NotFoundError, UsageError
from hasat.feed.holds import Hold, find_hold, list_holds, reject_hold, waiting_hold
from hasat.jobs import Run
from hasat.jobs.approvals import queue_approval
from hasat.jobs.catalogue import APPROVE
from hasat.jobs.platform_jobs import UNDO_JOB
from hasat.jobs.queue import queue_run, retry_run, stop_run
from hasat.jobs.run_log import StoredLine, list_lines
from hasat.jobs.runs import ScheduledJob, count_live_workers, get_run, list_runs, schedule_overview
from hasat.messages import msg
from hasat.pages import Action, Page, PageContext, PageRequest
from hasat.pages.summaries import RunSummary, summarize_run
from hasat.settings.reference import plain
from hasat.store import Store
from hasat.store.queries import load_query
from hasat.web.charts import min_gap

HOURS = (1, 6, 24, 72, 168)
STATES: Mapping[str, Sequence[str]] = {
    "failed": ("failed", "set_aside", "interrupted"),
    "held": ("held",),
    "running": ("running",),
    "queued": ("queued",),
    "done": ("done",),
    "nothing": ("nothing",),
    "skipped": ("skipped",),
    "out_of_quota": ("out_of_quota",),
}
"""The states to filter by, with the outcomes and states that each includes."""
_PAGE_SIZE = 30
_VERSIONS_OF_RUN = "SELECT FROM feed.version WHERE run = %s LIMIT 1"
_HISTORY = 40


@dataclass(frozen=True)
class JobRow:
    """A job with its next and its last run."""

    name: str
    summary: str
    source: str | None
    lane: str
    cron: str | None
    zone: str | None
    enabled: bool
    page: str | None
    next_due: datetime | None
    last_run: RunSummary | None


@dataclass(frozen=True)
class RunSpan:
    """The time span of a run, or of several in close succession; `run` is the newest."""

    run: int
    runs: int
    job: str
    status: str
    started_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True)
class Runs:
    """The data of the page."""

    now: datetime
    workers: int
    job: str
    source: str
    state: str
    time: int | None
    """The hours to which the list is limited; None for any time."""
    hours: int
    """The hours of the timeline."""
    since: datetime
    jobs: Sequence[JobRow]
    history: Sequence[RunSummary]
    """The last finished runs of the selected job, oldest first."""
    timeline: Sequence[RunSpan]
    runs: Sequence[RunSummary]
    older_than: int | None
    """The id from which the next page continues."""


@dataclass(frozen=True)
class Cost:
    """The requests of a run to an upstream, by outcome."""

    upstream: str
    lane: str
    outcome: str | None
    requests: int
    spent: int
    median_ms: float | None


@dataclass(frozen=True)
class Bar:
    """A part of a bar; place and width in percent."""

    tone: str
    x: float
    width: float


@dataclass(frozen=True)
class Effect:
    """The change that a held run would make to one dataset, in numbers and as a bar."""

    dataset: str
    before: int
    after: int
    removed: int
    modified: int
    added: int

    @property
    def same(self) -> int:
        return max(0, self.before - self.removed - self.modified)

    @property
    def bars(self) -> Sequence[Bar]:
        parts = {
            "neutral": self.same,
            "active": self.modified,
            "error": self.removed,
            "ok": self.added,
        }
        whole = sum(parts.values()) or 1
        bars, x = [], 0.0
        for tone, count in parts.items():
            width = 100 * count / whole
            bars.append(Bar(tone, round(x, 3), round(width, 3)))
            x += width
        return bars


@dataclass(frozen=True)
class RunPage:
    """The details of one run; `hold` is set if the guard held it."""

    now: datetime
    run: RunSummary
    repeatable: bool
    """Whether it can run again: its job still exists, and it does not apply an approved hold."""
    attempt: int
    worker: str | None
    scheduled_for: datetime | None
    params: Mapping[str, Any]
    detail: Mapping[str, Any]
    error: str | None
    costs: Sequence[Cost]
    can_undo: bool
    """Whether it changed records that a further run can bring back."""
    applied_by: int | None
    """The run that applied the hold after its approval."""
    newer_hold: int | None
    """The hold that waits in place of a superseded one."""
    log: Sequence[StoredLine]
    hold: Hold | None
    effects: Sequence[Effect]
    """The changes that the held run would make in each dataset."""
    confirm: int
    """The number to type for an approval; 0 if nothing is asked."""
    removals: bool
    """Whether it is the number of removed records, else of all changes."""


async def runs(request: PageRequest) -> Runs:
    """Load the jobs, the timeline, and one page of the runs that match the filters."""
    context, store = request.context, request.store
    job, source = request.text("job"), request.text("source")
    state = "failed" if request.text("bad") == "1" else request.text("state")
    wanted = request.number("hours")
    now = await store.now()
    jobs = await schedule_overview(store, context.catalogue)
    of_source = [one.job.name for one in jobs if one.job.source == source] if source else None
    found = await list_runs(
        store,
        job=job or None,
        bad=state == "failed",
        jobs=of_source,
        statuses=STATES.get(state, [state]) if state else None,
        since=now - timedelta(hours=wanted) if wanted in HOURS else None,
        before=request.number("before"),
        limit=_PAGE_SIZE + 1,
    )
    shown = found[:_PAGE_SIZE]
    hours = _hours(wanted, shown, now)
    span = timedelta(hours=hours)
    history = await list_runs(store, job=job, limit=_HISTORY) if job else []
    return Runs(
        now=now,
        workers=await count_live_workers(store, context.settings),
        job=job,
        source=source,
        state=state,
        time=wanted if wanted in HOURS else None,
        hours=hours,
        since=now - span,
        jobs=[_job_row(entry, now) for entry in sorted(jobs, key=_enabled_first)],
        history=[summarize_run(run, now) for run in reversed(history) if run.finished_at],
        timeline=await _timeline(context, now, span, [job] if job else of_source),
        runs=[summarize_run(run, now) for run in shown],
        older_than=shown[-1].id if len(found) > _PAGE_SIZE else None,
    )


async def run_page(request: PageRequest) -> RunPage:
    """Load one run with its parameters, requests and result."""
    context, store = request.context, request.store
    run = await get_run(store, _number(request))
    now = await store.now()
    hold = await find_hold(store, run.id)
    effects = _effects(hold) if hold else []
    confirm, removals = _confirmation(effects)
    return RunPage(
        now=now,
        run=summarize_run(run, now),
        repeatable=run.job in context.catalogue.jobs and APPROVE not in run.params,
        attempt=run.attempt,
        worker=run.worker,
        scheduled_for=run.scheduled_for,
        params=plain(run.params),
        detail=run.detail,
        error=run.error,
        costs=await _costs(context, run.id, run.started_at, run.finished_at or now),
        can_undo=run.outcome == "done" and bool(run.rows_changed) and await _changed(store, run.id),
        applied_by=await _applied_by(store, hold) if hold else None,
        newer_hold=await _newer_hold(store, hold) if hold else None,
        hold=hold,
        effects=effects,
        confirm=confirm,
        removals=removals,
        log=await list_lines(store, run.id),
    )


async def _changed(store: Store, run: int) -> bool:
    async with store.connection() as conn:
        return (await conn.execute(_VERSIONS_OF_RUN, [run])).rowcount > 0


async def _applied_by(store: Store, hold: Hold) -> int | None:
    if hold.state != "approved":
        return None
    values = {"hold": hold.id, "job": hold.job}
    async with store.connection() as conn:
        cursor = await conn.execute(load_query("hasat.web", "applied_by"), values)
        row = await cursor.fetchone()
    return row[0] if row else None


async def _newer_hold(store: Store, hold: Hold) -> int | None:
    if hold.state != "superseded":
        return None
    waiting = await list_holds(store, state="waiting")
    return next((one.id for one in waiting if one.job == hold.job and one.id > hold.id), None)


def _effects(hold: Hold) -> Sequence[Effect]:
    counts = hold.preview.get("datasets") or {}
    return [
        Effect(
            name,
            one["total"] - one["added"] + one["removed"],
            one["total"],
            one["removed"],
            one["modified"],
            one["added"],
        )
        for name, one in counts.items()
        if any(one.values())
    ]


def _confirmation(effects: Sequence[Effect]) -> tuple[int, bool]:
    """Return the number that an approval asks for, and whether it is that of removed records."""
    removed = sum(one.removed for one in effects)
    return removed or sum(one.modified + one.added for one in effects), bool(removed)


def _job_row(entry: ScheduledJob, now: datetime) -> JobRow:
    job = entry.job
    return JobRow(
        name=job.name,
        summary=job.summary,
        source=job.source,
        lane=job.lane,
        cron=job.cron,
        zone=job.zone,
        enabled=job.enabled,
        page=job.page,
        next_due=entry.next_due,
        last_run=summarize_run(entry.last_run, now) if entry.last_run else None,
    )


def _hours(wanted: int | None, shown: Sequence[Run], now: datetime) -> int:
    """Return the requested length of the timeline, else one that covers the listed runs."""
    if wanted in HOURS:
        return wanted
    oldest = min((run.queued_at for run in shown), default=now)
    return next((one for one in HOURS if now - oldest <= timedelta(hours=one)), HOURS[-1])


def _enabled_first(entry: ScheduledJob) -> tuple[bool, str, str]:
    return not entry.job.enabled, entry.job.source or "", entry.job.name


async def run_now(request: PageRequest) -> str:
    """Queue a manual run of a job."""
    run = await queue_run(
        request.store, request.context.catalogue, request.text("job"), behind_others=False
    )
    return f"/runs/{run.id}"


async def retry(request: PageRequest) -> str:
    """Queue a run again with the same parameters."""
    run = await retry_run(request.store, request.context.catalogue, _number(request))
    return f"/runs/{run.id}"


async def stop(request: PageRequest) -> str:
    """Stop a run."""
    run = await stop_run(request.store, _number(request))
    return f"/runs/{run.id}"


async def undo(request: PageRequest) -> str:
    """Queue the run that undoes the changes of a run; the guard holds it for an approval."""
    run = await queue_run(
        request.store, request.context.catalogue, UNDO_JOB, {"run": _number(request)}
    )
    return f"/runs/{run.id}"


async def approve(request: PageRequest) -> str:
    """Queue the run that applies the held input, on the machine that stores it.

    The number of removed records is typed again: it shows that the effect was read.
    """
    hold = await _waiting_hold(request)
    expected, _ = _confirmation(_effects(hold))
    typed = re.sub(r"[\s.,]", "", request.text("confirm"))
    if expected and typed != str(expected):
        raise UsageError(
            msg("The typed number does not match: approving needs {count:,}.", count=expected),
            remedy=msg("Go back, read the effect again and type the number."),
        )
    run = await queue_approval(request.store, request.context.catalogue, _number(request))
    return f"/runs/{run.id}"


async def reject(request: PageRequest) -> str:
    """Reject a held run."""
    hold = await _waiting_hold(request)
    await reject_hold(request.store, request.context.settings, hold.id)
    return f"/runs/{hold.id}"


async def _waiting_hold(request: PageRequest) -> Hold:
    """Return the hold to decide, whose decision needs a reason."""
    async with request.store.connection() as conn:
        hold = await waiting_hold(conn, _number(request))
    if not request.text("reason"):
        raise UsageError(msg("The reason is missing."), remedy=msg("Go back and give a reason."))
    return hold


def _number(request: PageRequest) -> int:
    number = request.number("run")
    if number is None:
        raise NotFoundError(msg("The run number is missing."))
    return number


async def _timeline(
    context: PageContext, now: datetime, span: timedelta, jobs: Sequence[str] | None
) -> Sequence[RunSpan]:
    values = {"since": now - span, "gap": min_gap(span), "jobs": jobs}
    return await context.store.rows(RunSpan, load_query("hasat.web", "timeline"), values)


async def _costs(
    context: PageContext, run: int, started_at: datetime | None, until: datetime
) -> Sequence[Cost]:
    if started_at is None:
        return []
    values = {"run": run, "since": started_at, "until": until}
    return await context.store.rows(Cost, load_query("hasat.web", "run_costs"), values)


PAGES = (Page("/runs", "runs", runs, "runs"), Page("/runs/{run}", "run", run_page, "runs"))
ACTIONS = (
    Action("/runs", "run.queue", run_now),
    Action("/runs/{run}/retry", "run.retry", retry),
    Action("/runs/{run}/stop", "run.stop", stop),
    Action("/runs/{run}/undo", "run.undo", undo),
    Action("/runs/{run}/approve", "hold.approve", approve),
    Action("/runs/{run}/reject", "hold.reject", reject),
)
