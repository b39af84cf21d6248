"""Find the parcels of a list: stored responses first, then requests within the budgets."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from psycopg.types.json import Jsonb

from hasat.errors import (
    BrokenAnswerError,
    HasatError,
    NotFoundError,
    OutOfQuotaError,
    SettingsError,
    UnavailableError,
    UsageError,
)
from hasat.fetch import RequestContext
from hasat.messages import msg
from hasat.settings import Settings
from hasat.sources.tkgm.features import StoredParcel
from hasat.sources.tkgm.lists.rows import ListRow, NamedParcel, ParcelList
from hasat.sources.tkgm.places import Places
from hasat.sources.tkgm.registry.client import MAX_BATCH_POINTS, RegistryClient
from hasat.sources.tkgm.registry.lookup import Lookup
from hasat.sources.tkgm.registry.wire import ParcelNumber, Point, Query, format_query
from hasat.store import Store
from hasat.store.queries import load_query

JOB = "tkgm_list"
_PACKAGE = "hasat.sources.tkgm"
_NOT_FOUND = msg("there is no such parcel")
_NO_PARCEL_HERE = msg("there is no parcel here: a road, a stream or public land")

OnProgress = Callable[[float, float | None, str], None]


@dataclass(frozen=True)
class RowResult:
    """A row, and its parcel or why there is none; `certain` if asking again changes nothing."""

    row: ListRow
    parcel: StoredParcel | None = None
    reason: str | None = None
    certain: bool = True


@dataclass
class ListResult:
    """The results of a list in the order of its rows."""

    source: ParcelList
    results: list[RowResult]
    stopped: HasatError | None = None
    """Why not every row was requested."""

    @property
    def counts(self) -> dict[str, int]:
        counted = Counter(
            "found" if one.parcel else "notFound" if one.certain else "unanswered"
            for one in self.results
        )
        return {name: counted[name] for name in ("found", "notFound", "unanswered")}


def list_id(path: Path) -> bytes:
    """Return what a list is resumed by: the checksum of its file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


