"""Held runs: their stored lists, and the decision about them."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import structlog
from psycopg import AsyncConnection
from psycopg.rows import class_row, dict_row

from hasat.errors import ConflictError, HasatError, NotFoundError
from hasat.feed.held_input import (
    HeldInput,
    describe_input,
    loaded_input,
    remove_input,
    store_input,
)
from hasat.messages import msg
from hasat.settings import Settings
from hasat.sources.gib.datasets import SOURCE
from hasat.sources.gib.lists.lines import BOXES
from hasat.store import Store
from hasat.store.audit import record_action
from hasat.store.home import machine_of
from hasat.store.queries import load_query

log = structlog.get_logger(__name__)

_PACKAGE = "hasat.sources.gib"
_COLUMNS = "path, sha256, size, machine"


async def store_lists(
    store: Store, settings: Settings, run: int, lists: Mapping[str, Path]
) -> None:
    """Store the lists of a run that is about to be held."""
    for box in BOXES:
        held = await describe_input(settings, SOURCE, run, box, lists[box])
        async with store.connection() as conn:
            await conn.execute(
                load_query(_PACKAGE, "save_held_input"), {"run": run, "name": box, **asdict(held)}
            )
        await store_input(settings, held, lists[box])


@asynccontextmanager
async def held_lists(
    store: Store, settings: Settings, held_run: int, *, run: int
) -> AsyncIterator[dict[str, Path]]:
    """Provide the lists of a waiting run to the run that applies it; raise on other machines."""
    async with store.connection() as conn:
        inputs = await _inputs(conn, held_run)
    for held in inputs.values():
        if not held.is_at(settings):
            raise ConflictError(
                msg(
                    "The lists of run {held_run} are on the machine {machine}.",
                    held_run=held_run,
                    machine=held.machine,
                ),
                remedy=msg(
                    "`hasat gib approve {held_run}` queues the approval for a worker there.",
                    held_run=held_run,
                ),
            )
    async with loaded_input(settings, inputs, run) as lists:
        yield lists


async def machine_of_held(conn: AsyncConnection[Any], params: Mapping[str, Any]) -> str | None:
    """Return the machine that an approval needs; raise if there is nothing to decide."""
    if params.get("approve") is None:
        return None
    inputs = await _inputs(conn, int(params["approve"]))
    return next((held.machine for held in inputs.values()), None)


async def reject(store: Store, settings: Settings, run: int) -> None:
    """Reject a held run that waits for a decision; raise for any other."""
    async with store.connection() as conn:
        cursor = await conn.execute(
            "UPDATE gib.held SET state = 'rejected', decided_at = clock_timestamp()"
            " WHERE run = %s AND state = 'waiting' RETURNING run",
            [run],
        )
        if await cursor.fetchone() is None:
            raise await _cannot_decide(conn, run)
        await record_action(conn, run)
    await remove_decided_inputs(store, settings)


async def close_held_runs(conn: AsyncConnection[Any], approved: int | None) -> None:
    """Mark the approved run as such, and other waiting runs as superseded by the new state."""
    await conn.execute(load_query(_PACKAGE, "close_held_runs"), {"approved": approved})


async def remove_decided_inputs(store: Store, settings: Settings) -> None:
    """Remove stored lists of decided runs, on this machine and in the object store."""
    async with store.connection() as conn, conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(
            load_query(_PACKAGE, "decided_inputs"), {"machine": machine_of(settings.home)}
        )
        found = await cursor.fetchall()
    for row in found:
        run, name = row.pop("run"), row.pop("name")
        held = HeldInput(**row)
        if held.machine is None and settings.archives.provider != "S3":
            continue
        try:
            await remove_input(settings, held)
        except HasatError as error:
            # The record remains, and the next run tries again.
            log.warning("held_input.not_removed", run=run, name=name, error=error.message)
            continue
        async with store.connection() as conn:
            await conn.execute(
                "DELETE FROM gib.held_input WHERE run = %s AND name = %s", [run, name]
            )


async def remove_stale_folders(store: Store, settings: Settings, run: int, work: Path) -> None:
    """Remove folders on this machine that belong to no active run."""
    async with store.connection() as conn:
        cursor = await conn.execute("SELECT id FROM jobs.run WHERE state <> 'finished'")
        active = {str(one) for (one,) in await cursor.fetchall()} | {str(run)}
    # gib/held is where earlier versions stored the lists of held runs.
    old = (settings.home / SOURCE / "held").glob("*")
    loaded = (settings.home / "held").glob("run-*")
    for folder in (*old, *loaded, *work.parent.glob(work.name)):
        if folder.name.rpartition("-")[2] not in active:
            await asyncio.to_thread(shutil.rmtree, folder, True)


async def _inputs(conn: AsyncConnection[Any], run: int) -> dict[str, HeldInput]:
    cursor = await conn.execute("SELECT state FROM gib.held WHERE run = %s", [run])
    row = await cursor.fetchone()
    if row is None or row[0] != "waiting":
        raise await _cannot_decide(conn, run)
    found: dict[str, HeldInput] = {}
    async with conn.cursor(row_factory=class_row(HeldInput)) as inputs:
        for box in BOXES:
            await inputs.execute(
                f"SELECT {_COLUMNS} FROM gib.held_input WHERE run = %s AND name = %s",  # noqa: S608
                [run, box],
            )
            if (held := await inputs.fetchone()) is None:
                raise NotFoundError(
                    msg("The {box} list of run {run} is not stored.", box=box, run=run),
                    remedy=msg("Reject the run and synchronise again."),
                )
            found[box] = held
    return found


async def _cannot_decide(conn: AsyncConnection[Any], run: int) -> ConflictError | NotFoundError:
    cursor = await conn.execute("SELECT state FROM gib.held WHERE run = %s", [run])
    row = await cursor.fetchone()
    if row is None:
        return NotFoundError(
            msg("There is no held run {run}.", run=run),
            remedy=msg("`hasat gib runs` lists the held runs."),
        )
    return ConflictError(
        msg("Run {run} does not wait for a decision: it is {state}.", run=run, state=row[0])
    )
