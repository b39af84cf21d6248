"""The endpoints' state in the database, which all processes share; times are the database's."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow, class_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from hasat.errors import DatabaseError
from hasat.fetch.health import DAY_OVER, Effect, Record, Worth
from hasat.fetch.outcome import DEFINITIVE, Outcome, Question, Verdict
from hasat.fetch.sketch import LatencySketch
from hasat.fetch.workers import Endpoint
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

    async def probe(self, holder: UUID, question: Question) -> bool:
        """Whether we are the one who asks a rested upstream whether it is back."""
        values = {"holder": holder, "lease": _lease(question)}
        async with self._store.connection() as conn:
            done = await conn.execute(load_query("hasat.fetch", "probe"), self._names | values)
            return done.rowcount == 1

    async def claim(self, url: str, holder: UUID, question: Question, apart: float) -> Claim | None:
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

    async def release(self, holder: UUID, question: Question) -> None:
        """Give back what was claimed but not asked."""
        values = {"holder": holder, "points": question.points}
        async with self._store.connection() as conn:
            await conn.execute(_END_PROBE, self._names | values)
            await conn.execute(load_query("hasat.fetch", "release"), self._names | values)

    async def settle(self, claim: Claim, question: Question, done: Done, *, opening: bool) -> None:
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


def _lease(question: Question) -> float:
    return question.timeout + LEASE_GRACE_SECONDS
