"""The job `gib_sync`: fetch both lists, synchronise, and store the lists of held runs."""

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
from hasat.sources.gib.search import enqueue_search_index
from hasat.sources.gib.sync.downloads import fetch_list, invalidate_download
from hasat.sources.gib.sync.events import (
    guard_triggered,
    sync_failed,
    sync_skipped,
)
from hasat.sources.gib.sync.held import (
    held_lists,
    machine_of_held,
    remove_decided_inputs,
    remove_stale_folders,
    store_lists,
)
from hasat.sources.gib.sync.processes import release_memory
from hasat.sources.gib.sync.sync import SyncHeldError, synchronise, working_folder
from hasat.sources.gib.sync.task import SyncReport
from hasat.store.queries import load_query

NAME = "gib_sync"
_PACKAGE = "hasat.sources.gib"
_MAX_WAITING = 3


async def run(context: RunContext) -> Outcome:
    """Synchronise once; `pk` and `gb` replace the lists, `approve` is a held run."""
    began = time.monotonic()
    try:
        return await _run(context, began)
    except (ConflictError, NotFoundError):
        # Nothing was synchronised, so there is no event to publish.
        raise
    except Exception as error:
        await _publish_events(context, sync_failed(error, time.monotonic() - began))
        raise


async def _run(context: RunContext, began: float) -> Outcome:
    await _remove_stale_files(context)
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
            progress=context.progress,
            record_report=lambda conn, report: context.conclude(conn, _outcome(report)),
        )
    except BusyError as error:
        if not context.is_retry:
            await _publish_events(context, sync_skipped(time.monotonic() - began))
        return Outcome("skipped", message=error.message)
    except ListError:
        for box in BOXES:
            invalidate_download(box, downloads_folder(context.settings))
        raise
    except SyncHeldError as error:
        return await _hold(context, error, lists, began)
    await _clean_up(context)
    return _outcome(report)


def _outcome(report: SyncReport) -> Outcome:
    return Outcome(
        "done" if report.outcome == "committed" else "nothing",
        rows_changed=sum(count.total for count in report.version.counts.values()),
        detail=report_detail(report),
    )


async def _clean_up(context: RunContext) -> None:
    """Free memory and disk after the commit; a failure here does not fail the sync."""
    try:
        release_memory()
        await _remove_stale_files(context)
    except (HasatError, OSError, psycopg.Error) as error:
        context.log.warning("sync.clean_up_failed", error=str(error))
    await enqueue_search_index(context.store)


def report_detail(report: SyncReport) -> dict[str, Any]:
    """Return a report as the run's detail, which the command prints as JSON."""
    return {
        "outcome": report.outcome,
        "seconds": report.seconds,
        "lists": {name: asdict(one) for name, one in report.lists.items()},
        "datasets": {
            name: {**_counts_json(count), "head": report.version.heads[name]}
            for name, count in report.version.counts.items()
        },
    }


def _counts_json(count: Counts) -> dict[str, int]:
    """Return the changes of a dataset and its number of records after them."""
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
            downloads = {
                box: group.create_task(
                    fetch_list(
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
        # The first failure cancels the other download, so one error says it all.
        raise failed.exceptions[0] from None
    context.count_requests(sum("://" in source for source in sources.values()))
    return {box: task.result() for box, task in downloads.items()}


async def _publish_events(context: RunContext, *events: Event) -> None:
    """Publish events outside of the sync's transaction; a failure is only logged."""
    try:
        async with context.store.connection() as conn:
            for event in events:
                await publish_event(conn, event)
    except (HasatError, psycopg.Error) as error:
        context.log.warning("sync.event_not_published", error=str(error))


async def _hold(
    context: RunContext, error: SyncHeldError, lists: Mapping[str, Path], began: float
) -> Outcome:
    """Store the lists, so that an approval applies exactly what the guard has measured.

    Without a decision only the newest few runs keep waiting, because lists are large.
    """
    await store_lists(context.store, context.settings, context.run_id, lists)
    preview = {
        "measures": [
            {**asdict(measure), "exceeded": measure.exceeded} for measure in error.measures
        ],
        "lists": {name: asdict(one) for name, one in error.lists.items()},
        "datasets": {name: _counts_json(count) for name, count in error.counts.items()},
        "examples": error.examples,
    }
    async with context.store.connection() as conn:
        await conn.execute(
            "INSERT INTO gib.held (run, preview) VALUES (%s, %s)",
            [context.run_id, Jsonb(preview)],
        )
        await conn.execute(load_query(_PACKAGE, "supersede_held"), {"max_waiting": _MAX_WAITING})
        seconds = time.monotonic() - began
        event = guard_triggered(context.run_id, error.measures, error.counts, seconds)
        await publish_event(conn, event)
        outcome = Outcome("held", detail={"lists": preview["lists"]}, message=error.message)
        await context.conclude(conn, outcome)
    await _clean_up(context)
    return outcome


async def _remove_stale_files(context: RunContext) -> None:
    """Remove files of runs that are neither active nor waiting for a decision."""
    work = working_folder(context.settings, "*")
    await remove_stale_folders(context.store, context.settings, context.run_id, work)
    await remove_decided_inputs(context.store, context.settings)


SYNC = Job(
    NAME,
    run,
    msg("Fetches both taxpayer lists and updates einvoice and edespatch."),
    cron="0 3,9,15,21 * * *",
    options={"pk": Location, "gb": Location, "approve": Annotated[int, Field(ge=1, le=2**62)]},
    source=SOURCE,
    machine=machine_of_held,
)
