"""CORE made of RAW again, without one request."""

import asyncio
import gc
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, TypeVar

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
from hasat.sources.football.datasets import DATASETS
from hasat.sources.football.ingest.elements import Extract
from hasat.sources.football.ingest.envelope import encode, read_envelope
from hasat.sources.football.ingest.loader import extract_records
from hasat.sources.football.ingest.merge import ReverseMerge
from hasat.sources.football.ingest.raw_files import iter_all
from hasat.sources.football.ingest.raw_store import StoredResponse
from hasat.sources.football.ingest.scopes import (
    BLOCKS,
    FORMAT_PARAMETERS,
    Element,
    league_of,
    listed_season,
)
from hasat.sources.football.jobs.fixtures import BACKFILL, DETAIL_FLAGS
from hasat.sources.football.jobs.tables import STANDINGS_BACKFILL
from hasat.store import Store
from hasat.store.queries import load_query

_CHUNK = 2_000
_ANSWERS_AHEAD = 32
_CHUNKS_AHEAD = 4
T = TypeVar("T")
_PACKAGE = "hasat.sources.football"
_SEASONAL = ("standings", "players/topscorers", "injuries", "teams/statistics")
_DAY = timedelta(days=1)
_Season = tuple[int, int]


@dataclass(frozen=True)
class RebuildSummary:
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
) -> RebuildSummary:
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
) -> RebuildSummary:
    datasets = list(DATASETS.values())
    retention = settings.football.change_retention_days
    async with Reconcile.begin(store, datasets) as work:

        async def put_all(states: InPlaceRepair | StagedRebuild) -> _ResponseReader:
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
        notes = await answers.memory.restore(work.connection)
        await work.connection.execute(load_query("hasat.sources.football", "end_inferences"))
    return RebuildSummary(answers.read, answers.unreadable, renewed, notes)


async def _put_all(
    states: InPlaceRepair | StagedRebuild,
    reading: AsyncConnection[Any],
    settings: Settings,
    on_progress: Callable[[int], None] | None,
) -> "_ResponseReader":
    """Put down what all kept answers say together."""
    answers = _ResponseReader()
    # The database reads, this process makes records of it, and the database takes them in.
    kept = prefetch(iter_all(reading, storage_of(settings)), _ANSWERS_AHEAD)
    async with aclosing(kept), aclosing(prefetch(answers.chunks(kept), _CHUNKS_AHEAD)) as chunks:
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


class _ResponseReader:
    """Answers on their way to be records, many at once."""

    def __init__(self) -> None:
        self.read = 0
        self.unreadable = 0
        self.memory = FetchHistory()
        self._replay = ReverseMerge()
        self._waiting: defaultdict[str, list[tuple[str, bytes]]] = defaultdict(list)

    async def chunks(
        self, kept: AsyncIterable[StoredResponse]
    ) -> AsyncGenerator[tuple[str, Chunk], None]:
        """Records that count, by dataset, packed for the database."""
        async for told in kept:
            # In a thread, so that what was read and what is written goes on meanwhile.
            for ready in await asyncio.to_thread(self._read, told):
                yield ready
        self._put(self._replay.rest())
        for dataset in list(self._waiting):
            yield self._pack(dataset)

    def _read(self, told: StoredResponse) -> list[tuple[str, Chunk]]:
        envelope = read_envelope(told.body)
        found = extract_records(told.endpoint, told.parameters, envelope, told.leagues)
        self.read += 1
        self.unreadable += len(found.unreadable)
        if not envelope.errors:
            self.memory.note(told, found, envelope.row_count)
        touched = self._put(
            self._replay.add(found, told.leagues, told.vanished),
            integers_only=envelope.integers_only,
        )
        return [self._pack(name) for name in touched if len(self._waiting[name]) >= _CHUNK]

    def _put(self, elements: Iterable[Element], *, integers_only: bool = False) -> set[str]:
        touched = set()
        for dataset, key, body in elements:
            self._waiting[dataset].append((key, encode(body, integers_only=integers_only)))
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


async def prefetch(stream: AsyncGenerator[T, None], most: int) -> AsyncGenerator[T, None]:
    """The same stream, read by a task of its own, at most so many ahead; to be closed."""
    queue: asyncio.Queue[T | _End] = asyncio.Queue(most)
    task = asyncio.create_task(_fill(stream, queue))
    try:
        while not isinstance(one := await queue.get(), _End):
            yield one
        if one.error is not None:
            raise one.error
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


class _End:
    def __init__(self, error: Exception | None = None) -> None:
        self.error = error


async def _fill(stream: AsyncGenerator[T, None], queue: "asyncio.Queue[T | _End]") -> None:
    try:
        async with aclosing(stream):
            async for one in stream:
                await queue.put(one)
    except Exception as error:  # noqa: BLE001 - raised where the stream is read
        await queue.put(_End(error))
    else:
        await queue.put(_End())


def _without_spelling(parameters: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in parameters.items() if name not in FORMAT_PARAMETERS}


