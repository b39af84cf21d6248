"""One synchronisation: both lists against the mirror, in one transaction, under the guard."""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from psycopg import AsyncConnection, sql

from hasat.deliver import publish_event
from hasat.errors import HeldError
from hasat.feed.dataset import Dataset, Scope
from hasat.feed.encoding import pack
from hasat.feed.guard import (
    Counts,
    Limits,
    Measure,
    exceeded,
    measure_changes,
    measure_drop,
    measure_growth,
    share,
)
from hasat.feed.reconcile import Reconcile, Record, Version
from hasat.messages import join, msg
from hasat.settings import Settings
from hasat.settings.source_tree import Gib
from hasat.sources.gib.datasets import DATASETS
from hasat.sources.gib.lists.errors import ReplacedListError
from hasat.sources.gib.lists.fingerprints import pack_identifiers
from hasat.sources.gib.lists.lines import BOXES, Kept, published
from hasat.sources.gib.lists.reader import Tally
from hasat.sources.gib.lists.records import SetAside
from hasat.sources.gib.sync.events import sync_completed
from hasat.sources.gib.sync.full_load import load_everything
from hasat.sources.gib.sync.incremental import (
    MOST_NEW,
    Processes,
    Reading,
    Unreadable,
    processes,
    read_changes,
    remaining,
)
from hasat.sources.gib.sync.processes import map_large_arrays
from hasat.sources.gib.sync.state import (
    ListState,
    Parts,
    decide_held,
    duplicates_in,
    file_of,
    keep_set_aside,
    keep_taxpayers,
    load_states,
    note_touched,
    odd_identifiers,
    parts_of,
    save_state,
    sha256_of,
)
from hasat.store import Store

ADVISORY_LOCK = 8370142691
"""The original service's lock; it only tells a second sync early that it is not needed."""

_TOUCHED = Scope({"whole": True}, sql.SQL("m.key IN (SELECT key FROM touched)"))

_EXAMPLES = 5
"""So many of each kind are shown to whoever decides."""

Outcome = Literal["committed", "unchanged"]
Examples = Mapping[str, Sequence[Mapping[str, Any]]]
Tell = Callable[[float, float | None, str], Awaitable[None]]


@dataclass(frozen=True)
class ListReport:
    """What a list had."""

    users: int
    rejected: int
    bytes: int
    duplicates: int
    """Records beyond the first of their taxpayer: merged with it."""


@dataclass(frozen=True)
class Report:
    """What a synchronisation did."""

    outcome: Outcome
    seconds: float
    lists: Mapping[str, ListReport]
    version: Version


_LIST_NAMES = {"PK": msg("PK list"), "GB": msg("GB list")}

Conclude = Callable[[AsyncConnection[Any], Report], Awaitable[None]]


class HeldBackError(HeldError):
    """The guard holds the run; carries what it saw."""

    def __init__(
        self,
        measures: list[Measure],
        lists: Mapping[str, ListReport],
        counts: Mapping[str, Counts],
        examples: Mapping[str, Examples],
    ) -> None:
        over = exceeded(measures)
        super().__init__(
            msg(
                "The guard holds this run: {measures}. Nothing was changed.",
                measures=join(map(str, over), "; "),
            ),
            remedy=msg("Look at it with `hasat gib show RUN`, then approve or reject it."),
        )
        self.measures = measures
        self.lists = lists
        self.counts = counts
        self.examples = examples


@dataclass
class Found:
    """What both lists said, as far as the sync needs it after the diff."""

    count_deliveries: dict[str, Tally]
    states: dict[str, ListState]
    set_aside: dict[str, list[SetAside]] = field(default_factory=dict)

    def reports(self) -> dict[str, ListReport]:
        return {
            box.lower(): ListReport(
                tally.users, tally.set_aside, tally.bytes, self.states[box].duplicates
            )
            for box, tally in self.count_deliveries.items()
        }


async def synchronise(
    store: Store,
    settings: Settings,
    lists: Mapping[str, Path],
    *,
    run: int,
    approving: int | None = None,
    tell: Tell | None = None,
    conclude: Conclude | None = None,
    most_new: int = MOST_NEW,
) -> Report:
    """Bring both datasets to what the lists say; raises and changes nothing if that is unsafe.

    `approving` names the held run whose lists these are: the guard lets them pass. `conclude`
    records the report in the transaction that commits it.
    """
    began = time.monotonic()
    map_large_arrays()
    async with (
        _working_folder(settings, run) as folder,
        Reconcile.begin(store, DATASETS, unless_locked=ADVISORY_LOCK) as work,
    ):
        async with processes(sum(lists[box].stat().st_size for box in BOXES)) as elsewhere:
            states = await load_states(work.connection)
            files = {box: file_of(lists[box]) for box in BOXES}
            hashes = {box: await asyncio.to_thread(sha256_of, lists[box]) for box in BOXES}
            task = _Task(
                work,
                elsewhere,
                lists,
                hashes,
                states,
                run,
                folder,
                most_new,
                settings.gib.batch_size,
                tell or _quiet,
            )
            found = await task.find()
        for box in BOXES:
            # It was opened several times: only one and the same file has that hash and these users.
            if file_of(lists[box]) != files[box]:
                raise ReplacedListError(
                    msg("The {box} list was replaced while it was read.", box=box)
                )
        measures = _measures(settings, task, found)
        if exceeded(measures) and approving is None:
            some = {dataset.name: await _examples(work, dataset) for dataset in DATASETS}
            raise HeldBackError(measures, found.reports(), task.counts, some)
        for box, state in found.states.items():
            if state is not states.get(box):
                await save_state(work.connection, state, states.get(box))
        await keep_set_aside(work.connection, run, found.set_aside)
        version = await work.write(run=run, retention_days=settings.gib.change_retention_days)
        if version.changed or approving is not None:
            await decide_held(work.connection, approving)
        users = {box: tally.users for box, tally in found.count_deliveries.items()}
        took = time.monotonic() - began
        await publish_event(work.connection, sync_completed(users, version.counts, took))
        report = Report(
            "committed" if version.changed else "unchanged",
            round(took, 3),
            found.reports(),
            version,
        )
        if conclude is not None:
            await conclude(work.connection, report)
    return report


