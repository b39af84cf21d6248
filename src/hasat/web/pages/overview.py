"""The overview: the state of every source, active runs, and holds that need approval."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import psycopg

from hasat.api.health import source_report
from hasat.budget import Quota
from hasat.demo.scenes import ScheduledScene, schedule_scenes
from hasat.errors import HasatError
from hasat.feed.holds import list_holds
from hasat.jobs.runs import ScheduledJob, count_live_workers, list_runs, schedule_overview
from hasat.messages import msg
from hasat.pages import Page, PageContext, PageRequest
from hasat.pages.summaries import QuotaSummary, RunSummary, summarize_quota, summarize_run
from hasat.source import Source
from hasat.source.installed import missing_configuration
from hasat.store.queries import load_query
from hasat.upstreams import read_all_quotas

CardState = Literal["fresh", "needs_approval", "stale", "empty", "off"]

_MAX_RUNS = 8
_CHECK_TIMEOUT_SECONDS = 3.0


@dataclass(frozen=True)
class DatasetRow:
    """A dataset with its stored totals."""

    dataset: str
    source: str
    records: int
    seq: int
    committed_at: datetime | None


@dataclass(frozen=True)
class SourceCard:
    """A source: whether its mirror is up to date, and the reason if not."""

    name: str
    title: str
    state: CardState
    reason: str | None
    datasets: Sequence[DatasetRow]
    last_run: RunSummary | None
    next_job: str | None
    next_due: datetime | None
    held_runs: int
    quota: QuotaSummary | None


@dataclass(frozen=True)
class Overview:
    """The data of the page."""

    now: datetime
    workers: int
    scenes: Sequence[ScheduledScene]
    """Empty except in the demo."""
    sources: Sequence[SourceCard]
    held: Sequence[int]
    """The runs that need approval, newest first."""
    running: Sequence[RunSummary]
    recent: Sequence[RunSummary]


async def overview(request: PageRequest) -> Overview:
    """Load the page without counting large tables."""
    context, store = request.context, request.store
    now = await store.now()
    jobs = await schedule_overview(store, context.catalogue)
    heads = await _heads(context)
    quotas = {
        quota.windows.upstream: quota
        for quota in await read_all_quotas(store, context.settings, outcomes=False)
    }
    waiting = await list_holds(store, state="waiting", limit=100)
    cards = [
        await _card(
            context,
            source,
            jobs,
            heads,
            quotas,
            sum(not own.isdisjoint(hold.datasets) for hold in waiting),
            now,
        )
        for source in context.sources
        for own in ({one.name for one in source.datasets},)
    ]
    running = await list_runs(store, unfinished=True, limit=20)
    recent = await list_runs(store, limit=_MAX_RUNS + len(running))
    return Overview(
        now=now,
        workers=await count_live_workers(store, context.settings),
        scenes=schedule_scenes(context.settings, now),
        sources=cards,
        held=[hold.id for hold in waiting],
        running=[summarize_run(run, now) for run in running],
        recent=[summarize_run(run, now) for run in recent if run.state == "finished"][:_MAX_RUNS],
    )


async def _card(
    context: PageContext,
    source: Source,
    jobs: Sequence[ScheduledJob],
    heads: Sequence[DatasetRow],
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
    state, reason = await _state(context, source, own, datasets, held_runs)
    return SourceCard(
        name=source.name,
        title=source.title,
        state=state,
        reason=reason,
        datasets=datasets,
        last_run=summarize_run(last, now) if last else None,
        next_job=upcoming.job.name if upcoming else None,
        next_due=upcoming.next_due if upcoming else None,
        held_runs=held_runs,
        quota=summarize_quota(quotas[source.name]) if source.name in quotas else None,
    )


async def _state(
    context: PageContext,
    source: Source,
    jobs: Sequence[ScheduledJob],
    datasets: Sequence[DatasetRow],
    held_runs: int,
) -> tuple[CardState, str | None]:
    if lacking := missing_configuration(source, context.settings):
        return "off", lacking
    if held_runs:
        return "needs_approval", None
    if not any(line.committed_at for line in datasets):
        return "empty", None
    for check in (await _checks(context, source)).values():
        if check["status"] != "Healthy":
            return "stale", check.get("description")
    for entry in jobs:
        run = entry.last_run
        if entry.job.enabled and run and run.outcome in {"failed", "set_aside"}:
            reason = run.message or run.error or run.outcome
            return "stale", msg("{job}: {reason}", job=entry.job.name, reason=reason)
    return "fresh", None


async def _checks(context: PageContext, source: Source) -> Mapping[str, Any]:
    """Run the checks of a source; a check that cannot run counts as degraded."""
    try:
        async with asyncio.timeout(_CHECK_TIMEOUT_SECONDS):
            report = await source_report(source, context.store, context.settings)
    except (HasatError, psycopg.Error, TimeoutError) as error:
        return {source.name: {"status": "Degraded", "description": str(error) or None}}
    found: Mapping[str, Any] = report.get("checks", {})
    return found


async def _heads(context: PageContext) -> Sequence[DatasetRow]:
    return await context.store.rows(DatasetRow, load_query("hasat.web", "heads"))


PAGES = (Page("/", "overview", overview, "overview"),)
