"""The job `gib_sync`: fetch both lists, synchronise, and keep what the guard holds."""

import asyncio
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import psycopg
from psycopg.types.json import Jsonb
from pydantic import Field

from hasat.deliver import Event, announce
from hasat.errors import ConflictError, HasatError, NotFoundError
from hasat.feed.guard import Counts
from hasat.feed.reconcile import BusyError
from hasat.jobs import Job, Outcome, RunContext
from hasat.settings import Settings
from hasat.sources.gib.datasets import SOURCE
from hasat.sources.gib.errors import ListError
from hasat.sources.gib.events import (
    guard_triggered,
    sync_failed,
    sync_skipped,
)
from hasat.sources.gib.fetching import forget, obtain
from hasat.sources.gib.memory import give_back
from hasat.sources.gib.parts import BOXES
from hasat.sources.gib.search_rows import order_search
from hasat.sources.gib.sync import HeldBackError, Report, synchronise, working_folder
from hasat.store import Store
from hasat.store.statements import statement

NAME = "gib_sync"
_ROOM = "hasat.sources.gib"
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
    if approve is not None:
        lists = await held_lists(context.store, int(approve))
    else:
        await context.progress(0, None, "fetching the lists")
        lists = await _fetch(context)
    try:
        report = await synchronise(
            context.store,
            context.settings,
            lists,
            run=context.run_id,
            approving=None if approve is None else int(approve),
            tell=context.progress,
            conclude=lambda conn, report: context.conclude(conn, _outcome(report)),
        )
    except BusyError as error:
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


def _held_folder(settings: Settings) -> Path:
    return settings.home / "gib" / "held"


async def reject(store: Store, run: int) -> None:
    """Drop a held run; only one that waits can be decided."""
    async with store.connection() as conn:
        cursor = await conn.execute(
            "UPDATE gib.held SET state = 'rejected', decided_at = clock_timestamp()"
            " WHERE run = %s AND state = 'waiting' RETURNING run",
            [run],
        )
        if await cursor.fetchone() is None:
            raise await _cannot_decide(store, run)


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
                box: group.create_task(obtain(source, box, folder, timeout_seconds=seconds))
                for box, source in sources.items()
            }
    except ExceptionGroup as failed:
        # One reason is enough; the other download was given up with it.
        raise failed.exceptions[0] from None
    context.spent(sum("://" in source for source in sources.values()))
    return {box: task.result() for box, task in getting.items()}


async def _tell(context: RunContext, *events: Event) -> None:
    """Announce by itself what no transaction of the sync can; failing at it changes nothing."""
    try:
        async with context.store.connection() as conn:
            for event in events:
                await announce(conn, event)
    except (HasatError, psycopg.Error) as error:
        context.log.warning("nobody could be told", reason=str(error))


async def _hold(
    context: RunContext, error: HeldBackError, lists: Mapping[str, Path], began: float
) -> Outcome:
    """Keep the lists as they are, so that approving applies exactly what was looked at.

    Where nobody decides, only the newest few wait: lists are large.
    """
    folder = _held_folder(context.settings) / str(context.run_id)
    folder.mkdir(parents=True, exist_ok=True)
    for box in BOXES:
        await asyncio.to_thread(shutil.copyfile, lists[box], folder / box)
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
            "INSERT INTO gib.held (run, preview, folder) VALUES (%s, %s, %s)",
            [context.run_id, Jsonb(preview), str(folder)],
        )
        await conn.execute(statement(_ROOM, "supersede_held"), {"most": _MOST_WAITING})
        took = time.monotonic() - began
        await announce(conn, guard_triggered(context.run_id, error.measures, error.counts, took))
        outcome = Outcome("held", detail={"lists": preview["lists"]}, message=error.message)
        await context.conclude(conn, outcome)
    await _tidy_up(context)
    return outcome


async def _sweep(context: RunContext) -> None:
    """Remove what runs left on this machine that neither work nor wait for a decision."""
    async with context.store.connection() as conn:
        cursor = await conn.execute(statement(_ROOM, "runs_with_folders"))
        kept = {str(run) for (run,) in await cursor.fetchall()} | {str(context.run_id)}
    held = _held_folder(context.settings).glob("*")
    worked_in = working_folder(context.settings, "*")
    for folder in (*held, *worked_in.parent.glob(worked_in.name)):
        if folder.name.rpartition("-")[2] not in kept:
            await asyncio.to_thread(shutil.rmtree, folder, True)


async def held_lists(store: Store, run: int) -> dict[str, Path]:
    """The lists of a run that waits for a decision; raises if there is nothing to decide."""
    async with store.connection() as conn:
        cursor = await conn.execute("SELECT state, folder FROM gib.held WHERE run = %s", [run])
        row = await cursor.fetchone()
    if row is None or row[0] != "waiting":
        raise await _cannot_decide(store, run)
    lists = {box: Path(row[1]) / box for box in BOXES}
    if missing := [str(path) for path in lists.values() if not path.is_file()]:
        raise NotFoundError(
            f"The lists of run {run} are not on this machine: {', '.join(missing)}.",
            remedy="Approve it on the machine where it was held, or synchronise again.",
        )
    return lists


async def _cannot_decide(store: Store, run: int) -> ConflictError | NotFoundError:
    async with store.connection() as conn:
        cursor = await conn.execute("SELECT state FROM gib.held WHERE run = %s", [run])
        row = await cursor.fetchone()
    if row is None:
        return NotFoundError(
            f"There is no held run {run}.", remedy="`hasat gib runs` shows which ones are."
        )
    return ConflictError(f"Run {run} does not wait for a decision: it is {row[0]}.")


SYNC = Job(
    NAME,
    run,
    "Fetches both taxpayer lists and brings einvoice and edespatch to what they say.",
    cron="0 3,9,15,21 * * *",
    options={"pk": str, "gb": str, "approve": Annotated[int, Field(ge=1, le=2**62)]},
    source=SOURCE,
)
