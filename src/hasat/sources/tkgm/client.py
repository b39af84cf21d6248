"""Client of the land registry for Python programs.

client = TKGMClient("workers.json")
feature = client.get_parcel(39.9, 32.85)

Requests use the same budgets, endpoints and stored responses as `hasat tkgm`, in the same
database: the configured one, or the embedded one, which is started when needed.
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
from hasat.sources.tkgm.features import StoredParcel
from hasat.sources.tkgm.registry.client import RegistryClient, open_registry
from hasat.sources.tkgm.registry.lookup import Lookup, check_number, check_point
from hasat.sources.tkgm.registry.wire import Point, Query
from hasat.sources.tkgm.settings import WORKERS_SETTING, TkgmSettings
from hasat.store import MigrationSet, open_store

T = TypeVar("T")

Coordinate = tuple[float, float] | Sequence[float] | Mapping[str, float]
"""Latitude and longitude, or an object with lat and lon as in the results."""

_MIGRATIONS = MigrationSet("tkgm", files("hasat.sources.tkgm") / "migrations")
_CONTEXT = RequestContext("daily", "tkgm_client")


class AsyncTKGMClient:
    """Query the registry over the endpoints of a workers.json.

    The client opens on first use. `close` it at the end, or use it as a context manager.
    `settings` are those of this process unless given.
    """

    def __init__(self, config_path: str | Path, *, settings: Settings | None = None) -> None:
        self._settings = settings or load_settings()
        self._file = Path(config_path)
        tkgm = self._settings.section(TkgmSettings)
        declared = read_workers(
            self._file,
            setting=WORKERS_SETTING,
            daily=tkgm.daily_per_endpoint,
            min_interval_ms=tkgm.min_interval_ms,
        )
        self._workers = tuple(endpoint.url for endpoint in declared.endpoints)
        self._key = declared.api_key
        self._registry: RegistryClient | None = None
        self._open_lock = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._lookup: Lookup | None = None
        self._concurrency = asyncio.Semaphore(len(self.workers))

    @property
    def workers(self) -> list[str]:
        """The addresses of the endpoints."""
        return list(self._workers)

    @property
    def api_key(self) -> str:
        """The key that is sent to them."""
        return self._key.get_secret_value()

    @property
    def parallel_tries(self) -> int:
        """The most endpoints that one request is sent to."""
        return max_attempts(len(self._workers))

    @property
    def cooldown_map(self) -> dict[str, float]:
        """The endpoints in cooldown as last seen, and the time.time() at which it ends."""
        return {} if self._registry is None else self._registry.cooldowns()

    @property
    def current_index(self) -> int:
        """The position in `workers` after the endpoint that was used last."""
        last = None if self._registry is None else self._registry.last_used()
        return 0 if last is None else (self._workers.index(last) + 1) % len(self._workers)

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Save the state of the endpoints and close the database."""
        async with self._open_lock:
            self._lookup = self._registry = None
            await self._stack.aclose()

    async def get_parcel(
        self, lat: float, lon: float, *, fresh: bool = False
    ) -> dict[str, Any] | None:
        """Return the parcel at a point as a GeoJSON Feature; None where there is none.

        Recent responses are reused unless `fresh`; the property `fetchedAt` is their time. Raises
        OutOfQuotaError when the day's budgets are spent, UnavailableError when no endpoint
        responds.
        """
        return _feature(await (await self._open()).at(check_point(lat, lon), fresh=fresh))

    async def get_parcel_by_number(
        self, mahalle_id: int, ada: str | int, parsel: str | int, *, fresh: bool = False
    ) -> dict[str, Any] | None:
        """Return the parcel with a number, from an endpoint that declares `by_number`."""
        number = check_number(mahalle_id, ada, parsel)
        return _feature(await (await self._open()).numbered(number, fresh=fresh))

    async def get_batch(
        self, coordinates: Iterable[Coordinate], *, fresh: bool = False
    ) -> dict[str, Any]:
        """Return the parcels at many points: `results` in the order of the points, and `stats`.

        A request has at most twenty points, and only points without a response are sent again. A
        point that stays without one is an `error`; if all do, the reason is raised.
        """
        points = [_point(one) for one in coordinates]
        lookup = await self._open()
        found: dict[Query, StoredParcel] = {}
        distinct = list(dict.fromkeys(points))

        async def fetch(batch: Sequence[Point]) -> HasatError | None:
            try:
                async with self._concurrency:
                    async for responses in lookup.batch(batch, fresh=fresh):
                        found.update(responses)
            except HasatError as error:
                return error
            return None

        size = self._settings.section(TkgmSettings).batch_size
        batches = [distinct[n : n + size] for n in range(0, len(distinct), size)]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(fetch(batch)) for batch in batches]
        failures = [error for task in tasks if (error := task.result())]
        if failures and not found:
            raise failures[0]
        return _results(points, found)

    async def _open(self) -> Lookup:
        async with self._open_lock:
            if self._lookup is None:
                _use_standard_logging()
                async with AsyncExitStack() as stack:
                    store = await stack.enter_async_context(
                        open_store(self._settings, [_MIGRATIONS])
                    )
                    registry = await stack.enter_async_context(
                        open_registry(store, self._settings, self._file, keyed=False)
                    )
                    lookup = Lookup(store, self._settings, registry, _CONTEXT)
                    await lookup.delete_expired()
                    self._stack = stack.pop_all()
                self._lookup, self._registry = lookup, registry
            return self._lookup