class _Task:
    """Finds out what the lists changed, and puts it into the reconcile."""

    def __init__(
        self,
        work: Reconcile,
        elsewhere: Processes,
        lists: Mapping[str, Path],
        hashes: Mapping[str, bytes],
        states: dict[str, ListState],
        run: int,
        folder: Path,
        most_new: int,
        batch_size: int,
        tell: Tell,
    ) -> None:
        self.work = work
        self.elsewhere = elsewhere
        self.lists = lists
        self.hashes = hashes
        self.states = states
        self.run = run
        self.folder = folder
        self.most_new = most_new
        self.batch_size = batch_size
        self.tell = tell
        self.counts: dict[str, Any] = {}

    def agreed(self, box: str) -> frozenset[str]:
        """The doubts that earlier lists of this kind have shared."""
        return frozenset(self.states[box].agreed) if box in self.states else frozenset()

    async def find(self) -> Found:
        if len(self.states) < len(BOXES):
            return await self._everything()
        changed = [box for box in BOXES if self.hashes[box] != self.states[box].sha256]
        await self.tell(
            0, None, msg("reading the lists") if changed else msg("the lists are the same")
        )
        readings = dict(
            zip(
                changed,
                await asyncio.gather(
                    *(
                        self.elsewhere.run(
                            read_changes,
                            self.lists[box],
                            msg("The {box} list", box=box),
                            self.states[box].fingerprints,
                            self.states[box].seed,
                            self.agreed(box),
                            self.most_new,
                        )
                        for box in changed
                    )
                ),
                strict=True,
            )
        )
        if any(reading.too_many for reading in readings.values()):
            return await self._everything()
        return await self._differences(readings)

    async def _everything(self) -> Found:
        """Read and merge all there is: the first time, or when too much is new to hold."""
        await self.tell(0, None, msg("reading both lists anew"))
        loaded = await load_everything(self, spare=bool(self.states))
        self.counts = loaded.counts
        return Found(loaded.count_deliveries, loaded.states, loaded.set_aside)

    async def _differences(self, readings: dict[str, Reading]) -> Found:
        """Merge anew those taxpayers of whom a record came or went, some at a time."""
        # All is read: what the readers hold is better free.
        self.elsewhere.end()
        unreadable = {box: Unreadable.of(found.set_aside) for box, found in readings.items()}
        affected = await self._affected(readings)
        kept: dict[str, set[bytes]] = {box: set() for box in readings}
        async with AsyncExitStack() as stack:
            put = {
                dataset.name: await stack.enter_async_context(self.work.staging(dataset))
                for dataset in DATASETS
            }
            for first in range(0, len(affected), self.batch_size):
                some = affected[first : first + self.batch_size]
                after = await self._merged_again(some, readings, unreadable)
                for name, records in _published(after).items():
                    await put[name](pack(records))
                await keep_taxpayers(self.work.connection, after)
                for box, reading in readings.items():
                    prints = (print_ for parts in after.values() for print_, _ in parts[box])
                    kept[box].update(reading.gone.intersection(prints))
        await note_touched(self.work.connection, affected)
        for dataset in DATASETS:
            self.counts[dataset.name] = await self.work.diff(dataset, _TOUCHED)
        return Found(
            {box: self._tally(box, readings) for box in BOXES},
            self.states
            | {box: self._next_state(box, reading, kept[box]) for box, reading in readings.items()},
            {box: reading.set_aside for box, reading in readings.items()},
        )

    async def _affected(self, readings: dict[str, Reading]) -> list[str]:
        """Whose records came or went."""
        affected: set[str] = set()
        odd = False
        for box, reading in readings.items():
            owners, has_odd = self.states[box].whose(reading.gone)
            affected |= owners | reading.new.keys()
            odd |= has_odd
        if odd:
            affected |= await odd_identifiers(self.work.connection)
        return list(affected)

    async def _merged_again(
        self,
        identifiers: Sequence[str],
        readings: dict[str, Reading],
        unreadable: dict[str, Unreadable],
    ) -> dict[str, Parts]:
        old = await parts_of(self.work.connection, identifiers)
        return {
            identifier: {
                box: self._after(identifier, box, old, readings, unreadable) for box in BOXES
            }
            for identifier in identifiers
        }

    def _after(
        self,
        identifier: str,
        box: str,
        old: dict[str, Parts],
        readings: dict[str, Reading],
        unreadable: dict[str, Unreadable],
    ) -> list[Kept]:
        before = old[identifier][box] if identifier in old else []
        reading = readings.get(box)
        if reading is None:
            return before
        return remaining(
            before,
            reading.gone,
            reading.new.get(identifier, []),
            named=identifier in unreadable[box].named,
            anybody=unreadable[box].anybody,
        )

    def _tally(self, box: str, readings: dict[str, Reading]) -> Tally:
        if box in readings:
            return readings[box].tally
        state = self.states[box]
        return Tally(state.users, state.rejected, bytes=state.xml_bytes)

    def _next_state(self, box: str, reading: Reading, kept: set[bytes]) -> ListState:
        new = [
            (fingerprint, identifier)
            for identifier, parts in reading.new.items()
            for fingerprint, _ in parts
        ]
        before = self.states[box]
        fingerprints, identifiers = before.moved(
            reading.gone - kept,
            b"".join([fingerprint for fingerprint, _ in new]),
            pack_identifiers(identifier for _, identifier in new),
        )
        same = identifiers == before.identifiers
        return ListState(
            box,
            self.run,
            reading.tally.users,
            reading.tally.set_aside,
            before.duplicates if same else duplicates_in(identifiers),
            reading.tally.bytes,
            reading.tally.usual_length,
            sorted(reading.tally.agreed),
            self.hashes[box],
            before.seed,
            fingerprints,
            identifiers,
        )


