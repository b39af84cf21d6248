"""The full load: both lists read, merged and copied in bounded memory by several processes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from hasat.feed.dataset import Dataset
from hasat.feed.encoding import Chunk, copy_binary
from hasat.feed.guard import Counts
from hasat.feed.reconcile import ChunkWriter
from hasat.messages import msg
from hasat.sources.gib.datasets import DATASETS, EINVOICE
from hasat.sources.gib.lists.changes import Unreadable
from hasat.sources.gib.lists.lines import BOXES
from hasat.sources.gib.sync.partitions import (
    MergedPartition,
    PartitionedList,
    Rows,
    clear_partitions,
    combine_shares,
    merge_partition,
    partition_count,
    partition_list,
    partition_stored_lines,
)
from hasat.sources.gib.sync.state import ListState, count_duplicates, new_seed, sort_arrays
from hasat.sources.gib.sync.task import LoadResult, SyncTask

_FETCH_SIZE = 10_000

LinesWriter = Callable[[Path], Awaitable[None]]
"""Copies a file of taxpayers' lines into the database."""


async def load_everything(
    task: SyncTask, targets: Mapping[str, ChunkWriter] | None = None
) -> LoadResult:
    """Load all taxpayers of both lists into the reconcile, and store their lines.

    With `targets`, the rows of each dataset go there instead, and no changes are counted.
    """
    seeds = {box: new_seed() for box in BOXES}
    count = partition_count(task.lists.values(), task.batch_size)
    found = await asyncio.gather(*(_partition(task, box, seeds[box], count) for box in BOXES))
    lists = dict(zip(BOXES, found, strict=True))
    unreadable = {box: Unreadable.of(found.quarantined) for box, found in lists.items()}
    if task.states and any(unreadable.values()):
        await _partition_stored_lines(task, count)
    fingerprints: dict[str, list[bytes]] = {box: [] for box in BOXES}
    identifiers: dict[str, list[bytes]] = {box: [] for box in BOXES}
    async with _tables(task, targets) as (write, write_lines):
        async for merged in _merge(task, count, unreadable):
            for name, rows in merged.rows.items():
                await write[name](_take(rows))
            await write_lines(merged.lines)
            for box in BOXES:
                fingerprints[box].append(merged.fingerprints[box])
                identifiers[box].append(merged.identifiers[box])
        # The arrays are sorted while PostgreSQL builds its indexes.
        states = asyncio.create_task(
            asyncio.to_thread(_states, task, lists, seeds, fingerprints, identifiers)
        )
    return LoadResult(
        {} if targets else {dataset.name: await _counts(task, dataset) for dataset in DATASETS},
        {box: found.tally for box, found in lists.items()},
        await states,
        {box: found.quarantined for box, found in lists.items()},
    )


def _states(
    task: SyncTask,
    lists: Mapping[str, PartitionedList],
    seeds: Mapping[str, int],
    fingerprints: dict[str, list[bytes]],
    identifiers: dict[str, list[bytes]],
) -> dict[str, ListState]:
    states = {}
    for box in BOXES:
        tally = lists[box].tally
        owners = b"".join(identifiers.pop(box))
        states[box] = ListState(
            box,
            task.run,
            tally.users,
            tally.quarantined,
            count_duplicates(owners),
            tally.bytes,
            tally.usual_length,
            sorted(tally.agreed),
            task.hashes[box],
            seeds[box],
            *sort_arrays(b"".join(fingerprints.pop(box)), owners),
        )
    return states


async def _partition(task: SyncTask, box: str, seed: int, count: int) -> PartitionedList:
    """Write a list to partition files, using all workers if the list can be shared."""
    path, name = task.lists[box], task.list_name(box)

    async def read_shares(shares: int) -> list[PartitionedList | None]:
        return await asyncio.gather(
            *(
                task.pool.run(
                    partition_list,
                    path,
                    name,
                    task.folder,
                    box,
                    seed,
                    count,
                    (share, shares),
                    task.agreed_doubts(box),
                )
                for share in range(shares)
            )
        )

    shares = await read_shares(task.pool.shares)
    if None in shares:
        await asyncio.to_thread(clear_partitions, task.folder, box)
        shares = await read_shares(1)
    return await asyncio.to_thread(
        combine_shares, [share for share in shares if share], name, task.folder, box, count
    )


@asynccontextmanager
async def _tables(
    task: SyncTask, targets: Mapping[str, ChunkWriter] | None
) -> AsyncIterator[tuple[Mapping[str, ChunkWriter], LinesWriter]]:
    """Open all tables at once, so that PostgreSQL copies while other partitions are merged."""
    # Three primary keys are built in this transaction; this limits the memory for them.
    await task.work.connection.execute("SET LOCAL maintenance_work_mem = '64MB'")
    # Flush copied pages continuously instead of at the commit.
    await task.work.connection.execute("SET LOCAL backend_flush_after = '1MB'")
    first = task.work.is_empty(EINVOICE)
    async with AsyncExitStack() as stack:
        write = dict(targets or {})
        for dataset in () if targets else DATASETS:
            table = task.work.loading(dataset) if first else task.work.staging(dataset)
            write[dataset.name] = await stack.enter_async_context(table)
        yield write, await stack.enter_async_context(_replacing_lines(task))


async def _counts(task: SyncTask, dataset: Dataset) -> Counts:
    if task.work.is_empty(dataset):
        return task.work.counts[dataset.name]
    return await task.work.diff(dataset)


async def _merge(
    task: SyncTask, count: int, unreadable: Mapping[str, Unreadable]
) -> AsyncIterator[MergedPartition]:
    merging = [
        asyncio.ensure_future(task.pool.run(merge_partition, task.folder, number, unreadable))
        for number in range(count)
    ]
    try:
        for number, one in enumerate(merging):
            merged = await one
            await task.progress(number, count, msg("merging and copying"))
            yield merged
    finally:
        for one in merging:
            one.cancel()
        # PostgreSQL needs the memory of the idle workers to build indexes.
        task.pool.close()


def _take(rows: Rows) -> Chunk:
    """Return the rows of a file and delete the file."""
    chunk = Chunk(rows.path.read_bytes(), rows.records, rows.weight)
    rows.path.unlink()
    return chunk


async def _partition_stored_lines(task: SyncTask, count: int) -> None:
    """Write the lines of the last run to partition files, for taxpayers with unreadable records."""
    async with task.work.connection.cursor("stored_lines") as cursor:
        await cursor.execute("SELECT identifier, parts FROM gib.taxpayer")
        while rows := await cursor.fetchmany(_FETCH_SIZE):
            await asyncio.to_thread(partition_stored_lines, task.folder, count, rows)


@asynccontextmanager
async def _replacing_lines(task: SyncTask) -> AsyncIterator[LinesWriter]:
    """Replace the stored lines of all taxpayers; only a sync reads them, so a lock is harmless."""
    conn = task.work.connection

    async def write(file: Path) -> None:
        command = "COPY gib.taxpayer (identifier, parts) FROM STDIN (FORMAT BINARY)"
        await copy_binary(conn, command, file.read_bytes())
        file.unlink()

    await conn.execute("TRUNCATE gib.taxpayer")
    await conn.execute("ALTER TABLE gib.taxpayer DROP CONSTRAINT taxpayer_pkey")
    yield write
    await conn.execute(
        "ALTER TABLE gib.taxpayer ADD CONSTRAINT taxpayer_pkey PRIMARY KEY (identifier)"
    )
