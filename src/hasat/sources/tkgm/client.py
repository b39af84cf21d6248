"""The land registry for Python programs: one parcel, or many points at once.

client = TKGMClient("workers.json")
feature = client.get_parcel(39.9, 32.85)

Questions are paid for, spread over the endpoints and remembered as those of `hasat tkgm` are, in
the same database: the one that the settings name, else the embedded one, started when needed.
"""

import asyncio
import atexit
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from importlib.resources import files
from pathlib import Path
from typing import Any, Self, TypeVar

import structlog

from hasat.errors import HasatError, UsageError
from hasat.fetch import RequestContext, max_attempts, read_workers
from hasat.messages import msg
from hasat.settings import Settings, load_settings
from hasat.sources.tkgm.registry.client import registry
from hasat.sources.tkgm.registry.lookup import Known, Lookup, point_at
from hasat.sources.tkgm.registry.wire import Number, Point, Question
from hasat.store import MigrationSet, open_store

T = TypeVar("T")

Coordinate = tuple[float, float] | Sequence[float] | Mapping[str, float]
"""Latitude and longitude; or an object with lat and lon, as the answers have it."""

_MIGRATIONS = MigrationSet("tkgm", files("hasat.sources.tkgm") / "migrations")
_ASKER = RequestContext("daily", "tkgm_client")


class AsyncTKGMClient:
    """The registry over the endpoints of a workers.json.

    It opens by itself when it is first asked. `close` it at the end, or use it as a context
    manager. `settings` are those of this process unless given.
    """

    def __init__(self, config_path: str | Path, *, settings: Settings | None = None) -> None:
        self._settings = settings or load_settings()
        self._file = Path(config_path)
        tkgm = self._settings.tkgm
        declared = read_workers(
            self._file, daily=tkgm.daily_per_endpoint, min_interval_ms=tkgm.min_interval_ms
        )
        self.workers = [endpoint.url for endpoint in declared.endpoints]
        self.parallel_tries = max_attempts(len(self.workers))
        self._opening = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._lookup: Lookup | None = None
        self._abreast = asyncio.Semaphore(len(self.workers))

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Write down what is to be remembered, and let the database go."""
        async with self._opening:
            self._lookup = None
            await self._stack.aclose()

    async def get_parcel(
        self, lat: float, lon: float, *, fresh: bool = False
    ) -> dict[str, Any] | None:
        """The parcel at a point as a GeoJSON Feature; None where there is none.

        What was told lately is not asked again unless `fresh`; `fetchedAt` among the properties
        says when it was. Raises OutOfQuotaError when the day's budgets are spent, UnavailableError
        when no endpoint answers.
        """
        return _feature(await (await self._open()).at(point_at(lat, lon), fresh=fresh))

    async def get_parcel_by_number(
        self, mahalle_id: int, ada: str | int, parsel: str | int, *, fresh: bool = False
    ) -> dict[str, Any] | None:
        """The parcel of a number, from an endpoint that answers such questions (`by_number`)."""
        number = Number(int(mahalle_id), str(ada), str(parsel))
        return _feature(await (await self._open()).numbered(number, fresh=fresh))

    async def get_batch(
        self, coordinates: Iterable[Coordinate], *, fresh: bool = False
    ) -> dict[str, Any]:
        """The parcels at many points: `results` in the order of the points, and `stats`.

        At most twenty points go into one request, and only those that an answer leaves out are
        asked again. A point without an answer is an `error`; if there is none for any point, the
        reason is raised.
        """
        points = [_point(one) for one in coordinates]
        lookup = await self._open()
        known: dict[Question, Known] = {}
        unlike = list(dict.fromkeys(points))

        async def ask(some: Sequence[Point]) -> HasatError | None:
            try:
                async with self._abreast:
                    async for answers in lookup.each(some, fresh=fresh):
                        known.update(answers)
            except HasatError as error:
                return error
            return None

        size = self._settings.tkgm.batch_size
        batches = [unlike[n : n + size] for n in range(0, len(unlike), size)]
        async with asyncio.TaskGroup() as group:
            asking = [group.create_task(ask(batch)) for batch in batches]
        failures = [error for task in asking if (error := task.result())]
        if failures and not known:
            raise failures[0]
        return _batch(points, known)

    async def _open(self) -> Lookup:
        async with self._opening:
            if self._lookup is None:
                _log_like_a_library()
                async with AsyncExitStack() as stack:
                    store = await stack.enter_async_context(
                        open_store(self._settings, [_MIGRATIONS])
                    )
                    asked = await stack.enter_async_context(
                        registry(store, self._settings, self._file, keyed=False)
                    )
                    lookup = Lookup(store, self._settings, asked, _ASKER)
                    await lookup.forget()
                    self._stack = stack.pop_all()
                self._lookup = lookup
            return self._lookup


class TKGMClient:
    """An `AsyncTKGMClient` whose methods return when they are done; any thread may call them.

    What is left open is closed when the program ends.
    """

    def __init__(self, config_path: str | Path, *, settings: Settings | None = None) -> None:
        self._given = config_path, settings
        self._running: _Running | None = None
        self._starting = threading.Lock()
        declared = AsyncTKGMClient(config_path, settings=settings)
        self.workers = declared.workers
        self.parallel_tries = declared.parallel_tries

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Write down what is to be remembered, and let the database go."""
        with self._starting:
            running, self._running = self._running, None
            if running is not None:
                atexit.unregister(self.close)
                running.end()

    def get_parcel(self, lat: float, lon: float, *, fresh: bool = False) -> dict[str, Any] | None:
        """The parcel at a point as a GeoJSON Feature; None where there is none."""
        return self._done(lambda client: client.get_parcel(lat, lon, fresh=fresh))

    def get_parcel_by_number(
        self, mahalle_id: int, ada: str | int, parsel: str | int, *, fresh: bool = False
    ) -> dict[str, Any] | None:
        """The parcel of a number, from an endpoint that answers such questions (`by_number`)."""
        return self._done(
            lambda client: client.get_parcel_by_number(mahalle_id, ada, parsel, fresh=fresh)
        )

    def get_batch(
        self, coordinates: Iterable[Coordinate], *, fresh: bool = False
    ) -> dict[str, Any]:
        """The parcels at many points: `results` in the order of the points, and `stats`."""
        return self._done(lambda client: client.get_batch(coordinates, fresh=fresh))

    def _done(self, ask: Callable[[AsyncTKGMClient], Coroutine[Any, Any, T]]) -> T:
        with self._starting:
            if self._running is None:
                path, settings = self._given
                self._running = _Running(AsyncTKGMClient(path, settings=settings))
                atexit.register(self.close)
            running = self._running
        return running.wait_for(ask(running.client))


