"""The incremental load: records that came or went, and the taxpayers they belong to."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from psycopg import AsyncConnection, sql

from hasat.feed.dataset import Scope
from hasat.feed.encoding import pack
from hasat.feed.reconcile import Record
from hasat.sources.gib.datasets import DATASETS
from hasat.sources.gib.lists.changes import ListChanges, Unreadable, read_changes
from hasat.sources.gib.lists.fingerprints import pack_identifiers
from hasat.sources.gib.lists.lines import BOXES, published_bodies
from hasat.sources.gib.lists.tally import Tally
from hasat.sources.gib.sync.state import (
    LinesByList,
    ListState,
    count_duplicates,
    load_irregular_identifiers,
    load_taxpayer_lines,
    store_taxpayer_lines,
)
from hasat.sources.gib.sync.task import LoadResult, SyncTask

# With more new records than this, a full load reads everything through files in bounded memory.
MAX_NEW_RECORDS = 50_000

_TOUCHED = Scope({"whole": True}, sql.SQL("m.key IN (SELECT key FROM touched)"))


async def read_all_changes(
    task: SyncTask, boxes: Sequence[str], max_new: int
) -> dict[str, ListChanges]:
    """Read these lists at the same time."""
    found = await asyncio.gather(
        *(
            task.pool.run(
                read_changes,
                task.lists[box],
                task.list_name(box),
                task.states[box].fingerprints,
                task.states[box].seed,
                task.agreed_doubts(box),
                max_new,
            )
            for box in boxes
        )
    )
    return dict(zip(boxes, found, strict=True))


async def load_changes(task: SyncTask, changes: Mapping[str, ListChanges]) -> LoadResult:
    """Merge the taxpayers with a changed record again, and stage the differences."""
    # Free the memory of the readers.
    task.pool.close()
    conn = task.work.connection
    touched = await _touched(task, changes)
    kept: dict[str, set[bytes]] = {box: set() for box in changes}
    async with AsyncExitStack() as stack:
        stage = {
            dataset.name: await stack.enter_async_context(task.work.staging(dataset))
            for dataset in DATASETS
        }
        for first in range(0, len(touched), task.batch_size):
            lines = await _lines_after(conn, touched[first : first + task.batch_size], changes)
            for name, records in _published(lines).items():
                await stage[name](pack(records))
            await store_taxpayer_lines(conn, lines)
            for box, change in changes.items():
                stored = (line[0] for by_list in lines.values() for line in by_list[box])
                kept[box].update(change.gone.intersection(stored))
    await _stage_touched(conn, touched)
    return LoadResult(
        {dataset.name: await task.work.diff(dataset, _TOUCHED) for dataset in DATASETS},
        {box: _tally(task, box, changes) for box in BOXES},
        {
            **task.states,
            **{box: _next_state(task, box, change, kept[box]) for box, change in changes.items()},
        },
        {box: change.quarantined for box, change in changes.items()},
    )


async def _touched(task: SyncTask, changes: Mapping[str, ListChanges]) -> list[str]:
    """Return the taxpayers with a record that came or went."""
    touched: set[str] = set()
    irregular = False
    for box, change in changes.items():
        owners, has_irregular = task.states[box].owners_of(change.gone)
        touched |= owners | change.new.keys()
        irregular |= has_irregular
    if irregular:
        touched |= await load_irregular_identifiers(task.work.connection)
    return list(touched)


async def _stage_touched(conn: AsyncConnection[Any], identifiers: Iterable[str]) -> None:
    """Store the scope of the diff in a temporary table."""
    await conn.execute('CREATE TEMP TABLE touched (key text COLLATE "C" NOT NULL) ON COMMIT DROP')
    async with conn.cursor() as cursor, cursor.copy("COPY touched FROM STDIN") as copy:
        for identifier in identifiers:
            await copy.write_row((identifier,))
    await conn.execute("ANALYZE touched")


async def _lines_after(
    conn: AsyncConnection[Any], identifiers: Sequence[str], changes: Mapping[str, ListChanges]
) -> dict[str, LinesByList]:
    """Return the lines that taxpayers have after this run."""
    stored = await load_taxpayer_lines(conn, identifiers)
    after: dict[str, LinesByList] = {}
    for identifier in identifiers:
        after[identifier] = dict(stored.get(identifier, {box: [] for box in BOXES}))
    for box, change in changes.items():
        unreadable = Unreadable.of(change.quarantined)
        for identifier, lines in after.items():
            new = change.new.get(identifier, [])
            lines[box] = unreadable.lines_after(identifier, lines[box], change.gone, new)
    return after


def _published(lines: Mapping[str, LinesByList]) -> dict[str, list[Record]]:
    """Return the published records of taxpayers with these lines, by dataset."""
    records: dict[str, list[Record]] = {dataset.name: [] for dataset in DATASETS}
    for identifier, by_list in lines.items():
        if any(by_list.values()):
            bodies = published_bodies(*([line for _, line in by_list[box]] for box in BOXES))
            for name, body in bodies.items():
                records[name].append(Record(identifier, body))
    return records


def _tally(task: SyncTask, box: str, changes: Mapping[str, ListChanges]) -> Tally:
    if box in changes:
        return changes[box].tally
    state = task.states[box]
    return Tally(state.users, state.rejected, bytes=state.xml_bytes)


def _next_state(task: SyncTask, box: str, change: ListChanges, kept: set[bytes]) -> ListState:
    new = [
        (fingerprint, identifier)
        for identifier, lines in change.new.items()
        for fingerprint, _ in lines
    ]
    before = task.states[box]
    fingerprints, identifiers = before.updated_arrays(
        change.gone - kept,
        b"".join([fingerprint for fingerprint, _ in new]),
        pack_identifiers(identifier for _, identifier in new),
    )
    same = identifiers == before.identifiers
    return ListState(
        box,
        task.run,
        change.tally.users,
        change.tally.quarantined,
        before.duplicates if same else count_duplicates(identifiers),
        change.tally.bytes,
        change.tally.usual_length,
        sorted(change.tally.agreed),
        task.hashes[box],
        before.seed,
        fingerprints,
        identifiers,
    )
