"""Clients of the land registry: over the pool of endpoints, and directly where that is permitted.

A query is a point or a parcel number. One request to the pool has up to twenty points.
"""

import asyncio
import json
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hasat.budget import Budget, Remaining, Waiting, keep_slot, read_quotas
from hasat.errors import BrokenAnswerError, OutOfQuotaError, SettingsError, UnavailableError
from hasat.feed.raw import RawRequest, delete_expired_bodies, store_body_now
from hasat.fetch import (
    Client,
    ClientOptions,
    EndpointPool,
    Fetcher,
    FetchResult,
    HedgedFetcher,
    Outcome,
    Request,
    RequestContext,
    Response,
    read_workers,
)
from hasat.messages import msg
from hasat.settings import Settings
from hasat.sources.tkgm.registry.wire import (
    Parcel,
    ParcelNumber,
    Point,
    Query,
    check_location,
    classify,
    format_query,
    parse_object,
    parse_parcel,
)
from hasat.sources.tkgm.settings import (
    WORKERS_SETTING,
    TkgmSettings,
    registry_upstream,
    tkgm_upstream,
)
from hasat.store import Store
from hasat.store.quarantine import QuarantinedRecord, quarantine

_DATASET = "parcels"
MAX_BATCH_POINTS = 20
# A query that stays without a response this often is given up.
_MAX_TRIES = 6
# A query whose response cannot be read this often is given up.
_MAX_UNREADABLE = 3


# The query (none for a whole batch), why its response cannot be read, and the response.
Unreadable = tuple[Query | None, str, bytes]


@dataclass(frozen=True)
class ParcelResponse:
    """The registry's response to a query: a parcel or None, and the endpoint that returned it."""

    query: Query
    parcel: Parcel | None
    endpoint: str = ""