class _Running:
    """A client on a loop in a thread of its own: so it works in a notebook and for all threads."""

    def __init__(self, client: AsyncTKGMClient) -> None:
        self.client = client
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="hasat-tkgm", daemon=True
        )
        self._thread.start()

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        doing = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return doing.result()
        except BaseException:
            doing.cancel()
            raise

    def end(self) -> None:
        try:
            self.wait_for(self.client.close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


def _point(coordinate: Coordinate) -> Point:
    try:
        if isinstance(coordinate, Mapping):
            return point_at(float(coordinate["lat"]), float(coordinate["lon"]))
        lat, lon = coordinate
        return point_at(float(lat), float(lon))
    except (KeyError, TypeError, ValueError):
        raise UsageError(
            msg("{coordinate!r} is not a coordinate.", coordinate=coordinate),
            remedy=msg("Give (lat, lon) pairs."),
        ) from None


def _batch(points: Sequence[Point], known: Mapping[Question, Known]) -> dict[str, Any]:
    results = [_result(point, known.get(point)) for point in points]
    stats = dict.fromkeys(("found", "empty", "error"), 0)
    for result in results:
        stats[result["status"]] += 1
    return {"results": results, "stats": {**stats, "total": len(results)}}


def _result(point: Point, known: Known | None) -> dict[str, Any]:
    if known is None:
        return {"status": "error", "coord": {"lat": point.lat, "lon": point.lon}}
    feature = _feature(known)
    return {"status": "empty" if feature is None else "found", "data": feature}


def _feature(known: Known) -> dict[str, Any] | None:
    """A parcel as an endpoint's answer has it, but its area written one way only: "1234.56"."""
    dated = known.dated()
    if dated is None:
        return None
    properties = dated["properties"]
    if isinstance(properties.get("alan"), float | int):
        properties["alan"] = f"{properties['alan']:.2f}"
    return {"type": "Feature", "geometry": dated["geometry"], "properties": properties}


def _log_like_a_library() -> None:
    """Remarks go to the program's own logging, unless it has set up ours."""
    if not structlog.is_configured():
        structlog.configure(
            processors=[
                structlog.stdlib.filter_by_level,
                structlog.stdlib.render_to_log_kwargs,
            ],
            wrapper_class=structlog.stdlib.BoundLogger,
            logger_factory=structlog.stdlib.LoggerFactory(),
        )