class FetchHistory:
    """Notes of answers, the newest first."""

    def __init__(self) -> None:
        self._asked: dict[tuple[str, int, int, int], datetime] = {}
        self._told: dict[int, datetime] = {}
        self._detailed: dict[int, datetime] = {}
        self._vanished: set[int] = set()
        self._empty: dict[tuple[int, str], bool] = {}
        self._listed_matches: dict[_Season, tuple[int, datetime]] = {}
        self._teams: dict[_Season, datetime] = {}
        self._done: dict[tuple[str, int, int], datetime] = {}
        self._windows: dict[_Season, list[tuple[date, date]]] = {}

    def note(self, told: StoredResponse, found: Extract, row_count: int) -> None:
        """What the next older answer, of so many rows, adds."""
        for block in found.blocks:
            if block.fixture not in self._vanished:
                self._empty.setdefault((block.fixture, block.name), block.is_empty)
        listed = listed_season(told.endpoint, told.parameters)
        if listed and row_count:
            self._listed_matches.setdefault(listed, (row_count, told.at))
        asked = _without_spelling(told.parameters)
        numbers = {name: int(text) for name, text in asked.items() if text.isdecimal()}
        season = (numbers.get("league", 0), numbers.get("season", 0))
        match told.endpoint:
            case "leagues" if not asked:
                self._asked.setdefault(("leagues", 0, 0, 0), told.at)
            case "injuries" if asked.keys() == {"date"}:
                day = date.fromisoformat(asked["date"]).toordinal()
                self._asked.setdefault(("injuries", 0, day, 0), told.at)
            case "teams" if asked.keys() == {"league", "season"}:
                self._teams.setdefault(season, told.at)
            case "fixtures":
                self._note_fixtures(told, found, season)
            case endpoint if endpoint in DETAIL_FLAGS and asked.keys() == {"fixture"}:
                self._told.setdefault(numbers["fixture"], told.at)
                self._note_detailed(numbers["fixture"], told.at)
            case endpoint if endpoint in _SEASONAL and {"league", "season"} <= asked.keys():
                self._asked.setdefault((endpoint, *season, numbers.get("team", 0)), told.at)
                if endpoint == "standings":
                    self._done.setdefault((STANDINGS_BACKFILL, *season), told.at)

    def _note_fixtures(self, told: StoredResponse, found: Extract, season: _Season) -> None:
        asked = _without_spelling(told.parameters)
        if asked.keys() == {"league", "season"}:
            self._done.setdefault((BACKFILL, *season), told.at)
        elif asked.keys() == {"league", "season", "from", "to"}:
            window = (date.fromisoformat(asked["from"]), date.fromisoformat(asked["to"]))
            self._windows.setdefault(season, []).append(window)
        by_id = asked.get("ids", asked.get("id", "")).split("-")
        for element in found.elements:
            if element.dataset != "fixtures":
                continue
            if told.leagues is None or league_of(element) in told.leagues:
                self._told.setdefault(int(element.key), told.at)
            # One that was asked for in vain is not there.
            if element.key in by_id:
                self._note_detailed(int(element.key), told.at)
        self._vanished.update(told.vanished)

    def _note_detailed(self, fixture: int, at: datetime) -> None:
        """Details that left the mirror with their match are not there, should it be back."""
        if fixture not in self._vanished:
            self._detailed.setdefault(fixture, at)

    async def restore(self, conn: AsyncConnection[Any]) -> int:
        """Write down what is missing; how many notes that were."""
        listed = await self._listed(conn)
        async with conn.cursor() as cursor:
            # The only notes that are many, and most are there.
            await cursor.execute("SELECT fixture_id FROM football.fixture_told")
            known = {number for (number,) in await cursor.fetchall()}
            lost = [number for number in self._told if number not in known]
            back = 0
            for name, rows in (
                ("put_back_asked", [(*key, at) for key, at in self._asked.items()]),
                ("put_back_teams", [(*key, at) for key, at in self._teams.items()]),
                ("put_back_told", [*self._told_of(lost)]),
                ("put_back_listed", [(*key, *n) for key, n in self._listed_matches.items()]),
                ("put_back_progress", [*self._progress(listed)]),
            ):
                if rows:
                    columns = [list(column) for column in zip(*rows, strict=True)]
                    await cursor.execute(load_query(_PACKAGE, name), columns)
                    back += cursor.rowcount
        return back

    def _told_of(self, fixtures: Iterable[int]) -> Iterator[tuple[Any, ...]]:
        for number in fixtures:
            empty = [block for block in BLOCKS if self._empty.get((number, block))]
            yield number, self._told[number], self._detailed.get(number), ",".join(empty)

    def _progress(self, listed: Mapping[_Season, tuple[date | None, date | None]]) -> Any:
        for (job, *season), at in self._done.items():
            start, end = listed.get((season[0], season[1]), (None, None))
            following = None if end is None or job != BACKFILL else end + _DAY
            yield job, *season, start, following, True, at
        for (league, year), windows in self._windows.items():
            start, end = listed.get((league, year), (None, None))
            if (BACKFILL, league, year) in self._done or start is None or end is None:
                continue
            reached = start
            for first, last in sorted(windows):
                if first <= reached <= last:
                    reached = last + _DAY
            newest = max(self._told.values(), default=None)
            yield BACKFILL, league, year, start, reached, reached > end, newest

    async def _listed(
        self, conn: AsyncConnection[Any]
    ) -> dict[_Season, tuple[date | None, date | None]]:
        leagues = {league for _, league, _ in self._done} | {league for league, _ in self._windows}
        cursor = await conn.execute(
            load_query(_PACKAGE, "listed_seasons"), {"leagues": sorted(leagues)}
        )
        return {
            (league, year): (start, end) for league, year, start, end, _ in await cursor.fetchall()
        }
