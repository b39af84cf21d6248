"""The job `gib_sync`: fetch both lists, synchronise, and keep what the guard holds."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import psycopg
from psycopg.types.json import Jsonb
from pydantic import Field

from hasat.deliver import Event, publish_event
from hasat.errors import ConflictError, HasatError, NotFoundError
from hasat.feed.guard import Counts
from hasat.feed.reconcile import BusyError
from hasat.jobs import Job, Outcome, RunContext
from hasat.jobs.catalogue import Location
from hasat.messages import msg
from hasat.settings import Settings
from hasat.sources.gib.datasets import SOURCE
from hasat.sources.gib.lists.errors import ListError
from hasat.sources.gib.lists.lines import BOXES
from hasat.sources.gib.search import order_search
from hasat.sources.gib.sync.downloads import forget, obtain
from hasat.sources.gib.sync.events import (
    guard_triggered,
    sync_failed,
    sync_skipped,
)
from hasat.sources.gib.sync.held import (
    held_lists,
    machine_of_held,
    store_lists,
    sweep,
    sweep_folders,
)
from hasat.sources.gib.sync.processes import give_back
from hasat.sources.gib.sync.sync import HeldBackError, Report, synchronise, working_folder
from hasat.store.queries import load_query

NAME = "gib_sync"
_PACKAGE = "hasat.sources.gib"
_MOST_WAITING = 3


async def run(context: RunContext) -> Outcome:
    """Synchronise once; `pk` and `gb` name other lists, `approve` a run that was held."""
    began = time.monotonic()
    try:
        return await _run(context, began)
    except (ConflictError, NotFoundError):
        # There was nothing to synchronise.
        raise
    except Exception as error:
        await _tell(context, sync_failed(error, time.monotonic() - began))
        raise


async def _run(context: RunContext, began: float) -> Outcome:
    await _sweep(context)
    approve = context.params.get("approve")
    if approve is None:
        await context.progress(0, None, msg("fetching the lists"))
        return await _synchronise(context, await _fetch(context), began)
    async with held_lists(
        context.store, context.settings, int(approve), run=context.run_id
    ) as lists:
        return await _synchronise(context, lists, began, approving=int(approve))


async def _synchronise(
    context: RunContext, lists: Mapping[str, Path], began: float, approving: int | None = None
) -> Outcome:
    try:
        report = await synchronise(
            context.store,
            context.settings,
            lists,
            run=context.run_id,
            approving=approving,
            tell=context.progress,
            conclude=lambda conn, report: context.conclude(conn, _outcome(report)),
        )
    except BusyError as error:
        if not context.is_retry:
            await _tell(context, sync_skipped(time.monotonic() - began))
        return Outcome("skipped", message=error.message)
    except ListError:
        for box in BOXES:
            forget(box, downloads_folder(context.settings))
        raise
    except HeldBackError as error:
        return await _hold(context, error, lists, began)
    await _tidy_up(context)
    return _outcome(report)


def _outcome(report: Report) -> Outcome:
    return Outcome(
        "done" if report.outcome == "committed" else "nothing",
        rows_changed=sum(count.total for count in report.version.counts.values()),
        detail=told(report),
    )


async def _tidy_up(context: RunContext) -> None:
    """Free memory and disk after the commit; a failure here is no failure of the sync."""
    try:
        give_back()
        await _sweep(context)
    except (HasatError, OSError, psycopg.Error) as error:
        context.log.warning("sync.tidy_up_failed", error=str(error))
    await order_search(context.store)


def told(report: Report) -> dict[str, Any]:
    """A report in the form of the command's JSON."""
    return {
        "outcome": report.outcome,
        "seconds": report.seconds,
        "lists": {name: asdict(one) for name, one in report.lists.items()},
        "datasets": {
            name: {**_counted(count), "head": report.version.heads[name]}
            for name, count in report.version.counts.items()
        },
    }


def _counted(count: Counts) -> dict[str, int]:
    """What a run does to a dataset, and how many records there are then."""
    return {
        "added": count.added,
        "modified": count.modified,
        "removed": count.removed,
        "total": count.records + count.added - count.removed,
    }


def downloads_folder(settings: Settings) -> Path:
    return settings.home / "gib" / "lists"


async def _fetch(context: RunContext) -> dict[str, Path]:
    gib = context.settings.gib
    sources = {
        "PK": str(context.params.get("pk") or gib.pk_list_url),
        "GB": str(context.params.get("gb") or gib.gb_list_url),
    }
    folder = downloads_folder(context.settings)
    seconds = gib.download_timeout.total_seconds()
    try:
        async with asyncio.TaskGroup() as group:
            getting = {
                box: group.create_task(
                    obtain(
                        source,
                        box,
                        folder,
                        timeout_seconds=seconds,
                        trusted=context.trusts(box.lower()),
                        private_networks=context.settings.webhooks.private_networks,
                    )
                )
                for box, source in sources.items()
            }
    except ExceptionGroup as failed:
        # One reason is enough; the other download was given up with it.
        raise failed.exceptions[0] from None
    context.count_requests(sum("://" in source for source in sources.values()))
    return {box: task.result() for box, task in getting.items()}


async def _tell(context: RunContext, *events: Event) -> None:
    """Announce by itself what no transaction of the sync can; failing at it changes nothing."""
    try:
        async with context.store.connection() as conn:
            for event in events:
                await publish_event(conn, event)
    except (HasatError, psycopg.Error) as error:
        context.log.warning("nobody could be told", reason=str(error))


async def _hold(
    context: RunContext, error: HeldBackError, lists: Mapping[str, Path], began: float
) -> Outcome:
    """Keep the lists as they are, so that approving applies exactly what was looked at.

    Where nobody decides, only the newest few wait: lists are large.
    """
    await store_lists(context.store, context.settings, context.run_id, lists)
    preview = {
        "measures": [
            {**asdict(measure), "exceeded": measure.exceeded} for measure in error.measures
        ],
        "lists": {name: asdict(one) for name, one in error.lists.items()},
        "datasets": {name: _counted(count) for name, count in error.counts.items()},
        "examples": error.examples,
    }
    async with context.store.connection() as conn:
        await conn.execute(
            "INSERT INTO gib.held (run, preview) VALUES (%s, %s)",
            [context.run_id, Jsonb(preview)],
        )
        await conn.execute(load_query(_PACKAGE, "supersede_held"), {"most": _MOST_WAITING})
        took = time.monotonic() - began
        await publish_event(
            conn, guard_triggered(context.run_id, error.measures, error.counts, took)
        )
        outcome = Outcome("held", detail={"lists": preview["lists"]}, message=error.message)
        await context.conclude(conn, outcome)
    await _tidy_up(context)
    return outcome


async def _sweep(context: RunContext) -> None:
    """Remove what runs left that neither work nor wait for a decision."""
    work = working_folder(context.settings, "*")
    await sweep_folders(context.store, context.settings, context.run_id, work)
    await sweep(context.store, context.settings)


SYNC = Job(
    NAME,
    run,
    "Fetches both taxpayer lists and brings einvoice and edespatch to what they say.",
    cron="0 3,9,15,21 * * *",
    options={"pk": Location, "gb": Location, "approve": Annotated[int, Field(ge=1, le=2**62)]},
    source=SOURCE,
    machine=machine_of_held,
)
