"""The overview: the state of every source, active runs, and holds that need approval."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

import httpx2
import psycopg

from hasat.api.health import source_report
from hasat.budget import Quota
from hasat.demo.scenes import REPLAY_PATH, ScheduledScene, all_scenes, schedule_scenes
from hasat.errors import HasatError, NotFoundError, UnavailableError
from hasat.feed.holds import list_holds
from hasat.jobs.runs import ScheduledJob, count_live_workers, list_runs, schedule_overview
from hasat.messages import msg
from hasat.pages import Action, Page, PageContext, PageRequest
from hasat.pages.summaries import QuotaSummary, RunSummary, summarize_quota, summarize_run
from hasat.source import Source
from hasat.source.installed import missing_configuration
from hasat.store.queries import load_query
from hasat.upstreams import read_all_quotas
from hasat.web.trends import Trend, load_trends

CardState = Literal["fresh", "needs_approval", "stale", "empty", "off"]

_MAX_RUNS = 8
_DAY = timedelta(days=1)
_URGENCY = {"needs_approval": 0, "stale": 1, "empty": 2, "fresh": 3, "off": 4}
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
    trend: Trend | None


@dataclass(frozen=True)
class Attention:
    """Something that an operator should look at, and where."""

    level: Literal["error", "warning"]
    subject: str
    text: str | None
    path: str


@dataclass(frozen=True)
class Failures:
    """The failed runs of a job in the last day; `run` is the newest."""

    job: str
    runs: int
    run: int
    at: datetime
    still: bool
    """Whether its last run failed too."""


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
    attention: Sequence[Attention]
    """What else needs attention, the most urgent first."""
    failures: Sequence[Failures]
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
    trends = await load_trends(store, now, context.zone)
    failures = await store.rows(
        Failures, load_query("hasat.web", "failures"), {"since": now - _DAY}
    )
    cards = [
        await _card(
            context,
            source,
            jobs,
            heads,
            quotas,
            sum(not own.isdisjoint(hold.datasets) for hold in waiting),
            trends.get(source.name),
            now,
        )
        for source in context.sources
        for own in ({one.name for one in source.datasets},)
    ]
    cards.sort(key=lambda card: _URGENCY[card.state])
    running = await list_runs(store, unfinished=True, limit=20)
    recent = await list_runs(store, limit=_MAX_RUNS + len(running))
    return Overview(
        now=now,
        workers=await count_live_workers(store, context.settings),
        scenes=schedule_scenes(context.settings, now),
        sources=cards,
        held=[hold.id for hold in waiting],
        attention=_attention(cards, failures, await _count_dead_letters(context)),
        failures=failures,
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
    trend: Trend | None,
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
        trend=trend,
    )


def _attention(
    cards: Sequence[SourceCard], failures: Sequence[Failures], dead_letters: int
) -> Sequence[Attention]:
    """Return what needs attention besides holds, errors first."""
    found = [
        Attention("error", card.name, msg("The daily quota is exhausted."), "/quota")
        for card in cards
        if card.quota is not None and card.quota.exhausted_at and card.state != "off"
    ]
    found += [
        Attention(
            "error",
            one.job,
            msg("Failed {count} times in the last 24 hours, the last time too.", count=one.runs)
            if one.runs > 1
            else msg("The last run failed."),
            f"/runs/{one.run}",
        )
        for one in failures
        if one.still
    ]
    found += [
        Attention("warning", card.name, card.reason, f"/runs?source={card.name}")
        for card in cards
        if card.state == "stale"
    ]
    if dead_letters:
        text = (
            msg("{count} deliveries failed for good.", count=dead_letters)
            if dead_letters > 1
            else msg("One delivery failed for good.")
        )
        found.append(Attention("warning", msg("Dead letters"), text, "/delivery#dead"))
    return found


async def _count_dead_letters(context: PageContext) -> int:
    async with context.store.connection() as conn:
        row = await (await conn.execute(load_query("hasat.web", "dead_letters"))).fetchone()
    return int(row[0]) if row else 0


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


async def replay_scene(request: PageRequest) -> str:
    """Begin a scene of the demo again."""
    number, address = request.number("scene"), request.context.settings.demo.upstreams
    scenes = dict(enumerate(all_scenes(), 1)) if address else {}
    scene = scenes.get(number or 0)
    if scene is None or scene.replay is None:
        raise NotFoundError(msg("The demo has no such scene."))
    try:
        async with httpx2.AsyncClient(trust_env=False) as client:
            response = await client.post(f"{address}{REPLAY_PATH}/{number}")
            response.raise_for_status()
    except httpx2.HTTPError as error:
        raise UnavailableError(
            msg("The simulated upstreams do not respond: {error}.", error=str(error)),
            remedy=msg("Start the demo again."),
        ) from error
    return scene.page


PAGES = (Page("/", "overview", overview, "overview"),)
ACTIONS = (Action("/demo/replay", "demo.replay", replay_scene),)
