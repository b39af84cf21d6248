"""CORE made of RAW again, without one request."""

import gc
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hasat.errors import NothingToDoError
from hasat.feed.archive.places import place_of
from hasat.feed.copying import pack
from hasat.feed.reconcile import Reconcile
from hasat.feed.renew import Renewal, Renewed
from hasat.settings import Settings
from hasat.sources.football.datasets import DATASETS
from hasat.sources.football.elements import Element
from hasat.sources.football.envelope import read_envelope, spelled
from hasat.sources.football.kept import all_newest_first
from hasat.sources.football.loading import understood
from hasat.sources.football.replay import Replay
from hasat.store import Store

_CHUNK = 2_000


@dataclass(frozen=True)
class Rebuilt:
    """How many answers were read, and what became of each dataset."""

    answers: int
    unreadable: int
    datasets: list[Renewed]


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
    async with Reconcile.begin(store, datasets) as work:
        renewal = Renewal(work, datasets)
        await renewal.open()
        replay, shelf = Replay(), _Shelf(renewal)
        answers = unreadable = 0
        async with store.connection() as reading:
            async for told in all_newest_first(reading, place_of(settings)):
                envelope = read_envelope(told.body)
                found = understood(told.endpoint, told.parameters, envelope)
                await shelf.put(replay.add(found, told.leagues))
                answers += 1
                unreadable += len(found.unreadable)
                if on_progress is not None:
                    on_progress(answers)
        if not answers:
            raise NothingToDoError(
                "There are no answers in raw.api_responses: there is nothing to rebuild from.",
                remedy="CORE was left as it is.",
            )
        await shelf.put(replay.rest())
        await shelf.empty()
        renewed = await renewal.finish(
            run=None, retention_days=settings.football.change_retention_days, force=force
        )
    return Rebuilt(answers, unreadable, renewed)


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


class _Shelf:
    """Records on their way into the database, many at once."""

    def __init__(self, renewal: Renewal) -> None:
        self._renewal = renewal
        self._waiting: defaultdict[str, list[tuple[str, bytes]]] = defaultdict(list)

    async def put(self, elements: Iterable[Element]) -> None:
        touched = set()
        for dataset, key, body in elements:
            self._waiting[dataset].append((key, spelled(body)))
            touched.add(dataset)
        for dataset in touched:
            if len(self._waiting[dataset]) >= _CHUNK:
                await self._flush(dataset)

    async def empty(self) -> None:
        for dataset in list(self._waiting):
            await self._flush(dataset)

    async def _flush(self, dataset: str) -> None:
        await self._renewal.add(dataset, pack(self._waiting.pop(dataset)))
