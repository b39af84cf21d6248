"""Reading and merging everything, in bounded memory and on both cores."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hasat.feed.copying import COPY_HEADER, COPY_TRAILER, Chunk
from hasat.feed.guard import Counts
from hasat.sources.gib.bulk import SHELVES, Shelved, shelve
from hasat.sources.gib.bulk_merge import MergedShelf, merge_shelf, shelve_old
from hasat.sources.gib.datasets import EDESPATCH, EINVOICE
from hasat.sources.gib.opening import open_list
from hasat.sources.gib.reading import Unreadable
from hasat.sources.gib.records import SetAside
from hasat.sources.gib.splitting import Tally
from hasat.sources.gib.state import BOXES, ListState, new_seed

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


def shelve_list(path: Path, name: str, folder: Path, box: str, seed: int) -> Shelved:
    """Lay a list on the shelves; runs in a process of its own."""
    return shelve(open_list(path, name), folder, box, seed)


async def load_everything(task: "Task", *, spare: bool) -> Loaded:
    """Put all taxpayers of both lists into the reconcile, and keep their parts."""
    seeds = {box: new_seed() for box in BOXES}
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
                    )
                    for box in BOXES
                )
            ),
            strict=True,
        )
    )
    unreadable = {box: Unreadable.of(found.set_aside) for box, found in shelved.items()}
    if spare and any(unreadable.values()):
        await _shelve_kept_parts(task)
    merging = _Merging(task, unreadable)
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
            b"".join(merging.fingerprints[box]),
            b"".join(merging.identifiers[box]),
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
    """Shelves as they are merged: rows of the one dataset at once, the rest laid down for later."""

    def __init__(self, task: "Task", unreadable: dict[str, Unreadable]) -> None:
        self._task = task
        self._unreadable = unreadable
        self._later: list[tuple[Path, int, int]] = []
        self.taxpayers: list[Path] = []
        self.fingerprints: dict[str, list[bytes]] = {box: [] for box in BOXES}
        self.identifiers: dict[str, list[bytes]] = {box: [] for box in BOXES}

    async def einvoice(self) -> AsyncIterator[Chunk]:
        waiting = [
            asyncio.ensure_future(
                self._task.elsewhere.run(merge_shelf, self._task.folder, number, self._unreadable)
            )
            for number in range(SHELVES)
        ]
        try:
            for number, merged in enumerate(waiting):
                shelf = await merged
                await self._task.tell(number, SHELVES, "merging and copying")
                self._lay_down(shelf, number)
                yield shelf.rows["einvoice"]
        finally:
            for merged in waiting:
                merged.cancel()

    async def edespatch(self) -> AsyncIterator[Chunk]:
        for path, records, weight in self._later:
            yield Chunk(path.read_bytes(), records, weight)
            path.unlink()

    def _lay_down(self, shelf: MergedShelf, number: int) -> None:
        later = shelf.rows["edespatch"]
        path = self._task.folder / f"edespatch.{number:02d}"
        path.write_bytes(later.rows)
        self._later.append((path, later.records, later.weight))
        self.taxpayers.append(shelf.taxpayers)
        for box in BOXES:
            self.fingerprints[box].append(shelf.fingerprints[box])
            self.identifiers[box].append(shelf.identifiers[box])


async def _shelve_kept_parts(task: "Task") -> None:
    """Some records are unreadable: whoever they may be keeps what was known of him."""
    async with task.work.connection.cursor("kept_parts") as cursor:
        await cursor.execute("SELECT identifier, parts FROM gib.taxpayer")
        while rows := await cursor.fetchmany(_ROWS_AT_ONCE):
            await asyncio.to_thread(shelve_old, task.folder, rows)


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
