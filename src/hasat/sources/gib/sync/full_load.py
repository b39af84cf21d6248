"""Reading and merging everything, in bounded memory and on both cores."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hasat.feed.dataset import Dataset
from hasat.feed.encoding import Chunk, copy_binary
from hasat.feed.guard import Counts
from hasat.feed.reconcile import ChunkWriter
from hasat.messages import msg
from hasat.sources.gib.datasets import DATASETS, EINVOICE
from hasat.sources.gib.lists.lines import BOXES
from hasat.sources.gib.lists.reader import Tally
from hasat.sources.gib.lists.records import SetAside
from hasat.sources.gib.sync.incremental import Unreadable
from hasat.sources.gib.sync.partitions import (
    MergedShelf,
    Rows,
    Shelved,
    clear_shelves,
    merge_shelf,
    shelve_doubtful,
    shelve_list,
    shelve_old,
    shelves_for,
)
from hasat.sources.gib.sync.state import ListState, duplicates_in, in_order, new_seed

if TYPE_CHECKING:
    from hasat.sources.gib.sync.sync import _Task as Task


_ROWS_AT_ONCE = 10_000

Keep = Callable[[Path], Awaitable[None]]
"""Takes the file of some taxpayers' lines."""


@dataclass(frozen=True)
class Loaded:
    """What was put into the reconcile."""

    counts: dict[str, Counts]
    count_deliveries: dict[str, Tally]
    states: dict[str, ListState]
    set_aside: dict[str, list[SetAside]]


async def load_everything(task: "Task", *, spare: bool) -> Loaded:
    """Put all taxpayers of both lists into the reconcile, and keep their parts."""
    seeds = {box: new_seed() for box in BOXES}
    shelves = shelves_for(task.lists.values(), task.batch_size)
    found = await asyncio.gather(*(_shelve(task, box, seeds[box], shelves) for box in BOXES))
    shelved = dict(zip(BOXES, found, strict=True))
    unreadable = {box: Unreadable.of(found.set_aside) for box, found in shelved.items()}
    if spare and any(unreadable.values()):
        await _shelve_kept_parts(task, shelves)
    fingerprints: dict[str, list[bytes]] = {box: [] for box in BOXES}
    identifiers: dict[str, list[bytes]] = {box: [] for box in BOXES}
    async with _tables(task) as (put, keep):
        async for merged in _merged(task, shelves, unreadable):
            for name, rows in merged.rows.items():
                await put[name](_taken(rows))
            await keep(merged.taxpayers)
            for box in BOXES:
                fingerprints[box].append(merged.fingerprints[box])
                identifiers[box].append(merged.identifiers[box])
        # Put in order while PostgreSQL builds its indexes.
        states = asyncio.create_task(
            asyncio.to_thread(_states, task, shelved, seeds, fingerprints, identifiers)
        )
    return Loaded(
        {dataset.name: await _counts(task, dataset) for dataset in DATASETS},
        {box: found.tally for box, found in shelved.items()},
        await states,
        {box: found.set_aside for box, found in shelved.items()},
    )


def _states(
    task: "Task",
    shelved: dict[str, Shelved],
    seeds: dict[str, int],
    fingerprints: dict[str, list[bytes]],
    identifiers: dict[str, list[bytes]],
) -> dict[str, ListState]:
    found = {}
    for box in BOXES:
        whose = b"".join(identifiers.pop(box))
        found[box] = ListState(
            box,
            task.run,
            shelved[box].tally.users,
            shelved[box].tally.set_aside,
            duplicates_in(whose),
            shelved[box].tally.bytes,
            shelved[box].tally.usual_length,
            sorted(shelved[box].tally.agreed),
            task.hashes[box],
            seeds[box],
            *in_order(b"".join(fingerprints.pop(box)), whose),
        )
    return found