def _published(after: Mapping[str, Parts]) -> dict[str, list[Record]]:
    """By dataset, what taxpayers with these parts are published as."""
    records: dict[str, list[Record]] = {dataset.name: [] for dataset in DATASETS}
    for identifier, parts in after.items():
        if any(parts.values()):
            bodies = published(*([line for _, line in parts[box]] for box in BOXES))
            for name, body in bodies.items():
                records[name].append(Record(identifier, body))
    return records


def _measures(settings: Settings, task: _Task, found: Found) -> list[Measure]:
    """Everything the guard looks at; a first run has nothing to be measured against."""
    if not task.states:
        return []
    gib = settings.gib
    limits = Limits(
        gib.max_allowed_removal_percent, gib.max_modified_percent, gib.max_added_percent
    )
    measures = [*measure_changes(task.counts, limits)]
    for box, tally in found.count_deliveries.items():
        before = task.states.get(box)
        name = _LIST_NAMES[box]
        if before is not None and before is not found.states[box]:
            measures += _size_measures(name, before, found.states[box], gib)
        rejected = len(found.set_aside.get(box, []))
        measures.append(
            Measure(
                name,
                msg("unreadable users"),
                share(rejected, tally.users + rejected),
                gib.max_rejects_percent,
            )
        )
    return measures


def _size_measures(name: str, before: ListState, now: ListState, gib: Gib) -> list[Measure]:
    """Measure a list in both directions: half a list is smaller, and one with junk is larger.

    A loss of bytes shows in the file and in its usual bytes alike, and the smaller drop counts:
    junk in the last list makes this one look smaller in the file only, and a few records that
    move the median length in the usual bytes only.
    """
    records = before.records, now.records
    per_user = before.xml_bytes // before.records, now.xml_bytes // now.records
    more_users = gib.max_list_users_growth_percent
    if more_users is None:
        more_users = gib.max_added_percent
    sizes = [(before.xml_bytes, now.xml_bytes)]
    if before.usual_bytes is not None and now.usual_bytes is not None:
        sizes.append((before.usual_bytes, now.usual_bytes))
    fewer_bytes = (
        measure_drop(name, msg("fewer bytes"), *size, gib.max_list_bytes_drop_percent)
        for size in sizes
    )
    return [
        measure_drop(name, msg("fewer users"), *records, gib.max_list_users_drop_percent),
        measure_growth(name, msg("more users"), *records, more_users),
        min(fewer_bytes, key=lambda measure: measure.value),
        measure_growth(
            name, msg("more bytes per user"), *per_user, gib.max_list_bytes_growth_percent
        ),
    ]


async def _examples(work: Reconcile, dataset: Dataset) -> Examples:
    """Some companies that would be touched; persons are nobody's example."""
    found = await work.examples(dataset, _EXAMPLES, sql.SQL("m.key ~ '^[0-9]{10}$'"))
    return {
        kind: [{"identifier": key, "title": body.get("title")} for key, body in some]
        for kind, some in found.items()
    }


def working_folder(settings: Settings, run: int | str) -> Path:
    """Where a run keeps what it is at work on."""
    return settings.home / "gib" / f"work-{run}"


@asynccontextmanager
async def _working_folder(settings: Settings, run: int) -> AsyncIterator[Path]:
    folder = working_folder(settings, run)
    await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def _quiet(_done: float, _total: float | None, _note: str) -> None:
    return