class RegistryClient:
    """Query the registry over a pool of endpoints, within their budgets.

    A response without the key of the parcel is broken, unless `keyed` is false.
    """

    def __init__(
        self,
        store: Store,
        fetcher: HedgedFetcher,
        pool: EndpointPool,
        settings: Settings,
        *,
        keyed: bool = True,
        waiting: Waiting = keep_slot,
    ) -> None:
        self._store = store
        self._fetcher = fetcher
        self._pool = pool
        self._tkgm = settings.section(TkgmSettings)
        self._urls = {one.endpoint.url for one in pool.states}
        self.endpoints = len(pool.states)
        self.by_number = any(one.endpoint.by_number for one in pool.states)
        self.day_budget = sum(one.endpoint.daily for one in pool.states)
        self.parcel_age = settings.section(TkgmSettings).parcel_age
        self.requests = 0
        self.quarantined = 0
        self._unreadable = Counter[Query]()
        self._keyed = keyed
        self._waiting = waiting

    async def fetch_one(
        self, query: Query, context: RequestContext, *, only: str | None = None
    ) -> ParcelResponse:
        """Return the response to one query; `only` names the endpoint to use."""
        request = _single_request(query, self._tkgm.single_timeout.total_seconds())
        fetched = await self._send(request, context, only)
        try:
            return ParcelResponse(query, self._parse(fetched, query), fetched.endpoint)
        except BrokenAnswerError as error:
            await self._quarantine(fetched, context, [(query, error.message, fetched.body)])
            raise

    async def fetch_batch(
        self, queries: Sequence[Query], context: RequestContext
    ) -> list[ParcelResponse]:
        """Send one request, for up to twenty points or a number; leave out what has no response."""
        if len(queries) == 1:
            [one] = queries
            try:
                return [await self.fetch_one(one, context)]
            except BrokenAnswerError:
                return []
        points = [one for one in queries if isinstance(one, Point)]
        request = Request(
            "/batch",
            self._tkgm.batch_timeout.total_seconds(),
            kind="batch",
            method="POST",
            json={"coordinates": [{"lat": one.lat, "lon": one.lon} for one in points]},
            points=len(points),
            hedge=False,
        )
        fetched = await self._send(request, context)
        responses, unreadable = _parse_batch(fetched, points, keyed=self._keyed)
        await self._quarantine(fetched, context, unreadable)
        return responses

    async def fetch_all(
        self, queries: Sequence[Query], context: RequestContext, waits: Sequence[float] = ()
    ) -> AsyncIterator[list[ParcelResponse]]:
        """Yield the responses to up to twenty points and any numbers, request by request.

        The caller can so store each response before the next request. Queries without a response
        are sent again. Points of a batch without any response are divided, so that one bad point
        spoils no other, and sent fewer at once if no endpoint has enough left today. Where no
        endpoint responds, the request is repeated after each of the `waits`, in seconds.

        Raises UnavailableError at the end if queries stayed without a response, BrokenAnswerError
        if responses could not be read (see `is_unreadable`).
        """
        points = [one for one in queries if isinstance(one, Point)]
        queue: deque[list[Query]] = deque([[*points]] if points else [])
        queue.extend([one] for one in queries if isinstance(one, ParcelNumber))
        pauses, tries = iter(waits), Counter[Query]()
        max_tries, given_up = _MAX_TRIES + len(waits), 0
        while queue:
            batch = queue.popleft()
            try:
                responses = await self.fetch_batch(batch, context)
            except OutOfQuotaError:
                left = self._pool.max_remaining()
                if not 0 < left < len(batch):
                    raise
                queue.extendleft((batch[left:], batch[:left]))
                continue
            except UnavailableError:
                pause = next(pauses, None)
                if pause is None:
                    raise
                async with self._waiting(pause):
                    await asyncio.sleep(pause)
                queue.appendleft(batch)
                continue
            if responses:
                pauses = iter(waits)
                yield responses
            else:
                pause = next(pauses, 0.0)
                async with self._waiting(pause):
                    await asyncio.sleep(pause)
            done = {one.query for one in responses}
            missing = [one for one in batch if one not in done]
            tries.update(missing)
            readable = [one for one in missing if not self.is_unreadable(one)]
            again = [one for one in readable if tries[one] < max_tries]
            given_up += len(readable) - len(again)
            half = len(again) if responses else (len(again) + 1) // 2
            queue.extend(part for part in (again[:half], again[half:]) if part)
        if given_up:
            raise UnavailableError(
                msg(
                    "{given_up} of {count} points got no response in {max_tries} tries.",
                    given_up=given_up,
                    count=len(queries),
                    max_tries=max_tries,
                ),
                remedy=msg("Try again later."),
            )
        if unreadable := sum(map(self.is_unreadable, queries)):
            raise BrokenAnswerError(
                msg(
                    "The responses to {unreadable} of {count} queries cannot be read.",
                    unreadable=unreadable,
                    count=len(queries),
                ),
                remedy=msg("They are in raw.set_aside."),
            )

    def is_unreadable(self, query: Query) -> bool:
        """Return whether the responses to a query could not be read, repeatedly."""
        return self._unreadable[query] >= _MAX_UNREADABLE

    async def quota_left(self, store: Store) -> int | None:
        """Return how many queries the endpoints have left today; None before the first request."""
        uses = [one for quota in await read_quotas(store, "tkgm") for one in quota.endpoints]
        left = [
            0 if one.exhausted_at is not None else max(0, one.day_limit - one.spent)
            for one in uses
            if one.name in self._urls and one.day_limit is not None
        ]
        return sum(left) if left else None

    def cooldowns(self) -> dict[str, float]:
        """Return the endpoints in cooldown as last seen, and the time.time() at which it ends."""
        now, clock = time.monotonic(), time.time()
        rests = {one.endpoint.url: one.rest_until - now for one in self._pool.states}
        return {url: clock + rest for url, rest in rests.items() if rest > 0}

    def last_used(self) -> str | None:
        """Return the endpoint that this client used last; None before the first request."""
        state = max(self._pool.states, key=lambda one: one.used)
        return state.endpoint.url if state.used else None

    def exclude(self, endpoint: str) -> None:
        """Send nothing to an endpoint while this client is open."""
        self._pool.exclude(endpoint)
        self._urls.discard(endpoint)

    async def _send(
        self, request: Request, context: RequestContext, only: str | None = None
    ) -> FetchResult:
        self.requests += 1
        fetched = await self._fetcher.fetch(request, context, only=only)
        if fetched.response is not None:
            await self._store_raw(request, fetched.response, context)
        return fetched

    async def _store_raw(
        self, request: Request, response: Response, context: RequestContext
    ) -> None:
        """Store a response as sent, with its request: the path, or what was asked for."""
        asked = request.by_number if request.json is None else request.json
        what = request.path if asked is None else f"{request.path} {json.dumps(asked)}"
        raw = RawRequest("tkgm", _DATASET, what, what, response.status, response.headers)
        await store_body_now(self._store, raw, response.body, run=context.run)

    async def _quarantine(
        self, fetched: FetchResult, context: RequestContext, parts: Sequence[Unreadable]
    ) -> None:
        """Store and count what could not be read; the pool has stored what is `broken`."""
        if not parts:
            return
        self.quarantined += len(parts)
        self._unreadable.update(one for one, _, _ in parts if one is not None)
        if fetched.verdict.outcome is Outcome.BROKEN:
            return
        asides = [
            QuarantinedRecord(
                f"{fetched.endpoint} {'batch' if one is None else format_query(one)}",
                reason,
                content,
            )
            for one, reason, content in parts
        ]
        async with self._store.connection() as conn:
            await quarantine(conn, "tkgm", context.run, asides)

    def _parse(self, fetched: FetchResult, query: Query) -> Parcel | None:
        match fetched.verdict.outcome:
            case Outcome.OK:
                return _parse_parcel_at(query, parse_object(fetched.body), keyed=self._keyed)
            case Outcome.EMPTY:
                return None
            case _:
                raise BrokenAnswerError(
                    msg(
                        "The registry's response is not usable: {reason}.",
                        reason=fetched.verdict.reason,
                    )
                )