class TKGMClient:
    """A blocking `AsyncTKGMClient` that any thread may call; it is closed when the program ends."""

    def __init__(self, config_path: str | Path, *, settings: Settings | None = None) -> None:
        self._arguments = config_path, settings
        self._runner: _LoopThread | None = None
        self._lock = threading.Lock()
        self._declared = AsyncTKGMClient(config_path, settings=settings)

    @property
    def workers(self) -> list[str]:
        """The addresses of the endpoints."""
        return self._declared.workers

    @property
    def api_key(self) -> str:
        """The key that is sent to them."""
        return self._declared.api_key

    @property
    def parallel_tries(self) -> int:
        """The most endpoints that one request is sent to."""
        return self._declared.parallel_tries

    @property
    def cooldown_map(self) -> dict[str, float]:
        """The endpoints in cooldown as last seen, and the time.time() at which it ends."""
        return self._client.cooldown_map

    @property
    def current_index(self) -> int:
        """The position in `workers` after the endpoint that was used last."""
        return self._client.current_index

    @property
    def _client(self) -> AsyncTKGMClient:
        """The client that is open, else one that has sent nothing."""
        runner = self._runner
        return self._declared if runner is None else runner.client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Save the state of the endpoints and close the database."""
        with self._lock:
            runner, self._runner = self._runner, None
            if runner is not None:
                atexit.unregister(self.close)
                runner.stop()

    def get_parcel(self, lat: float, lon: float, *, fresh: bool = False) -> dict[str, Any] | None:
        """Return the parcel at a point as a GeoJSON Feature; None where there is none."""
        return self._call(lambda client: client.get_parcel(lat, lon, fresh=fresh))

    def get_parcel_by_number(
        self, mahalle_id: int, ada: str | int, parsel: str | int, *, fresh: bool = False
    ) -> dict[str, Any] | None:
        """Return the parcel with a number, from an endpoint that declares `by_number`."""
        return self._call(
            lambda client: client.get_parcel_by_number(mahalle_id, ada, parsel, fresh=fresh)
        )

    def get_batch(
        self, coordinates: Iterable[Coordinate], *, fresh: bool = False
    ) -> dict[str, Any]:
        """Return the parcels at many points: `results` in the order of the points, and `stats`."""
        return self._call(lambda client: client.get_batch(coordinates, fresh=fresh))

    def _call(self, method: Callable[[AsyncTKGMClient], Coroutine[Any, Any, T]]) -> T:
        with self._lock:
            if self._runner is None:
                path, settings = self._arguments
                self._runner = _LoopThread(AsyncTKGMClient(path, settings=settings))
                atexit.register(self.close)
            runner = self._runner
        return runner.wait_for(method(runner.client))


class _LoopThread:
    """Run a client on an event loop in a separate thread, usable from notebooks and threads."""

    def __init__(self, client: AsyncTKGMClient) -> None:
        self.client = client
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="hasat-tkgm", daemon=True
        )
        self._thread.start()

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        try:
            self.wait_for(self.client.close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


def _point(coordinate: Coordinate) -> Point:
    try:
        if isinstance(coordinate, Mapping):
            return check_point(float(coordinate["lat"]), float(coordinate["lon"]))
        lat, lon = coordinate
        return check_point(float(lat), float(lon))
    except (KeyError, TypeError, ValueError):
        raise UsageError(
            msg("{coordinate!r} is not a coordinate.", coordinate=coordinate),
            remedy=msg("Give (lat, lon) pairs."),
        ) from None


def _results(points: Sequence[Point], found: Mapping[Query, StoredParcel]) -> dict[str, Any]:
    results = [_result(point, found.get(point)) for point in points]
    stats = dict.fromkeys(("found", "empty", "error"), 0)
    for result in results:
        stats[result["status"]] += 1
    return {"results": results, "stats": {**stats, "total": len(results)}}


def _result(point: Point, found: StoredParcel | None) -> dict[str, Any]:
    if found is None:
        return {"status": "error", "coord": {"lat": point.lat, "lon": point.lon}}
    feature = _feature(found)
    return {"status": "empty" if feature is None else "found", "data": feature}


def _feature(found: StoredParcel) -> dict[str, Any] | None:
    """Return a parcel in the form of an endpoint's response, its area always like "1234.56"."""
    dated = found.dated()
    if dated is None:
        return None
    properties = dated["properties"]
    if isinstance(properties.get("alan"), float | int):
        properties["alan"] = f"{properties['alan']:.2f}"
    return {"type": "Feature", "geometry": dated["geometry"], "properties": properties}


def _use_standard_logging() -> None:
    """Log through the standard library, unless the program has configured structlog."""
    if not structlog.is_configured():
        structlog.configure(
            processors=[
                structlog.stdlib.filter_by_level,
                structlog.stdlib.render_to_log_kwargs,
            ],
            wrapper_class=structlog.stdlib.BoundLogger,
            logger_factory=structlog.stdlib.LoggerFactory(),
        )
