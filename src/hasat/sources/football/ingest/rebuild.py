"""Rebuilding of all datasets from stored responses, without a request to the API.

The jobs record what they have requested and how far backfills are. Where these records are lost, a
rebuild restores them from the responses, so that nothing in the mirror is requested again.
"""

import asyncio
import gc
import json
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from datetime import date, datetime, timedelta
from typing import Any, TypeVar

from psycopg import AsyncConnection

from hasat.errors import NothingToDoError
from hasat.feed.archive.storage import storage_of
from hasat.feed.encoding import Chunk, pack
from hasat.feed.rebuild import (
    DiffersFromPublishedError,
    InPlaceRepair,
    OnResponses,
    RebuildSummary,
    StagedRebuild,
)
from hasat.feed.reconcile import Reconcile
from hasat.messages import msg
from hasat.settings import Settings
from hasat.sources.football.endpoints import DATASETS, FORMAT_PARAMETERS, find_endpoint
from hasat.sources.football.ingest.elements import Extract
from hasat.sources.football.ingest.envelope import encode, read_envelope
from hasat.sources.football.ingest.loader import extract_records
from hasat.sources.football.ingest.merge import ReverseMerge
from hasat.sources.football.ingest.raw_files import iter_all
from hasat.sources.football.ingest.raw_store import StoredResponse
from hasat.sources.football.ingest.scopes import (
    BLOCKS,
    Element,
    league_of,
    listed_season,
)
from hasat.sources.football.jobs.fixtures import BACKFILL, DETAIL_FLAGS
from hasat.sources.football.jobs.tables import STANDINGS_BACKFILL
from hasat.sources.football.settings import FootballSettings
from hasat.store import Store
from hasat.store.queries import load_query

_CHUNK = 2_000
_PREFETCHED_RESPONSES = 32
_PREFETCHED_CHUNKS = 4
T = TypeVar("T")
_PACKAGE = "hasat.sources.football"
_SEASONAL = ("standings", "players/topscorers", "injuries", "teams/statistics")
_DAY = timedelta(days=1)
_Season = tuple[int, int]


async def rebuild(
    store: Store,
    settings: Settings,
    *,
    run: int | None = None,
    approving: int | None = None,
    on_progress: OnResponses | None = None,
) -> RebuildSummary:
    """Rebuild every dataset from all stored responses; no other load can run meanwhile."""
    with _gc_disabled():
        return await _rebuild(store, settings, run, approving, on_progress)


async def _rebuild(
    store: Store,
    settings: Settings,
    run: int | None,
    approving: int | None,
    on_progress: OnResponses | None,
) -> RebuildSummary:
    datasets = list(DATASETS.values())
    retention = settings.section(FootballSettings).change_retention_days
    async with Reconcile.begin(store, datasets) as work:

        async def fill(target: InPlaceRepair | StagedRebuild) -> _ResponseReader:
            await target.open()
            async with store.connection() as conn:
                return await _fill_from_responses(target, conn, settings, on_progress)

        try:
            async with work.connection.transaction():
                repair = InPlaceRepair(work, datasets)
                reader = await fill(repair)
                results = await repair.finish()
        except DiffersFromPublishedError:
            staged = StagedRebuild(work, datasets)
            reader = await fill(staged)
            results = await staged.finish(run=run, retention_days=retention, approving=approving)
        restored = await reader.history.restore(work.connection)
        await work.connection.execute(load_query(_PACKAGE, "end_inferences"))
    return RebuildSummary(reader.read, reader.unreadable, results, restored)


async def _fill_from_responses(
    target: InPlaceRepair | StagedRebuild,
    conn: AsyncConnection[Any],
    settings: Settings,
    on_progress: OnResponses | None,
) -> "_ResponseReader":
    """Write the records of all stored responses to a target."""
    reader = _ResponseReader()
    # Reading from the database, parsing and writing to the database run at the same time.
    responses = prefetch(iter_all(conn, storage_of(settings)), _PREFETCHED_RESPONSES)
    prefetched = prefetch(reader.chunks(responses), _PREFETCHED_CHUNKS)
    async with aclosing(responses), aclosing(prefetched) as chunks:
        async for dataset, chunk in chunks:
            await target.add(dataset, chunk)
            if on_progress is not None:
                await on_progress(reader.read)
    if not reader.read:
        raise NothingToDoError(
            msg("raw.api_responses is empty: there is nothing to rebuild from."),
            remedy=msg("The tables were not changed."),
        )
    return reader


