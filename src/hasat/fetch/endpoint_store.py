"""The endpoints' state in the database, which all processes share; times are the database's."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import psycopg
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from psycopg import AsyncConnection
from psycopg.rows import TupleRow, class_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from hasat.errors import DatabaseError
from hasat.fetch.health import DAY_OVER, Effect, LatencySketch, Record, Worth
from hasat.fetch.outcomes import DEFINITIVE, Outcome, Request, Verdict
from hasat.fetch.workers_file import Endpoint
from hasat.messages import msg
from hasat.store import Store
from hasat.store.explain import is_lost, lost
from hasat.store.queries import load_query
from hasat.store.store import Pool

_ALIKE_WINDOW_SECONDS = 600.0
_UPSTREAM_REST_SECONDS = 30.0
_REFUSED_REST_SECONDS = 3600.0
# What a holder may need beyond its request's own time-out before it counts as dead.
LEASE_GRACE_SECONDS = 10.0

_CONNECTIONS = 4
_PATIENCE_SECONDS = 10.0
_LOCK_UPSTREAM = "SELECT FROM fetching.upstream WHERE upstream = %(upstream)s FOR UPDATE"
_END_PROBE = """
    UPDATE fetching.upstream SET prober = NULL, probe_until = NULL
    WHERE upstream = %(upstream)s AND prober = %(holder)s
"""


@dataclass(frozen=True)
class Seen:
    """An endpoint as it stands, and its upstream; durations are seconds from now."""

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
class _Claimed:
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
    """An endpoint that is ours for one request."""

    endpoint: Endpoint
    holder: UUID
    record: Record
    worth: Worth
    sketch: LatencySketch


@dataclass(frozen=True)
class Done:
    """What came of the request of a claim; without a verdict it was cancelled."""

    verdict: Verdict | None
    effect: Effect
    worth: Worth
    hedge: bool


class SharedState:
    """One upstream's rows; `key` is a fingerprint of the key that this process sends."""

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
        """With a row for every endpoint, and connections of its own.

        They have no transaction around each statement, so that a claim is one round trip.
        """
        await self._declare()
        theirs = self._store.pool
        assert isinstance(theirs.kwargs, dict)
        self._pool: Pool = AsyncConnectionPool(
            theirs.conninfo,
            connection_class=theirs.connection_class,
            kwargs=theirs.kwargs | {"autocommit": True},
            min_size=1,
            max_size=_CONNECTIONS,
            timeout=_PATIENCE_SECONDS,
            name="hasat-fetch",
            open=False,
        )
        async with self._pool:
            yield

    @asynccontextmanager
    async def _quick(self) -> AsyncIterator[AsyncConnection[TupleRow]]:
        try:
            async with self._pool.connection() as conn:
                yield conn
        except PoolTimeout as error:
            raise DatabaseError(
                msg("The endpoints' state cannot be read: {error}.", error=error)
            ) from error
        except psycopg.Error as error:
            if is_lost(error):
                # The others are dead too, after a restart of the server.
                await self._pool.check()
                raise lost(error, self._store.label, embedded=self._store.embedded) from error
            raise

    async def look(self, kind: str) -> list[Seen]:
        """Every endpoint, in the order in which they were declared."""
        async with self._quick() as conn:
            cursor = conn.cursor(row_factory=class_row(Seen))
            await cursor.execute(load_query("hasat.fetch", "look"), self._names | {"kind": kind})
            seen = {row.url: row for row in await cursor.fetchall()}
        if len(seen) < len(self._endpoints):
            # The database was restored from a time before they were declared.
            await self._declare()
            return await self.look(kind)
        return [seen[url] for url in self._endpoints]

    async def _declare(self) -> None:
        async with self._store.connection() as conn:
            await conn.execute(load_query("hasat.fetch", "declare"), self._names)

    async def probe(self, holder: UUID, question: Request) -> bool:
        """Whether we are the one who asks a rested upstream whether it is back."""
        values = {"holder": holder, "lease": _lease(question)}
        async with self._store.connection() as conn:
            done = await conn.execute(load_query("hasat.fetch", "probe"), self._names | values)
            return done.rowcount == 1

    async def claim(self, url: str, holder: UUID, question: Request, apart: float) -> Claim | None:
        """The endpoint, if it is free; the points of the question are spent by this."""
        endpoint = self._endpoints[url]
        values = {
            "url": url,
            "holder": holder,
            "lease": _lease(question),
            "apart": apart,
            "points": question.points,
            "daily": endpoint.daily,
            "kind": question.kind,
        }
        async with self._quick() as conn:
            cursor = conn.cursor(row_factory=class_row(_Claimed))
            await cursor.execute(load_query("hasat.fetch", "claim"), self._names | values)
            row = await cursor.fetchone()
        if row is None:
            return None
        return Claim(
            endpoint,
            holder,
            Record(row.points, row.learned, row.streak, row.rest_level),
            Worth(row.mean, row.weight).after(row.measured_ago),
            LatencySketch.from_bytes(row.sketch),
        )

    async def release(self, holder: UUID, question: Request) -> None:
        """Give back what was claimed but not asked."""
        values = {"holder": holder, "points": question.points}
        async with self._store.connection() as conn:
            await conn.execute(_END_PROBE, self._names | values)
            await conn.execute(load_query("hasat.fetch", "release"), self._names | values)

    async def settle(self, claim: Claim, question: Request, done: Done, *, opening: bool) -> None:
        """Write what came of a claim, and what it says about the upstream as a whole.

        `opening` says that the upstream was thought to rest.
        """
        verdict, effect = done.verdict, done.effect
        answered = verdict is not None and verdict.outcome in DEFINITIVE
        values = {
            "holder": claim.holder,
            "kind": question.kind,
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
            "hedge": done.hedge,
            "hedge_won": done.hedge and answered,
            "mean": done.worth.mean,
            "weight": done.worth.weight,
            "sketch": claim.sketch.to_bytes(),
        }
        there = answered or (verdict is not None and verdict.outcome is Outcome.DAY_EXHAUSTED)
        if verdict is None or (there and not opening):
            async with self._quick() as conn:
                await conn.execute(load_query("hasat.fetch", "settle"), self._names | values)
            return
        async with self._quick() as conn, conn.transaction():
            # Always the upstream's row before an endpoint's, so that two never wait for each other.
            await conn.execute(_LOCK_UPSTREAM, self._names)
            await conn.execute(load_query("hasat.fetch", "settle"), self._names | values)
            if there:
                await conn.execute(load_query("hasat.fetch", "open"), self._names)
                return
            if verdict.outcome is Outcome.UNAUTHORISED:
                refused = {"rest": _REFUSED_REST_SECONDS, "cause": verdict.reason}
                await conn.execute(load_query("hasat.fetch", "refuse"), self._names | refused)
            else:
                alike = {
                    "holder": claim.holder,
                    "outcome": verdict.outcome.value,
                    "window": _ALIKE_WINDOW_SECONDS,
                    "day_over": DAY_OVER,
                    "rest": _UPSTREAM_REST_SECONDS,
                    "retry_after": verdict.retry_after or 0.0,
                    "cause": verdict.reason,
                }
                await conn.execute(load_query("hasat.fetch", "alike"), self._names | alike)


