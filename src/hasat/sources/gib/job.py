"""The job `gib_sync`: fetch both lists, synchronise, and keep what the guard holds."""

import asyncio
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from psycopg.types.json import Jsonb

from hasat.errors import ConflictError, NotFoundError
from hasat.feed.reconcile import BusyError
from hasat.jobs import Job, Outcome, RunContext
from hasat.settings import Settings
from hasat.sources.gib.datasets import SOURCE
from hasat.sources.gib.fetching import obtain
from hasat.sources.gib.state import BOXES
from hasat.sources.gib.sync import HeldBackError, Report, synchronise
from hasat.store import Store

NAME = "gib_sync"


async def run(context: RunContext) -> Outcome:
    """Synchronise once; `pk` and `gb` name other lists, `approve` a run that was held."""
    approve = context.params.get("approve")
    if approve is not None:
        lists = await _held_lists(context.store, int(approve))
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
        )
    except BusyError as error:
        return Outcome("skipped", message=error.message)
    except HeldBackError as error:
        await _hold(context, error, lists)
        return Outcome(
            "held",
            detail={"lists": {k: asdict(v) for k, v in error.lists.items()}},
            message=error.message,
        )
    if approve is not None:
        await asyncio.to_thread(shutil.rmtree, held_folder(context.settings, int(approve)), True)
    return Outcome(
        "done" if report.outcome == "committed" else "nothing",
        rows_changed=sum(count.total for count in report.version.counts.values()),
        detail=told(report),
    )


def told(report: Report) -> dict[str, Any]:
    """A report in the form of the command's JSON."""
    return {
        "outcome": report.outcome,
        "seconds": report.seconds,
        "lists": {name: asdict(one) for name, one in report.lists.items()},
        "datasets": {
            name: {
                "added": count.added,
                "modified": count.modified,
                "removed": count.removed,
                "total": count.records + count.added - count.removed,
                "head": report.version.heads[name],
            }
            for name, count in report.version.counts.items()
        },
    }


def held_folder(settings: Settings, run: int) -> Path:
    return settings.home / "gib" / "held" / str(run)


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
    folder = context.settings.home / "gib" / "lists"
    seconds = gib.download_timeout.total_seconds()
    async with asyncio.TaskGroup() as group:
        getting = {
            box: group.create_task(obtain(source, box, folder, timeout_seconds=seconds))
            for box, source in sources.items()
        }
    context.spent(sum("://" in source for source in sources.values()))
    return {box: task.result() for box, task in getting.items()}


async def _hold(context: RunContext, error: HeldBackError, lists: Mapping[str, Path]) -> None:
    """Keep the lists as they are, so that approving applies exactly what was looked at."""
    folder = held_folder(context.settings, context.run_id)
    folder.mkdir(parents=True, exist_ok=True)
    for box in BOXES:
        await asyncio.to_thread(shutil.copyfile, lists[box], folder / box)
    preview = {
        "measures": [
            {**asdict(measure), "exceeded": measure.exceeded} for measure in error.measures
        ],
        "lists": {name: asdict(one) for name, one in error.lists.items()},
    }
    async with context.store.connection() as conn:
        await conn.execute(
            "INSERT INTO gib.held (run, preview, folder) VALUES (%s, %s, %s)",
            [context.run_id, Jsonb(preview), str(folder)],
        )


async def _held_lists(store: Store, run: int) -> dict[str, Path]:
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
            f"Run {run} was not held.", remedy="`hasat gib runs` shows which ones are."
        )
    return ConflictError(f"Run {run} does not wait for a decision: it is {row[0]}.")


SYNC = Job(
    NAME,
    run,
    "Fetches both taxpayer lists and brings einvoice and edespatch to what they say.",
    cron="0 3,9,15,21 * * *",
    source=SOURCE,
)
