"""Runs and jobs: what runs when, what has run and how, one run in full, and running it now."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from hasat.errors import NotFoundError
from hasat.jobs import Run
from hasat.jobs.queue import queue_run, retry_run, stop_run
from hasat.jobs.runs import ScheduledJob, count_live_workers, get_run, list_runs, schedule_overview
from hasat.messages import msg
from hasat.settings.reference import plain
from hasat.sources.gib.sync.held import reject as drop_held
from hasat.sources.gib.sync.job import NAME as GIB_SYNC
from hasat.store.queries import load_query
from hasat.web import held
from hasat.web.charts import too_close
from hasat.web.page import Action, Asked, House, Page
from hasat.web.runlines import RunLine, line_of

HOURS = (1, 6, 24, 72)
_ON_A_PAGE = 30


@dataclass(frozen=True)
class JobLine:
    """A job with its next due time and its last run."""

    name: str
    summary: str
    source: str | None
    lane: str
    cron: str | None
    zone: str | None
    enabled: bool
    next_due: datetime | None
    last_run: RunLine | None


@dataclass(frozen=True)
class Stretch:
    """When a run was at work, or some that followed each other closely; `run` is the newest."""

    run: int
    runs: int
    job: str
    how: str
    started_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True)
class Runs:
    """All of the page."""

    now: datetime
    workers: int
    job: str
    only_bad: bool
    hours: int
    since: datetime
    jobs: Sequence[JobLine]
    timeline: Sequence[Stretch]
    runs: Sequence[RunLine]
    older_than: int | None
    """Where the next page of older runs begins."""


@dataclass(frozen=True)
class Cost:
    """What a run's requests to an upstream came to."""

    upstream: str
    lane: str
    outcome: str | None
    requests: int
    spent: int
    median_ms: float | None


@dataclass(frozen=True)
class OneRun:
    """One run in full; `held` is what the guard saw where it held the run."""

    now: datetime
    run: RunLine
    repeatable: bool
    """Whether it can be run again: its job is still in the catalogue, and it was no approval, which
    is given once."""
    attempt: int
    worker: str | None
    scheduled_for: datetime | None
    params: Mapping[str, Any]
    detail: Mapping[str, Any]
    error: str | None
    costs: Sequence[Cost]
    held: held.Held | None


async def runs(asked: Asked) -> Runs:
    """The jobs, the time line of the last hours, and one page of runs."""
    house, store = asked.house, asked.store
    job, only_bad = asked.text("job"), asked.text("bad") == "1"
    now = await store.now()
    found = await list_runs(
        store, job=job or None, bad=only_bad, before=asked.number("before"), limit=_ON_A_PAGE + 1
    )
    shown = found[:_ON_A_PAGE]
    hours = _hours(asked.number("hours"), shown, now)
    jobs = await schedule_overview(store, house.catalogue)
    span = timedelta(hours=hours)
    return Runs(
        now=now,
        workers=await count_live_workers(store, house.settings),
        job=job,
        only_bad=only_bad,
        hours=hours,
        since=now - span,
        jobs=[job_line(entry, now) for entry in sorted(jobs, key=_working_first)],
        timeline=await _timeline(house, now, span, job or None),
        runs=[line_of(run, now) for run in shown],
        older_than=shown[-1].id if len(found) > _ON_A_PAGE else None,
    )


async def one_run(asked: Asked) -> OneRun:
    """One run with its parameters, its cost and what it left behind."""
    house, store = asked.house, asked.store
    run = await get_run(store, _number(asked))
    now = await store.now()
    return OneRun(
        now=now,
        run=line_of(run, now),
        repeatable=run.job in house.catalogue.jobs and "approve" not in run.params,
        attempt=run.attempt,
        worker=run.worker,
        scheduled_for=run.scheduled_for,
        params=plain(run.params),
        detail=run.detail,
        error=run.error,
        costs=await _costs(house, run.id, run.started_at, run.finished_at or now),
        held=await held.of_run(house, run.id),
    )


def job_line(entry: ScheduledJob, now: datetime) -> JobLine:
    job = entry.job
    return JobLine(
        name=job.name,
        summary=job.summary,
        source=job.source,
        lane=job.lane,
        cron=job.cron,
        zone=job.zone,
        enabled=job.enabled,
        next_due=entry.next_due,
        last_run=line_of(entry.last_run, now) if entry.last_run else None,
    )


def _hours(wanted: int | None, shown: Sequence[Run], now: datetime) -> int:
    """How far the time line reaches back: as is asked for, else as far as the list of runs does."""
    if wanted in HOURS:
        return wanted
    oldest = min((run.queued_at for run in shown), default=now)
    return next((one for one in HOURS if now - oldest <= timedelta(hours=one)), HOURS[-1])


def _working_first(entry: ScheduledJob) -> tuple[bool, str, str]:
    return not entry.job.enabled, entry.job.source or "", entry.job.name


async def run_now(asked: Asked) -> str:
    run = await queue_run(
        asked.store, asked.house.catalogue, asked.text("job"), behind_others=False
    )
    return f"/runs/{run.id}"


async def retry(asked: Asked) -> str:
    run = await retry_run(asked.store, asked.house.catalogue, _number(asked))
    return f"/runs/{run.id}"


async def stop(asked: Asked) -> str:
    run = await stop_run(asked.store, _number(asked))
    return f"/runs/{run.id}"


async def approve(asked: Asked) -> str:
    """Queue the run that applies the held lists, on a machine that has them."""
    number = _number(asked)
    run = await queue_run(asked.store, asked.house.catalogue, GIB_SYNC, {"approve": number})
    return f"/runs/{run.id}"


async def reject(asked: Asked) -> str:
    number = _number(asked)
    await drop_held(asked.store, asked.house.settings, number)
    return f"/runs/{number}"


def _number(asked: Asked) -> int:
    number = asked.number("run")
    if number is None:
        raise NotFoundError(msg("There is no run without a number."))
    return number


async def _timeline(
    house: House, now: datetime, span: timedelta, job: str | None
) -> Sequence[Stretch]:
    values = {"since": now - span, "close": too_close(span), "job": job}
    return await house.store.rows(Stretch, load_query("hasat.web", "timeline"), values)


async def _costs(
    house: House, run: int, started_at: datetime | None, until: datetime
) -> Sequence[Cost]:
    if started_at is None:
        return []
    values = {"run": run, "since": started_at, "until": until}
    return await house.store.rows(Cost, load_query("hasat.web", "run_costs"), values)


PAGES = (Page("/runs", "runs", runs, "runs"), Page("/runs/{run}", "run", one_run, "runs"))
ACTIONS = (
    Action("/runs", "run.queue", run_now),
    Action("/runs/{run}/retry", "run.retry", retry),
    Action("/runs/{run}/stop", "run.stop", stop),
    Action("/runs/{run}/approve", "hold.approve", approve),
    Action("/runs/{run}/reject", "hold.reject", reject),
)
