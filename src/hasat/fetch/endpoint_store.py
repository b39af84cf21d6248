"""The state of endpoints in the database, shared by all processes, and reports about it.

All times are taken from the database's clock.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow, class_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from hasat.errors import DatabaseError
from hasat.fetch.health import DAY_OVER, CostEstimate, Effect, EndpointRecord, LatencySketch
from hasat.fetch.outcomes import DEFINITIVE, Outcome, Request, Verdict
from hasat.fetch.workers_file import Endpoint
from hasat.messages import msg
from hasat.store import Store
from hasat.store.explain import is_lost, lost
from hasat.store.queries import load_query
from hasat.store.store import Pool

_SAME_FAILURE_SECONDS = 600.0
_UPSTREAM_REST_SECONDS = 30.0
_REFUSED_REST_SECONDS = 3600.0
# How long a claim outlives its request's time-out before another process may take it.
LEASE_GRACE_SECONDS = 10.0

_CONNECTIONS = 4
_POOL_TIMEOUT_SECONDS = 10.0
_LOCK_UPSTREAM = "SELECT FROM fetching.upstream WHERE upstream = %(upstream)s FOR UPDATE"
_END_PROBE = """
    UPDATE fetching.upstream SET prober = NULL, probe_until = NULL
    WHERE upstream = %(upstream)s AND prober = %(holder)s
"""


@dataclass(frozen=True)
class EndpointRow:
    """An endpoint and its upstream; durations are seconds from now."""

    url: str
    held: bool
    next_in: float
    rest_in: float
    rest_cause: str | None
    points: int
    learned: int | None
    mean: float
    weight: float
    measured_ago: float
    sketch: bytes | None
    upstream_rest_in: float
    upstream_cause: str | None
    upstream_level: int
    refused_key: str | None
    day_ends_in: float


@dataclass(frozen=True)
class _ClaimRow:
    points: int
    learned: int | None
    streak: int
    rest_level: int
    mean: float
    weight: float
    measured_ago: float
    sketch: bytes | None


@dataclass(frozen=True)
class Claim:
    """An endpoint that this process may send one request to."""

    endpoint: Endpoint
    holder: UUID
    record: EndpointRecord
    cost: CostEstimate
    sketch: LatencySketch


@dataclass(frozen=True)
class Settlement:
    """The result of a claimed request; a cancelled request has no verdict."""

    verdict: Verdict | None
    effect: Effect
    cost: CostEstimate
    hedge: bool


@dataclass(frozen=True)
class EndpointUse:
    """The requests that all processes have sent to the endpoints so far, and the hedges of them."""

    requests: int
    hedges: int


class EndpointStore:
    """The rows of one upstream; `key` is a fingerprint of the API key of this process."""

    def __init__(
        self, store: Store, upstream: str, endpoints: Sequence[Endpoint], zone: str, key: str
    ) -> None:
        self._store = store
        self._endpoints = {endpoint.url: endpoint for endpoint in endpoints}
        self._names = {
            "upstream": upstream,
            "urls": list(self._endpoints),
            "zone": zone,
            "key": key,
        }

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Add missing rows and open connections.

        The connections commit each statement, so that a claim is one round trip.
        """
        await self._declare()
        pool = self._store.pool
        assert isinstance(pool.kwargs, dict)
        self._pool: Pool = AsyncConnectionPool(
            pool.conninfo,
            connection_class=pool.connection_class,
            kwargs=pool.kwargs | {"autocommit": True},
            min_size=1,
            max_size=_CONNECTIONS,
            timeout=_POOL_TIMEOUT_SECONDS,
            name="hasat-fetch",
            open=False,
        )
        async with self._pool:
            yield

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[AsyncConnection[TupleRow]]:
        try:
            async with self._pool.connection() as conn:
                yield conn
        except PoolTimeout as error:
            raise DatabaseError(
                msg("Cannot read the state of the endpoints: {error}.", error=error)
            ) from error
        except psycopg.Error as error:
            if is_lost(error):
                # After a restart of the server the other connections are dead too.
                await self._pool.check()
                raise lost(error, self._store.label, embedded=self._store.embedded) from error
            raise

    async def read(self, kind: str) -> list[EndpointRow]:
        """Return every endpoint in the order of declaration."""
        async with self._connection() as conn:
            cursor = conn.cursor(row_factory=class_row(EndpointRow))
            await cursor.execute(
                load_query("hasat.fetch", "read_endpoints"), self._names | {"kind": kind}
            )
            seen = {row.url: row for row in await cursor.fetchall()}
        if len(seen) < len(self._endpoints):
            # The database was restored to a time before they were declared.
            await self._declare()
            return await self.read(kind)
        return [seen[url] for url in self._endpoints]

    async def use(self) -> EndpointUse:
        """Return what was sent to the declared endpoints since they were first used."""
        query = load_query("hasat.fetch", "read_endpoint_use")
        (use,) = await self._store.rows(EndpointUse, query, self._names)
        return use

    async def _declare(self) -> None:
        async with self._store.connection() as conn:
            await conn.execute(load_query("hasat.fetch", "declare_endpoints"), self._names)

    async def probe(self, holder: UUID, request: Request) -> bool:
        """Become the process that probes an upstream after its cooldown; return whether it is."""
        values = {"holder": holder, "lease": _lease(request)}
        async with self._store.connection() as conn:
            done = await conn.execute(
                load_query("hasat.fetch", "probe_upstream"), self._names | values
            )
            return done.rowcount == 1

    async def claim(
        self, url: str, holder: UUID, request: Request, interval: float
    ) -> Claim | None:
        """Claim the endpoint and spend the request's points; return None if it is not free."""
        endpoint = self._endpoints[url]
        values = {
            "url": url,
            "holder": holder,
            "lease": _lease(request),
            "interval": interval,
            "points": request.points,
            "daily": endpoint.daily,
            "kind": request.kind,
        }
        async with self._connection() as conn:
            cursor = conn.cursor(row_factory=class_row(_ClaimRow))
            await cursor.execute(load_query("hasat.fetch", "claim_endpoint"), self._names | values)
            row = await cursor.fetchone()
        if row is None:
            return None
        return Claim(
            endpoint,
            holder,
            EndpointRecord(row.points, row.learned, row.streak, row.rest_level),
            CostEstimate(row.mean, row.weight).after(row.measured_ago),
            LatencySketch.from_bytes(row.sketch),
        )

    async def release(self, holder: UUID, request: Request) -> None:
        """Release a claim whose request was not sent."""
        values = {"holder": holder, "points": request.points}
        async with self._store.connection() as conn:
            await conn.execute(_END_PROBE, self._names | values)
            await conn.execute(load_query("hasat.fetch", "release_endpoint"), self._names | values)

    async def settle(
        self, claim: Claim, request: Request, settlement: Settlement, *, opening: bool
    ) -> None:
        """Write the result of a claim, and what it means for the upstream as a whole.

        `opening` is set when the upstream was in cooldown as last seen.
        """
        verdict, effect = settlement.verdict, settlement.effect
        answered = verdict is not None and verdict.outcome in DEFINITIVE
        values = {
            "holder": claim.holder,
            "kind": request.kind,
            "until_day_ends": effect.until_day_ends,
            "rest": effect.rest,
            "cause": effect.cause,
            "rest_level": effect.rest_level,
            "streak": effect.streak,
            "learned": effect.learned,
            "outcome": verdict and verdict.outcome.value,
            "cancelled": verdict is None,
            "succeeded": answered,
            "failed": verdict is not None and not answered,
            "hedge": settlement.hedge,
            "hedge_won": settlement.hedge and answered,
            "mean": settlement.cost.mean,
            "weight": settlement.cost.weight,
            "sketch": claim.sketch.to_bytes(),
        }
        is_up = answered or (verdict is not None and verdict.outcome is Outcome.DAY_EXHAUSTED)
        if verdict is None or (is_up and not opening):
            async with self._connection() as conn:
                await conn.execute(load_query("hasat.fetch", "settle_claim"), self._names | values)
            return
        async with self._connection() as conn, conn.transaction():
            # Always lock the upstream's row before an endpoint's, to avoid deadlocks.
            await conn.execute(_LOCK_UPSTREAM, self._names)
            await conn.execute(load_query("hasat.fetch", "settle_claim"), self._names | values)
            if is_up:
                await conn.execute(load_query("hasat.fetch", "open_upstream"), self._names)
                return
            if verdict.outcome is Outcome.UNAUTHORISED:
                refused = {"rest": _REFUSED_REST_SECONDS, "cause": verdict.reason}
                await conn.execute(load_query("hasat.fetch", "refuse_key"), self._names | refused)
            else:
                values = {
                    "holder": claim.holder,
                    "outcome": verdict.outcome.value,
                    "window": _SAME_FAILURE_SECONDS,
                    "day_over": DAY_OVER,
                    "rest": _UPSTREAM_REST_SECONDS,
                    "retry_after": verdict.retry_after or 0.0,
                    "cause": verdict.reason,
                }
                await conn.execute(load_query("hasat.fetch", "rest_upstream"), self._names | values)


