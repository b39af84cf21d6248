"""The job `gib_sync`: fetch both lists, synchronise, and store the lists of held runs."""

import asyncio
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psycopg
from psycopg import AsyncConnection

from hasat.budget import Budget
from hasat.deliver import Event, publish_event
from hasat.errors import ConflictError, HasatError, NotFoundError
from hasat.feed.holds import GuardError, counts_json
from hasat.feed.raw import mark_applied
from hasat.feed.reconcile import BusyError
from hasat.fetch import RequestContext
from hasat.fetch.downloads import Downloader
from hasat.jobs import Outcome, RunContext
from hasat.messages import msg
from hasat.settings import Settings
from hasat.sources.gib.datasets import SOURCE
from hasat.sources.gib.lists.errors import ListError
from hasat.sources.gib.lists.lines import BOXES
from hasat.sources.gib.search import enqueue_search_index
from hasat.sources.gib.settings import GibSettings, gib_upstream
from hasat.sources.gib.sync.declaration import NAME
from hasat.sources.gib.sync.downloads import (
    expire_raw_lists,
    fetch_list,
    invalidate_list,
    is_download,
    store_raw_list,
)
from hasat.sources.gib.sync.events import (
    sync_failed,
    sync_skipped,
)
from hasat.sources.gib.sync.processes import release_memory
from hasat.sources.gib.sync.sync import synchronise, working_folder
from hasat.sources.gib.sync.task import SyncReport

LANE = "daily"


async def run(context: RunContext) -> Outcome:
    """Synchronise once; `pk` and `gb` replace the lists."""
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
    if context.approving is None:
        await context.progress(0, None, msg("fetching the lists"))
        lists, raw = await _fetch(context)
        return await _synchronise(context, lists, began, raw)
    async with context.inputs() as lists:
        raw = await _store_raw(context, lists)
        return await _synchronise(context, lists, began, raw)


async def _synchronise(
    context: RunContext, lists: Mapping[str, Path], began: float, raw: Sequence[int] = ()
) -> Outcome:
    async def record(conn: AsyncConnection[Any], report: SyncReport) -> None:
        for number in raw:
            await mark_applied(conn, number)
        await context.conclude(conn, _outcome(report))

    try:
        report = await synchronise(
            context.store,
            context.settings,
            lists,
            run=context.run_id,
            approving=context.approving,
            progress=context.progress,
            record_report=record,
        )
    except BusyError as error:
        if not context.is_retry:
            await _publish_events(context, sync_skipped(time.monotonic() - began))
        return Outcome("skipped", message=error.message)
    except ListError:
        for box in BOXES:
            invalidate_list(box, downloads_folder(context.settings))
        raise
    except GuardError as error:
        # An approval applies exactly the lists that the guard has measured.
        error.inputs = {box: lists[box] for box in BOXES}
        outcome = await context.hold(error)
        await _clean_up(context)
        return outcome
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
        await expire_raw_lists(context, BOXES)
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
            name: {**counts_json(count), "head": report.version.heads[name]}
            for name, count in report.version.counts.items()
        },
    }


def downloads_folder(settings: Settings) -> Path:
    return settings.home / "gib" / "lists"


async def _fetch(context: RunContext) -> tuple[dict[str, Path], list[int]]:
    """Return the files of both lists, and the raw responses of those that were downloaded."""
    gib = context.settings.section(GibSettings)
    sources = _sources(context)
    folder = downloads_folder(context.settings)
    seconds = gib.download_timeout.total_seconds()
    limits = gib_upstream(context.settings)
    async with Budget(context.store, limits, waiting=context.waiting) as budget:
        downloader = Downloader(budget, RequestContext(LANE, NAME, context.run_id))
        try:
            async with asyncio.TaskGroup() as group:
                downloads = {
                    box: group.create_task(
                        fetch_list(
                            downloader,
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
        finally:
            context.count_requests(downloader.sent)
    lists = {box: task.result() for box, task in downloads.items()}
    return lists, await _store_raw(context, lists)


def _sources(context: RunContext) -> dict[str, str]:
    """Return where each list comes from: `pk` and `gb` of the run, or the settings."""
    gib = context.settings.section(GibSettings)
    return {
        "PK": str(context.params.get("pk") or gib.pk_list_url),
        "GB": str(context.params.get("gb") or gib.gb_list_url),
    }


async def _store_raw(context: RunContext, lists: Mapping[str, Path]) -> list[int]:
    """Store the lists that were downloaded as raw responses, and return their numbers."""
    return [
        await store_raw_list(context, box, source, lists[box])
        for box, source in _sources(context).items()
        if is_download(source)
    ]


async def _publish_events(context: RunContext, *events: Event) -> None:
    """Publish events outside of the sync's transaction; a failure is only logged."""
    try:
        async with context.store.connection() as conn:
            for event in events:
                await publish_event(conn, event)
    except (HasatError, psycopg.Error) as error:
        context.log.warning("sync.event_not_published", error=str(error))


async def _remove_stale_files(context: RunContext) -> None:
    """Remove files of syncs on this machine that are not active."""
    async with context.store.connection() as conn:
        cursor = await conn.execute("SELECT id FROM jobs.run WHERE state <> 'finished'")
        active = {str(one) for (one,) in await cursor.fetchall()} | {str(context.run_id)}
    work = working_folder(context.settings, "*")
    # gib/held is where earlier versions stored the lists of held runs.
    old = (context.settings.home / SOURCE / "held").glob("*")
    for folder in (*old, *work.parent.glob(work.name)):
        if folder.name.rpartition("-")[2] not in active:
            await asyncio.to_thread(shutil.rmtree, folder, True)
