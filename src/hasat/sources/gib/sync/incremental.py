"""Reading both lists at once, each in a process of its own: what is new, what is gone."""

import asyncio
import gc
import multiprocessing
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from hasat.errors import HasatError
from hasat.messages import msg
from hasat.orphans import end_with_parent
from hasat.sources.gib.lists.fingerprints import SIZE, Known
from hasat.sources.gib.lists.lines import Kept, identifier_of, token_of
from hasat.sources.gib.lists.list_file import open_list
from hasat.sources.gib.lists.reader import Reader, Tally
from hasat.sources.gib.lists.records import SetAside

T = TypeVar("T")

# Beyond so many new records, everything is read anew through shelves on disk, in bounded memory.
MOST_NEW = 50_000
# Those that are gone are only named, not held.
_GONE_FOR_NEW = 6
_WORTH_PROCESSES = 2_000_000


@dataclass(frozen=True)
class Unreadable:
    """Whose removal this list cannot justify: those named, or anybody at all."""

    named: frozenset[str] = frozenset()
    anybody: bool = False

    @classmethod
    def of(cls, set_aside: list[SetAside]) -> "Unreadable":
        named = frozenset(one.identifier for one in set_aside if one.identifier is not None)
        return cls(named, any(one.identifier is None for one in set_aside))

    def __bool__(self) -> bool:
        return bool(self.named) or self.anybody


@dataclass
class Reading:
    """What one list has that differs from the last run; `too_many` if it is too much to hold."""

    tally: Tally
    new: dict[str, list[Kept]] = field(default_factory=dict)
    gone: set[bytes] = field(default_factory=set)
    set_aside: list[SetAside] = field(default_factory=list)
    too_many: bool = False


def read_changes(
    path: Path,
    name: str,
    fingerprints: bytes,
    seed: int,
    agreed: frozenset[str],
    most_new: int,
) -> Reading:
    """Read a list against what is known of it; runs in a process of its own."""
    known = Known(fingerprints)
    reader = Reader(open_list(path, name), seed, known, agreed=agreed)
    new: defaultdict[str, list[Kept]] = defaultdict(list)
    reading = Reading(reader.tally)
    count = 0
    for batch in reader:
        reading.set_aside += batch.set_aside
        for found in batch.new:
            new[identifier_of(token_of(found[1]))].append(found)
        count += len(batch.new) + len(batch.doubtful)
        if count > most_new:
            return Reading(reader.tally, too_many=True)
    reading.new = dict(new)
    gone = known.gone()
    if len(gone) > _GONE_FOR_NEW * most_new * SIZE:
        return Reading(reader.tally, too_many=True)
    reading.gone = {gone[at : at + SIZE] for at in range(0, len(gone), SIZE)}
    return reading


def remaining(
    old: list[Kept], gone: set[bytes], new: list[Kept], *, named: bool, anybody: bool
) -> list[Kept]:
    """A taxpayer's parts in one list after a run.

    Who has an unreadable record keeps what is gone, for that may be it. If a record is unreadable
    and nobody knows whose it is, nobody loses his place in the list for want of it.
    """
    if named:
        return [*old, *new]
    if anybody and not new:
        return old
    return [*(kept for kept in old if kept[0] not in gone), *new]


@asynccontextmanager
async def processes(packed_bytes: int, count: int = 2) -> AsyncIterator["Processes"]:
    """Processes to read and merge in; started fresh, so that they carry nothing of this one.

    Lists that are read sooner than a process starts are read by threads.
    """
    pool: Executor
    apart = packed_bytes >= _WORTH_PROCESSES
    if not apart:
        pool = ThreadPoolExecutor(count)
    else:
        pool = ProcessPoolExecutor(
            count,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_prepare,
        )
        # They start while this process still prepares their work.
        for _ in range(count):
            pool.submit(_nothing)
    found = Processes(pool, count if apart else 1)
    try:
        yield found
    finally:
        found.end()


def _prepare() -> None:
    # Millions of records and hardly a cycle among them: it is enough to look for some seldom.
    gc.set_threshold(10_000)
    end_with_parent()


def _nothing() -> None:
    return


class Processes:
    """Runs functions elsewhere, as coroutines."""

    def __init__(self, pool: Executor, shares: int) -> None:
        self._pool = pool
        self.shares = shares
        """Among how many a piece of work is worth being divided."""

    def end(self) -> None:
        """Nothing more is to be done elsewhere."""
        # Not waited for: after a cancellation a reader may still be busy for seconds.
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._pool, function, *arguments)
        except BrokenProcessPool as error:
            raise HasatError(
                msg("A process that was reading the lists died; nothing was changed."),
                remedy=msg(
                    "Run it again; if it dies again, see whether the machine is out of memory."
                ),
            ) from error
