"""CORE made of RAW again, without one request."""

import asyncio
import gc
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection

from hasat.errors import NothingToDoError
from hasat.feed.archive.storage import storage_of
from hasat.feed.encoding import Chunk, pack
from hasat.feed.rebuild import (
    DiffersFromPublishedError,
    InPlaceRepair,
    RebuildResult,
    StagedRebuild,
)
from hasat.feed.reconcile import Reconcile
from hasat.messages import msg
from hasat.settings import Settings
from hasat.sources.football.ahead import ahead
from hasat.sources.football.datasets import DATASETS
from hasat.sources.football.elements import Element
from hasat.sources.football.envelope import read_envelope, spelled
from hasat.sources.football.kept import all_newest_first
from hasat.sources.football.loading import understood
from hasat.sources.football.memory import Memory
from hasat.sources.football.raw import Told
from hasat.sources.football.replay import Replay
from hasat.store import Store
from hasat.store.queries import load_query

_CHUNK = 2_000
_ANSWERS_AHEAD = 32
_CHUNKS_AHEAD = 4


@dataclass(frozen=True)
class Rebuilt:
    """How many answers were read, what became of each dataset, and which notes were lost."""

    answers: int
    unreadable: int
    datasets: list[RebuildResult]
    notes: int


async def rebuild(
    store: Store,
    settings: Settings,
    *,
    force: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> Rebuilt:
    """Bring every dataset to what all kept answers say together.

    Nothing else can be loaded meanwhile. With `force` also where that is far less than what was
    published.
    """
    with _without_cycles():
        return await _rebuild(store, settings, force=force, on_progress=on_progress)


async def _rebuild(
    store: Store,
    settings: Settings,
    *,
    force: bool,
    on_progress: Callable[[int], None] | None,
) -> Rebuilt:
    datasets = list(DATASETS.values())
    retention = settings.football.change_retention_days
    async with Reconcile.begin(store, datasets) as work:

        async def put_all(states: InPlaceRepair | StagedRebuild) -> _Reading:
            await states.open()
            async with store.connection() as reading:
                return await _put_all(states, reading, settings, on_progress)

        try:
            async with work.connection.transaction():
                mending = InPlaceRepair(work, datasets)
                answers = await put_all(mending)
                renewed = await mending.finish()
        except DiffersFromPublishedError:
            renewal = StagedRebuild(work, datasets)
            answers = await put_all(renewal)
            renewed = await renewal.finish(run=None, retention_days=retention, force=force)
        notes = await answers.memory.put_back(work.connection)
        await work.connection.execute(load_query("hasat.sources.football", "end_inferences"))
    return Rebuilt(answers.read, answers.unreadable, renewed, notes)


async def _put_all(
    states: InPlaceRepair | StagedRebuild,
    reading: AsyncConnection[Any],
    settings: Settings,
    on_progress: Callable[[int], None] | None,
) -> "_Reading":
    """Put down what all kept answers say together."""
    answers = _Reading()
    # The database reads, this process makes records of it, and the database takes them in.
    kept = ahead(all_newest_first(reading, storage_of(settings)), _ANSWERS_AHEAD)
    async with aclosing(kept), aclosing(ahead(answers.chunks(kept), _CHUNKS_AHEAD)) as chunks:
        async for dataset, chunk in chunks:
            await states.add(dataset, chunk)
            if on_progress is not None:
                on_progress(answers.read)
    if not answers.read:
        raise NothingToDoError(
            msg("There are no answers in raw.api_responses: there is nothing to rebuild from."),
            remedy=msg("CORE was left as it is."),
        )
    return answers


class _Reading:
    """Answers on their way to be records, many at once."""

    def __init__(self) -> None:
        self.read = 0
        self.unreadable = 0
        self.memory = Memory()
        self._replay = Replay()
        self._waiting: defaultdict[str, list[tuple[str, bytes]]] = defaultdict(list)

    async def chunks(self, kept: AsyncIterable[Told]) -> AsyncGenerator[tuple[str, Chunk], None]:
        """Records that count, by dataset, packed for the database."""
        async for told in kept:
            # In a thread, so that what was read and what is written goes on meanwhile.
            for ready in await asyncio.to_thread(self._read, told):
                yield ready
        self._put(self._replay.rest())
        for dataset in list(self._waiting):
            yield self._pack(dataset)

    def _read(self, told: Told) -> list[tuple[str, Chunk]]:
        envelope = read_envelope(told.body)
        found = understood(told.endpoint, told.parameters, envelope, told.leagues)
        self.read += 1
        self.unreadable += len(found.unreadable)
        if not envelope.errors:
            self.memory.note(told, found, envelope.counted)
        touched = self._put(
            self._replay.add(found, told.leagues, told.vanished), whole=envelope.whole
        )
        return [self._pack(name) for name in touched if len(self._waiting[name]) >= _CHUNK]

    def _put(self, elements: Iterable[Element], *, whole: bool = False) -> set[str]:
        touched = set()
        for dataset, key, body in elements:
            self._waiting[dataset].append((key, spelled(body, whole=whole)))
            touched.add(dataset)
        return touched

    def _pack(self, dataset: str) -> tuple[str, Chunk]:
        return dataset, pack(self._waiting.pop(dataset))


@contextmanager
def _without_cycles() -> Iterator[None]:
    """Millions of records and no cycles among them: looking for some is a third of the time."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
