"""The overview: every source at a glance, what runs, and what waits for a person."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import psycopg

from hasat.api.health import source_report
from hasat.budget import Quota
from hasat.errors import HasatError
from hasat.jobs.runs import ScheduledJob, count_live_workers, list_runs, schedule_overview
from hasat.messages import msg
from hasat.sources.registry import Source
from hasat.sources.upstreams import read_all_quotas
from hasat.store.queries import load_query
from hasat.web import held
from hasat.web.page import Asked, House, Page
from hasat.web.quotas import QuotaLine, quota_line
from hasat.web.runlines import RunLine, line_of
from hasat.web.story import SceneState, scene_states

_RUNS_SHOWN = 8
_PATIENCE_SECONDS = 3.0


@dataclass(frozen=True)
class DatasetLine:
    """A dataset with the totals that are stored with its head."""

    dataset: str
    source: str
    records: int
    seq: int
    committed_at: datetime | None


@dataclass(frozen=True)
class SourceCard:
    """A source: whether its mirror is fresh, and if not, why."""

    name: str
    title: str
    state: Literal["fresh", "stale", "empty", "off"]
    why: str | None
    datasets: Sequence[DatasetLine]
    last_run: RunLine | None
    next_job: str | None
    next_due: datetime | None
    held_runs: int
    quota: QuotaLine | None


@dataclass(frozen=True)
class Overview:
    """All of the page."""

    now: datetime
    workers: int
    story: Sequence[SceneState]
    """Empty where this is no demo."""
    sources: Sequence[SourceCard]
    held: Sequence[int]
    """The runs that wait for a decision, the newest first."""
    running: Sequence[RunLine]
    recent: Sequence[RunLine]


async def overview(asked: Asked) -> Overview:
    """Read it all; nothing that is large is counted."""
    house, store = asked.house, asked.store
    now = await store.now()
    jobs = await schedule_overview(store, house.catalogue)
    heads = await _heads(house)
    quotas = {
        quota.windows.upstream: quota
        for quota in await read_all_quotas(store, house.settings, outcomes=False)
    }
    waiting = await held.waiting(house)
    cards = [
        await _card(house, source, jobs, heads, quotas, len(waiting), now)
        for source in house.sources
    ]
    running = await list_runs(store, unfinished=True, limit=20)
    recent = await list_runs(store, limit=_RUNS_SHOWN + len(running))
    return Overview(
        now=now,
        workers=await count_live_workers(store, house.settings),
        story=scene_states(house.settings, now),
        sources=cards,
        held=[one.run for one in waiting],
        running=[line_of(run, now) for run in running],
        recent=[line_of(run, now) for run in recent if run.state == "finished"][:_RUNS_SHOWN],
    )


async def _card(
    house: House,
    source: Source,
    jobs: Sequence[ScheduledJob],
    heads: Sequence[DatasetLine],
    quotas: Mapping[str, Quota],
    held_runs: int,
    now: datetime,
) -> SourceCard:
    own = [entry for entry in jobs if entry.job.source == source.name]
    runs = [entry.last_run for entry in own if entry.last_run]
    last = max(runs, key=lambda run: run.id, default=None)
    due = [entry for entry in own if entry.next_due is not None]
    upcoming = min(due, key=lambda entry: entry.next_due or now, default=None)
    datasets = [line for line in heads if line.source == source.name]
    state, why = await _state(house, source, own, datasets)
    return SourceCard(
        name=source.name,
        title=source.title,
        state=state,
        why=why,
        datasets=datasets,
        last_run=line_of(last, now) if last else None,
        next_job=upcoming.job.name if upcoming else None,
        next_due=upcoming.next_due if upcoming else None,
        held_runs=held_runs if source.name == "gib" else 0,
        quota=quota_line(quotas[source.name]) if source.name in quotas else None,
    )


async def _state(
    house: House, source: Source, jobs: Sequence[ScheduledJob], datasets: Sequence[DatasetLine]
) -> tuple[Literal["fresh", "stale", "empty", "off"], str | None]:
    if source.lacks is not None and (lacking := source.lacks(house.settings)):
        return "off", lacking
    if not any(line.committed_at for line in datasets):
        return "empty", None
    for check in (await _checks(house, source)).values():
        if check["status"] != "Healthy":
            return "stale", check.get("description")
    for entry in jobs:
        run = entry.last_run
        if entry.job.enabled and run and run.outcome in {"failed", "set_aside"}:
            why = run.message or run.error or run.outcome
            return "stale", msg("{job}: {why}", job=entry.job.name, why=why)
    return "fresh", None


async def _checks(house: House, source: Source) -> Mapping[str, Any]:
    """The source's own checks; that it could not look is a finding too."""
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            report = await source_report(source, house.store, house.settings)
    except (HasatError, psycopg.Error, TimeoutError) as error:
        return {source.name: {"status": "Degraded", "description": str(error) or None}}
    found: Mapping[str, Any] = report.get("checks", {})
    return found


async def _heads(house: House) -> Sequence[DatasetLine]:
    return await house.store.rows(DatasetLine, load_query("hasat.web", "heads"))


PAGES = (Page("/", "overview", overview, "overview"),)