class _ResponseReader:
    """Reads stored responses into packed records."""

    def __init__(self) -> None:
        self.read = 0
        self.unreadable = 0
        self.history = FetchHistory()
        self._merge = ReverseMerge()
        self._waiting: defaultdict[str, list[tuple[str, bytes]]] = defaultdict(list)

    async def chunks(
        self, responses: AsyncIterable[StoredResponse]
    ) -> AsyncGenerator[tuple[str, Chunk], None]:
        """Return the current records by dataset, packed for the database."""
        async for response in responses:
            # In a thread, so that reading and writing continue meanwhile.
            for ready in await asyncio.to_thread(self._read, response):
                yield ready
        self._add(self._merge.partial_records())
        for dataset in list(self._waiting):
            yield self._pack(dataset)

    def _read(self, response: StoredResponse) -> list[tuple[str, Chunk]]:
        envelope = read_envelope(response.body)
        found = extract_records(response.endpoint, response.parameters, envelope, response.leagues)
        self.read += 1
        self.unreadable += len(found.unreadable)
        if not envelope.errors:
            self.history.add(response, found, envelope.row_count)
        touched = self._add(
            self._merge.add(found, response.leagues, response.vanished),
            integers_only=envelope.integers_only,
        )
        return [self._pack(name) for name in touched if len(self._waiting[name]) >= _CHUNK]

    def _add(self, elements: Iterable[Element], *, integers_only: bool = False) -> set[str]:
        touched = set()
        for dataset, key, body in elements:
            self._waiting[dataset].append((key, encode(body, integers_only=integers_only)))
            touched.add(dataset)
        return touched

    def _pack(self, dataset: str) -> tuple[str, Chunk]:
        return dataset, pack(self._waiting.pop(dataset))