def _lease(request: Request) -> float:
    return request.timeout + LEASE_GRACE_SECONDS


_QUANTILES = (0.5, 0.95, 0.99)


@dataclass(frozen=True)
class EndpointReport:
    """One endpoint: counters, today's points, cooldown and latencies."""

    upstream: str
    url: str
    successes: int
    failures: int
    hedges: int
    hedges_won: int
    cancelled: int
    points: int
    learned: int | None
    rest_until: datetime | None
    rest_cause: str | None
    upstream_rest_until: datetime | None
    upstream_rest_cause: str | None
    last_outcome: str | None
    last_at: datetime | None
    kinds: list[str]
    sketches: list[bytes]

    def latencies(self) -> dict[str, dict[float, float]]:
        """Return the seconds by kind of request and quantile."""
        return {
            kind: {
                share: LatencySketch.from_bytes(data).quantile(share) or 0.0 for share in _QUANTILES
            }
            for kind, data in zip(self.kinds, self.sketches, strict=True)
        }


async def read_endpoints(
    store: Store, upstream: str, *, zone: str = "Europe/Istanbul"
) -> list[EndpointReport]:
    """Return every endpoint of an upstream, also those that are no longer declared."""
    values = {"upstream": upstream, "zone": zone}
    return await store.rows(EndpointReport, load_query("hasat.fetch", "report_endpoints"), values)


async def reset_rests(store: Store, upstream: str) -> None:
    """End the cooldowns of an upstream and its endpoints, as an operator who removed the cause."""
    async with store.connection() as conn:
        await conn.execute(load_query("hasat.fetch", "reset_rests"), {"upstream": upstream})