async def _shelve(task: "Task", box: str, seed: int, shelves: int) -> Shelved:
    """Lay a list on the shelves, by as many processes as there are."""

    async def by(count: int) -> list[Shelved | None]:
        path, name = task.lists[box], f"The {box} list"
        return await asyncio.gather(
            *(
                task.elsewhere.run(
                    shelve_list,
                    path,
                    name,
                    task.folder,
                    box,
                    seed,
                    shelves,
                    (share, count),
                    task.agreed(box),
                )
                for share in range(count)
            )
        )

    shares = await by(task.elsewhere.shares)
    if None in shares:
        await asyncio.to_thread(clear_shelves, task.folder, box)
        shares = await by(1)
    return await asyncio.to_thread(
        shelve_doubtful,
        [share for share in shares if share],
        f"The {box} list",
        task.folder,
        box,
        shelves,
    )


@asynccontextmanager
async def _tables(task: "Task") -> AsyncIterator[tuple[dict[str, ChunkWriter], Keep]]:
    """Where rows go: all tables side by side, so that PostgreSQL has work while others merge."""
    # Three primary keys are built in this transaction, and the whole run is to stay small.
    await task.work.connection.execute("SET LOCAL maintenance_work_mem = '64MB'")
    # What is copied goes to the disk meanwhile, not all of it at the commit.
    await task.work.connection.execute("SET LOCAL backend_flush_after = '1MB'")
    first = task.work.is_empty(EINVOICE)
    async with AsyncExitStack() as stack:
        put = {}
        for dataset in DATASETS:
            table = task.work.loading(dataset) if first else task.work.staging(dataset)
            put[dataset.name] = await stack.enter_async_context(table)
        yield put, await stack.enter_async_context(_keeping_parts(task))


async def _counts(task: "Task", dataset: Dataset) -> Counts:
    if task.work.is_empty(dataset):
        return task.work.counts[dataset.name]
    return await task.work.diff(dataset)


async def _merged(
    task: "Task", shelves: int, unreadable: dict[str, Unreadable]
) -> AsyncIterator[MergedShelf]:
    waiting = [
        asyncio.ensure_future(task.elsewhere.run(merge_shelf, task.folder, number, unreadable))
        for number in range(shelves)
    ]
    try:
        for number, merging in enumerate(waiting):
            merged = await merging
            await task.tell(number, shelves, msg("merging and copying"))
            yield merged
    finally:
        for merging in waiting:
            merging.cancel()
        # Idle, they would hold their memory while PostgreSQL needs some to build indexes.
        task.elsewhere.end()


def _taken(rows: Rows) -> Chunk:
    """Rows from their file, which then goes."""
    chunk = Chunk(rows.path.read_bytes(), rows.records, rows.weight)
    rows.path.unlink()
    return chunk


async def _shelve_kept_parts(task: "Task", shelves: int) -> None:
    """Some records are unreadable: whoever they may be keeps what was known of him."""
    async with task.work.connection.cursor("kept_parts") as cursor:
        await cursor.execute("SELECT identifier, parts FROM gib.taxpayer")
        while rows := await cursor.fetchmany(_ROWS_AT_ONCE):
            await asyncio.to_thread(shelve_old, task.folder, shelves, rows)


@asynccontextmanager
async def _keeping_parts(task: "Task") -> AsyncIterator[Keep]:
    """Nobody but a sync reads the table, so it can be locked and made anew."""
    conn = task.work.connection

    async def keep(file: Path) -> None:
        command = "COPY gib.taxpayer (identifier, parts) FROM STDIN (FORMAT BINARY)"
        await copy_binary(conn, command, file.read_bytes())
        file.unlink()

    await conn.execute("TRUNCATE gib.taxpayer")
    await conn.execute("ALTER TABLE gib.taxpayer DROP CONSTRAINT taxpayer_pkey")
    yield keep
    await conn.execute(
        "ALTER TABLE gib.taxpayer ADD CONSTRAINT taxpayer_pkey PRIMARY KEY (identifier)"
    )