@contextmanager
def _gc_disabled() -> Iterator[None]:
    """Disable cyclic garbage collection: it takes a third of the time and finds no cycles."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def prefetch(stream: AsyncGenerator[T, None], limit: int) -> AsyncGenerator[T, None]:
    """Return a stream that a separate task reads up to `limit` items ahead; close it after use."""
    queue: asyncio.Queue[T | _End] = asyncio.Queue(limit)
    task = asyncio.create_task(_fill(stream, queue))
    try:
        while not isinstance(item := await queue.get(), _End):
            yield item
        if item.error is not None:
            raise item.error
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
            async for item in stream:
                await queue.put(item)
    except Exception as error:  # noqa: BLE001 - raised where the stream is read
        await queue.put(_End(error))
    else:
        await queue.put(_End())


def _request_parameters(parameters: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in parameters.items() if name not in FORMAT_PARAMETERS}


class FetchHistory:
    """Requests and progress of backfills as responses show them, added from the newest on."""

    def __init__(self) -> None:
        self._requested: dict[tuple[str, int, int, int], datetime] = {}
        self._received: dict[int, datetime] = {}
        self._detailed: dict[int, datetime] = {}
        self._vanished: set[int] = set()
        self._empty: dict[tuple[int, str], bool] = {}
        self._listed_matches: dict[_Season, tuple[int, datetime]] = {}
        self._teams: dict[_Season, datetime] = {}
        self._done: dict[tuple[str, int, int], datetime] = {}
        self._windows: dict[_Season, list[tuple[date, date]]] = {}
        self._collected: dict[tuple[str, str], datetime] = {}

    def add(self, response: StoredResponse, found: Extract, row_count: int) -> None:
        """Add the next older response."""
        for block in found.blocks:
            if block.fixture not in self._vanished:
                self._empty.setdefault((block.fixture, block.name), block.is_empty)
        listed = listed_season(response.endpoint, response.parameters)
        if listed and row_count:
            self._listed_matches.setdefault(listed, (row_count, response.at))
        parameters = _request_parameters(response.parameters)
        declared = find_endpoint(response.endpoint, response.parameters)
        if declared is not None and declared.plan is not None:
            unit = {name: text for name, text in parameters.items() if name not in declared.fixed}
            self._collected.setdefault((declared.name, json.dumps(unit)), response.at)
            return
        numbers = {name: int(text) for name, text in parameters.items() if text.isdecimal()}
        season = (numbers.get("league", 0), numbers.get("season", 0))
        match response.endpoint:
            case "leagues" if not parameters:
                self._requested.setdefault(("leagues", 0, 0, 0), response.at)
            case "injuries" if parameters.keys() == {"date"}:
                day = date.fromisoformat(parameters["date"]).toordinal()
                self._requested.setdefault(("injuries", 0, day, 0), response.at)
            case "teams" if parameters.keys() == {"league", "season"}:
                self._teams.setdefault(season, response.at)
            case "fixtures":
                self._add_fixtures(response, found, season)
            case endpoint if endpoint in DETAIL_FLAGS and parameters.keys() == {"fixture"}:
                self._received.setdefault(numbers["fixture"], response.at)
                self._add_detailed(numbers["fixture"], response.at)
            case endpoint if endpoint in _SEASONAL and {"league", "season"} <= parameters.keys():
                self._requested.setdefault((endpoint, *season, numbers.get("team", 0)), response.at)
                if endpoint == "standings":
                    self._done.setdefault((STANDINGS_BACKFILL, *season), response.at)

    def _add_fixtures(self, response: StoredResponse, found: Extract, season: _Season) -> None:
        parameters = _request_parameters(response.parameters)
        if parameters.keys() == {"league", "season"}:
            self._done.setdefault((BACKFILL, *season), response.at)
        elif parameters.keys() == {"league", "season", "from", "to"}:
            window = (date.fromisoformat(parameters["from"]), date.fromisoformat(parameters["to"]))
            self._windows.setdefault(season, []).append(window)
        by_id = parameters.get("ids", parameters.get("id", "")).split("-")
        for element in found.elements:
            if element.dataset != "fixtures":
                continue
            if response.leagues is None or league_of(element) in response.leagues:
                self._received.setdefault(int(element.key), response.at)
            if element.key in by_id:
                self._add_detailed(int(element.key), response.at)
        self._vanished.update(response.vanished)

    def _add_detailed(self, fixture: int, at: datetime) -> None:
        """Details that left the mirror with their match do not count if the match comes back."""
        if fixture not in self._vanished:
            self._detailed.setdefault(fixture, at)

    async def restore(self, conn: AsyncConnection[Any]) -> int:
        """Write what is missing in the database and return the number of rows."""
        listed = await self._listed(conn)
        async with conn.cursor() as cursor:
            # These rows are many, and most of them exist.
            await cursor.execute("SELECT fixture_id FROM football.fixture_told")
            known = {number for (number,) in await cursor.fetchall()}
            missing = [number for number in self._received if number not in known]
            restored = 0
            for name, rows in (
                ("restore_requests", [(*key, at) for key, at in self._requested.items()]),
                ("restore_teams", [(*key, at) for key, at in self._teams.items()]),
                ("restore_fixtures", [*self._fixture_rows(missing)]),
                ("restore_collected", [(*key, at) for key, at in self._collected.items()]),
                ("restore_listed", [(*key, *n) for key, n in self._listed_matches.items()]),
                ("restore_progress", [*self._progress(listed)]),
            ):
                if rows:
                    columns = [list(column) for column in zip(*rows, strict=True)]
                    await cursor.execute(load_query(_PACKAGE, name), columns)
                    restored += cursor.rowcount
        return restored

    def _fixture_rows(self, fixtures: Iterable[int]) -> Iterator[tuple[Any, ...]]:
        for number in fixtures:
            empty = [block for block in BLOCKS if self._empty.get((number, block))]
            yield number, self._received[number], self._detailed.get(number), ",".join(empty)

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
            newest = max(self._received.values(), default=None)
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