def _lease(question: Request) -> float:
    return question.timeout + LEASE_GRACE_SECONDS


_QUANTILES = (0.5, 0.95, 0.99)


@dataclass(frozen=True)
class EndpointReport:
    """One endpoint: the counters of the original, its day, its rest and its latencies."""

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
        """Seconds by kind of question and quantile."""
        return {
            kind: {
                share: LatencySketch.from_bytes(data).quantile(share) or 0.0 for share in _QUANTILES
            }
            for kind, data in zip(self.kinds, self.sketches, strict=True)
        }


async def read_endpoints(
    store: Store, upstream: str, *, zone: str = "Europe/Istanbul"
) -> list[EndpointReport]:
    """Every endpoint of an upstream, also those that are no longer declared."""
    values = {"upstream": upstream, "zone": zone}
    return await store.rows(EndpointReport, load_query("hasat.fetch", "endpoints"), values)


class EndpointMetrics(Collector):
    """The endpoints at the moment of the scrape."""

    def __init__(self, reports: Sequence[EndpointReport]) -> None:
        self._reports = reports

    def collect(self) -> Iterator[Metric]:
        labels = ("upstream", "endpoint")
        counters = {
            "hasat_endpoint_successes": ("Answers, also that there is nothing.", "successes"),
            "hasat_endpoint_failures": ("Requests without a usable answer.", "failures"),
            "hasat_endpoint_hedges": ("Second tries for slow answers.", "hedges"),
            "hasat_endpoint_hedges_won": ("Second tries that answered first.", "hedges_won"),
            "hasat_endpoint_cancelled": ("Requests that lost their race.", "cancelled"),
        }
        for name, (text, field) in counters.items():
            family = CounterMetricFamily(name, text, labels=labels)
            for report in self._reports:
                family.add_metric((report.upstream, report.url), getattr(report, field))
            yield family
        resting = GaugeMetricFamily("hasat_endpoint_resting", "1 while it rests.", labels=labels)
        points = GaugeMetricFamily(
            "hasat_endpoint_points", "Points that were asked today.", labels=labels
        )
        seconds = GaugeMetricFamily(
            "hasat_endpoint_seconds",
            "How long answers take, by share of them.",
            labels=(*labels, "kind", "quantile"),
        )
        for report in self._reports:
            names = (report.upstream, report.url)
            resting.add_metric(names, float(report.rest_until is not None))
            points.add_metric(names, report.points)
            for kind, quantiles in report.latencies().items():
                for share, value in quantiles.items():
                    seconds.add_metric((*names, kind, f"{share:g}"), value)
        yield from (resting, points, seconds)