class DirectClient:
    """Query the registry without an endpoint, one request at a time.

    Requests are paid for from the day of the address that they leave from.
    """

    def __init__(self, fetcher: Fetcher, seconds: float) -> None:
        self._fetcher = fetcher
        self._seconds = seconds
        self._lock = asyncio.Lock()

    @property
    def sent(self) -> int:
        """The requests that were sent."""
        return self._fetcher.sent

    async def get(
        self, path: str, job: str, *, patience: float = 60.0, pass_limits: bool = False
    ) -> FetchResult:
        """Return the response for a path, which may be that there is nothing.

        With `pass_limits` a request that came too fast is not repeated but raises OutOfQuotaError.
        """
        async with self._lock:
            fetched = await self._fetcher.fetch(
                Request(path, self._seconds),
                RequestContext("daily", job),
                patience=patience,
                pass_limits=pass_limits,
            )
        if fetched.verdict.outcome not in (Outcome.OK, Outcome.EMPTY):
            raise BrokenAnswerError(
                msg(
                    "The registry's response to {path} is not usable: {reason}.",
                    path=path,
                    reason=fetched.verdict.reason,
                ),
                remedy=msg("Check tkgm.registry.url."),
            )
        return fetched


@asynccontextmanager
async def open_registry(
    store: Store,
    settings: Settings,
    workers_file: Path,
    *,
    keyed: bool = True,
    waiting: Waiting = keep_slot,
) -> AsyncIterator[RegistryClient]:
    """Open a client over the endpoints that a workers.json declares."""
    tkgm = settings.section(TkgmSettings)
    workers = read_workers(
        workers_file,
        setting=WORKERS_SETTING,
        daily=tkgm.daily_per_endpoint,
        min_interval_ms=tkgm.min_interval_ms,
    )
    key = workers.api_key.get_secret_value()
    budget = Budget(store, tkgm_upstream(settings, workers.endpoints))
    pool = EndpointPool(
        store,
        budget,
        "tkgm",
        workers.endpoints,
        key=key,
        cooldown=tkgm.cooldown_seconds,
        waiting=waiting,
    )
    options = ClientOptions(tkgm.user_agent, {"X-API-Key": key})
    async with store.connection() as conn:
        await delete_expired_bodies(conn, "tkgm", _DATASET, tkgm.raw_retention_days)
    try:
        async with Client(options) as client, pool.opened():
            fetcher = HedgedFetcher(pool, client, classify, hedge_share=tkgm.hedge_percent / 100)
            yield RegistryClient(store, fetcher, pool, settings, keyed=keyed, waiting=waiting)
    finally:
        await budget.close()


