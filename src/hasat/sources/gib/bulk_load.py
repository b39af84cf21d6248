"""Reading and merging everything, in bounded memory and on both cores."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hasat.feed.copying import COPY_HEADER, COPY_TRAILER, Chunk
from hasat.feed.guard import Counts
from hasat.sources.gib.bulk import shelve_list, shelves_for
from hasat.sources.gib.bulk_merge import MergedShelf, Rows, merge_shelf, shelve_old
from hasat.sources.gib.datasets import EDESPATCH, EINVOICE
from hasat.sources.gib.parts import BOXES
from hasat.sources.gib.reading import Unreadable
from hasat.sources.gib.records import SetAside
from hasat.sources.gib.splitting import Tally
from hasat.sources.gib.state import ListState, in_order, new_seed

if TYPE_CHECKING:
    from hasat.sources.gib.sync import _Task as Task

_ROWS_AT_ONCE = 10_000


@dataclass(frozen=True)
class Loaded:
    """What was put into the reconcile."""

    counts: dict[str, Counts]
    tallies: dict[str, Tally]
    states: dict[str, ListState]
    set_aside: dict[str, list[SetAside]]


async def load_everything(task: "Task", *, spare: bool) -> Loaded:
    """Put all taxpayers of both lists into the reconcile, and keep their parts."""
    seeds = {box: new_seed() for box in BOXES}
    shelves = shelves_for(task.lists.values(), task.batch_size)
    shelved = dict(
        zip(
            BOXES,
            await asyncio.gather(
                *(
                    task.elsewhere.run(
                        shelve_list,
                        task.lists[box],
                        f"The {box} list",
                        task.folder,
                        box,
                        seeds[box],
                        shelves,
                    )
                    for box in BOXES
                )
            ),
            strict=True,
        )
    )
    unreadable = {box: Unreadable.of(found.set_aside) for box, found in shelved.items()}
    if spare and any(unreadable.values()):
        await _shelve_kept_parts(task, shelves)
    # Three primary keys are built in this transaction, and the whole run is to stay small.
    await task.work.connection.execute("SET LOCAL maintenance_work_mem = '64MB'")
    merging = _Merging(task, shelves, unreadable)
    counts = {}
    if task.work.never_filled(EINVOICE):
        counts["einvoice"] = await task.work.load(EINVOICE, merging.einvoice())
        counts["edespatch"] = await task.work.load(EDESPATCH, merging.edespatch())
    else:
        await task.work.stage_chunks(EINVOICE, merging.einvoice())
        counts["einvoice"] = await task.work.diff(EINVOICE)
        await task.work.stage_chunks(EDESPATCH, merging.edespatch())
        counts["edespatch"] = await task.work.diff(EDESPATCH)
    await _keep_parts(task, merging.taxpayers)
    states = {
        box: ListState(
            box,
            task.run,
            shelved[box].tally.users,
            shelved[box].tally.bytes,
            task.hashes[box],
            seeds[box],
            *in_order(b"".join(merging.fingerprints[box]), b"".join(merging.identifiers[box])),
        )
        for box in BOXES
    }
    return Loaded(
        counts,
        {box: found.tally for box, found in shelved.items()},
        states,
        {box: found.set_aside for box, found in shelved.items()},
    )


class _Merging:
    """Shelves as they are merged: rows of the one dataset at once, the rest when that is done."""

    def __init__(self, task: "Task", shelves: int, unreadable: dict[str, Unreadable]) -> None:
        self._task = task
        self._shelves = shelves
        self._unreadable = unreadable
        self._later: list[Rows] = []
        self.taxpayers: list[Path] = []
        self.fingerprints: dict[str, list[bytes]] = {box: [] for box in BOXES}
        self.identifiers: dict[str, list[bytes]] = {box: [] for box in BOXES}

    async def einvoice(self) -> AsyncIterator[Chunk]:
        waiting = [
            asyncio.ensure_future(
                self._task.elsewhere.run(merge_shelf, self._task.folder, number, self._unreadable)
            )
            for number in range(self._shelves)
        ]
        try:
            for number, merging in enumerate(waiting):
                merged = await merging
                await self._task.tell(number, self._shelves, "merging and copying")
                self._note(merged)
                yield _taken(merged.rows["einvoice"])
        finally:
            for merging in waiting:
                merging.cancel()

    async def edespatch(self) -> AsyncIterator[Chunk]:
        for rows in self._later:
            yield _taken(rows)

    def _note(self, merged: MergedShelf) -> None:
        self._later.append(merged.rows["edespatch"])
        self.taxpayers.append(merged.taxpayers)
        for box in BOXES:
            self.fingerprints[box].append(merged.fingerprints[box])
            self.identifiers[box].append(merged.identifiers[box])


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


async def _keep_parts(task: "Task", files: list[Path]) -> None:
    """Nobody but a sync reads the table, so it can be locked and made anew."""
    conn: Any = task.work.connection
    await conn.execute("TRUNCATE gib.taxpayer")
    await conn.execute("ALTER TABLE gib.taxpayer DROP CONSTRAINT taxpayer_pkey")
    async with (
        conn.cursor() as cursor,
        cursor.copy("COPY gib.taxpayer (identifier, parts) FROM STDIN (FORMAT BINARY)") as copy,
    ):
        await copy.write(COPY_HEADER)
        for file in files:
            await copy.write(file.read_bytes())
        await copy.write(COPY_TRAILER)
    await conn.execute(
        "ALTER TABLE gib.taxpayer ADD CONSTRAINT taxpayer_pkey PRIMARY KEY (identifier)"
    )