@dataclass
class ListFetch:
    """The work on one list; the same file resumes it."""

    store: Store
    settings: Settings
    registry: RegistryClient
    source: ParcelList
    id: bytes
    fresh: bool = False
    on_progress: OnProgress | None = None
    max_seconds: float | None = None
    """How long to send requests."""
    _found: dict[Query, StoredParcel] = field(default_factory=dict)
    _reasons: dict[Query, str] = field(default_factory=dict)
    _places: dict[str, int | str] = field(default_factory=dict)
    _wanted: int = 0

    async def run(self) -> ListResult:
        """Return the result of every row; a spent quota ends the requests, not the result."""
        queries, problems = await self._queries()
        wanted = list(dict.fromkeys(queries.values()))
        self._wanted = len(wanted)
        if self.fresh:
            await self._delete()
        self._found = await self._load(wanted)
        missing = [query for query in wanted if query not in self._found]
        stopped = await self._fetch(missing)
        results = [self._result(row, queries, problems, stopped) for row in self.source.rows]
        if stopped is None and all(one.certain for one in results):
            await self._delete()
        return ListResult(self.source, results, stopped)

    async def _queries(self) -> tuple[dict[int, Query], dict[int, str]]:
        """Return the query of each row by its number, and why some rows have none."""
        queries: dict[int, Query] = {}
        problems: dict[int, str] = {}
        places = Places(self.store, self.settings)
        for row in self.source.rows:
            match row.target:
                case None:
                    assert row.problem is not None
                    problems[row.number] = row.problem
                case Point():
                    queries[row.number] = row.target
                case NamedParcel(mahalle, ada, parsel):
                    number = (
                        mahalle if isinstance(mahalle, int) else await self._id(places, mahalle)
                    )
                    if isinstance(number, int):
                        queries[row.number] = ParcelNumber(number, ada, parsel)
                    else:
                        problems[row.number] = number
        return queries, problems

    async def _id(self, places: Places, path: str) -> int | str:
        """Return the id of a neighbourhood, or why it has none."""
        if path not in self._places:
            try:
                self._places[path] = (await places.find(path)).place.id
            except SettingsError:
                # Without the registry's lists, no row can be resolved.
                raise
            except (NotFoundError, UsageError) as error:
                # The remedy has the names that are similar.
                self._places[path] = str(error)
        return self._places[path]

    async def _fetch(self, missing: Sequence[Query]) -> HasatError | None:
        """Request what is missing; return why that ended early."""
        lookup = Lookup(self.store, self.settings, self.registry, RequestContext("daily", JOB))
        points = [query for query in missing if isinstance(query, Point)]
        numbers = [query for query in missing if isinstance(query, ParcelNumber)]
        if numbers and not self.registry.by_number:
            reason = msg("no endpoint of the workers.json supports requests by number")
            self._reasons |= dict.fromkeys(numbers, reason)
            numbers = []
        queue: list[list[Query]] = [[number] for number in numbers]
        queue += [
            [*points[n : n + MAX_BATCH_POINTS]] for n in range(0, len(points), MAX_BATCH_POINTS)
        ]
        queue.reverse()
        stopped: HasatError | None = None
        self._report()
        clock = asyncio.get_running_loop().time
        ends_at = None if self.max_seconds is None else clock() + self.max_seconds

        async def work() -> None:
            nonlocal stopped
            while queue and stopped is None:
                if ends_at is not None and clock() > ends_at:
                    stopped = UnavailableError(msg("The list takes longer than a request may."))
                    return
                part = queue.pop()
                try:
                    async for responses in self._responses(lookup, part):
                        await self._save(responses)
                        self._report()
                except BrokenAnswerError as error:
                    self._reasons |= dict.fromkeys(part, error.message)
                except OutOfQuotaError as error:
                    stopped = error
                except HasatError as error:
                    self._reasons |= dict.fromkeys(part, error.message)

        async with asyncio.TaskGroup() as group:
            for _ in range(self.registry.endpoints):
                group.create_task(work())
        return stopped

    async def _responses(
        self, lookup: Lookup, part: Sequence[Query]
    ) -> AsyncIterator[Mapping[Query, StoredParcel]]:
        match part:
            case [ParcelNumber() as number]:
                yield {number: await lookup.numbered(number, fresh=self.fresh)}
            case _:
                points = [one for one in part if isinstance(one, Point)]
                async for responses in lookup.batch(points, fresh=self.fresh):
                    yield responses

    def _report(self) -> None:
        if self.on_progress is not None:
            found = sum(one.feature is not None for one in self._found.values())
            self.on_progress(len(self._found), self._wanted, f"{found:,}")

    def _result(
        self,
        row: ListRow,
        queries: Mapping[int, Query],
        problems: Mapping[int, str],
        stopped: HasatError | None,
    ) -> RowResult:
        query = queries.get(row.number)
        if query is None:
            return RowResult(row, reason=problems[row.number])
        found = self._found.get(query)
        if found is None:
            reason = self._reasons.get(query) or (stopped.message if stopped else None)
            return RowResult(row, reason=reason or msg("no response"), certain=False)
        if found.feature is None:
            here = isinstance(query, Point)
            return RowResult(row, reason=_NO_PARCEL_HERE if here else _NOT_FOUND)
        return RowResult(row, found)

    async def _load(self, wanted: Sequence[Query]) -> dict[Query, StoredParcel]:
        """Return what an earlier attempt at the same list has received."""
        by_text = {format_query(query): query for query in wanted}
        async with self.store.connection() as conn:
            cursor = await conn.execute(
                "SELECT question, feature, told_at FROM tkgm.list_response WHERE list = %s",
                [self.id],
            )
            rows = await cursor.fetchall()
        return {
            by_text[text]: StoredParcel(feature, at)
            for text, feature, at in rows
            if text in by_text
        }

    async def _save(self, responses: Mapping[Query, StoredParcel]) -> None:
        values = {
            "list": self.id,
            "questions": [format_query(query) for query in responses],
            "features": [one.feature and Jsonb(one.feature) for one in responses.values()],
            "times": [one.fetched_at for one in responses.values()],
        }
        async with self.store.connection() as conn:
            await conn.execute(load_query(_PACKAGE, "save_list_responses"), values)
        self._found |= responses

    async def _delete(self) -> None:
        async with self.store.connection() as conn:
            await conn.execute(load_query(_PACKAGE, "delete_list_responses"), {"list": self.id})