@asynccontextmanager
async def open_direct(store: Store, settings: Settings) -> AsyncIterator[DirectClient]:
    """Open a client of the registry at tkgm.registry.url."""
    url = settings.section(TkgmSettings).registry.url
    if url is None:
        raise SettingsError(
            msg("The address of the registry is not set, so it cannot be queried directly."),
            remedy=msg(
                "If you are permitted to query it, set tkgm.registry.url, for example to "
                "https://cbsapi.tkgm.gov.tr/megsiswebapi.v3/api."
            ),
        )
    upstream = registry_upstream(settings)
    async with (
        Budget(store, upstream) as budget,
        Client(ClientOptions(settings.section(TkgmSettings).user_agent)) as client,
    ):
        fetcher = Fetcher(
            store, budget, client, upstream.name, url, classify, lambda headers: Remaining()
        )
        yield DirectClient(fetcher, settings.section(TkgmSettings).single_timeout.total_seconds())


def _single_request(query: Query, seconds: float) -> Request:
    match query:
        case Point(lat, lon):
            return Request(f"/parsel/{lat}/{lon}", seconds)
        case ParcelNumber(mahalle, ada, parsel):
            parts = {"mahalleId": str(mahalle), "adaNo": ada, "parselNo": parsel}
            return Request("", seconds, kind="number", by_number=parts)


def _parse_batch(
    fetched: FetchResult, points: Sequence[Point], *, keyed: bool
) -> tuple[list[ParcelResponse], list[Unreadable]]:
    """Return the responses of a batch, point by point, and the parts that cannot be read.

    A result with the status `error` is no response to its point, unless the error is 404.
    """
    if fetched.verdict.outcome is not Outcome.OK:
        return [], []
    content: Any = json.loads(fetched.body)
    results = content.get("results") if isinstance(content, dict) else None
    if not isinstance(results, list) or len(results) != len(points):
        return [], [(None, f"This is no list of {len(points)} results.", fetched.body)]
    responses: list[ParcelResponse] = []
    unreadable: list[Unreadable] = []
    for point, result in zip(points, results, strict=True):
        match result:
            case {"status": "found", "data": dict(feature)}:
                try:
                    parcel = _parse_parcel_at(point, feature, keyed=keyed)
                except BrokenAnswerError as error:
                    unreadable.append((point, error.message, json.dumps(feature).encode()))
                else:
                    responses.append(ParcelResponse(point, parcel, fetched.endpoint))
            case {"status": "empty"} if not result.get("data"):
                responses.append(ParcelResponse(point, None, fetched.endpoint))
            # A proxy that passes on the status of the registry: "no parcel here".
            case {"status": "error", "error": 404 | "404"}:
                responses.append(ParcelResponse(point, None, fetched.endpoint))
            case {"status": "error"}:
                continue
            case _:
                part = json.dumps(result).encode()
                unreadable.append((point, "This is no result of a batch.", part))
    return responses, unreadable


def _parse_parcel_at(query: Query, feature: Mapping[str, Any], *, keyed: bool) -> Parcel:
    parcel = parse_parcel(feature, keyed=keyed)
    if isinstance(query, Point):
        check_location(parcel, query)
    return parcel
