"""Budgets and grants: acquired in one round trip, awaited without blocking, and settled once."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self, TypeVar, cast

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow, class_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from hasat.budget.upstream import Upstream, declare
from hasat.clock import zone
from hasat.errors import DatabaseError, OutOfQuotaError, UsageError
from hasat.messages import Message, msg, template
from hasat.store import Store
from hasat.store.explain import is_lost, lost
from hasat.store.queries import load_query

REQUEST_RETENTION_DAYS = 14
USAGE_RETENTION_DAYS = 400

# The rules can change during a wait.
_POLL_SECONDS = 5.0
_CONNECTIONS = 4
_MAX_COUNT = 2**31 - 1
_POOL_TIMEOUT_SECONDS = 10.0

_ACQUIRE = load_query("hasat.budget", "acquire")
_SETTLE = load_query("hasat.budget", "settle")

Sleep = Callable[[float], Awaitable[None]]
Waiting = Callable[[float], AbstractAsyncContextManager[None]]
"""Surrounds a wait of about that many seconds, during which a run vacates its worker slot."""


def keep_slot(seconds: float) -> AbstractAsyncContextManager[None]:
    """Wait without vacating a worker slot."""
    return nullcontext()


IsUsedUp = Callable[[], Awaitable[bool]]
"""The upstream's free status request: whether the day is used up. True without a response."""
# After these outcomes the upstream's day is not used up.
_REOPENING = frozenset({"ok", "empty", "not_in_plan", "bad_request"})

Connection = AsyncConnection[TupleRow]
T = TypeVar("T")


@dataclass(frozen=True)
class Remaining:
    """The remaining quota and the limits in the headers of a response; None if not stated."""

    day: int | None = None
    minute: int | None = None
    day_limit: int | None = None
    minute_limit: int | None = None


UNKNOWN = Remaining()


@dataclass(frozen=True)
class Grant:
    """Permission to send one request now; it is spent whatever the outcome."""

    budget: "Budget"
    request: int
    """The number in the ledger."""
    lane: str
    cost: int
    waited: float
    """The seconds spent waiting for it."""
    is_recheck: bool = False
    """Whether its response decides if an exhausted day is reopened."""

    async def settle(
        self,
        outcome: str,
        headers: Remaining = UNKNOWN,
        latency: float | None = None,
        retry_after: float | None = None,
    ) -> bool:
        """Record the outcome of the request; return False if it was recorded before."""
        is_new = await self.budget.settle(self.request, outcome, headers, latency, retry_after)
        if self.is_recheck and is_new and outcome in _REOPENING:
            await self.budget.reopen_after(self.request)
        return is_new


@dataclass(frozen=True)
class _Decision:
    verdict: str
    reason: str | None
    wait: float | None
    until: datetime | None
    request: int | None
    new_day: bool | None


def _in_range(count: int | None) -> int | None:
    """Return the count, or None for a value that an upstream cannot mean."""
    return count if count is not None and 0 <= count <= _MAX_COUNT else None


class Budget:
    """The budget of one upstream, as used by one process."""

    def __init__(
        self,
        store: Store,
        upstream: Upstream,
        *,
        sleep: Sleep = asyncio.sleep,
        waiting: Waiting = keep_slot,
        is_used_up: IsUsedUp | None = None,
    ) -> None:
        self.upstream = upstream
        self._store = store
        self._sleep = sleep
        self._waiting = waiting
        self._is_used_up = is_used_up
        self._lanes = frozenset(lane.name for lane in upstream.lanes)
        self._declared = False
        self._opening = asyncio.Lock()
        self._pool: AsyncConnectionPool[Connection] | None = None
        # One request per lane and endpoint waits in the database; the others queue here.
        self._queues: defaultdict[tuple[str, str | None], asyncio.Lock] = defaultdict(asyncio.Lock)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        if self._pool is not None:
            await self._pool.close()
            self._pool = None

    async def acquire(
        self,
        lane: str,
        *,
        job: str,
        cost: int = 1,
        endpoint: str | None = None,
        run: int | None = None,
        timeout: float = 60.0,  # noqa: ASYNC109 - an error of ours, not a cancellation
    ) -> Grant:
        """Return the grant for one request, after waiting at most `timeout` seconds.

        Raises OutOfQuotaError with the time to try again if it is refused or the wait is too long.
        """
        if lane not in self._lanes:
            raise UsageError(
                msg(
                    "{upstream} has no lane {lane!r}; its lanes are {lanes}.",
                    upstream=self.upstream.name,
                    lane=lane,
                    lanes=sorted(self._lanes),
                )
            )
        if cost < 1:
            raise UsageError(msg("A request costs at least 1, not {cost}.", cost=cost))
        clock = asyncio.get_running_loop().time
        began = clock()
        values: dict[str, Any] = {
            "upstream": self.upstream.name,
            "lane": lane,
            "cost": cost,
            "endpoint": endpoint,
            "job": job,
            "run": run,
        }
        queue = self._queues[lane, endpoint if self.upstream.has_endpoints else None]
        at_once = not queue.locked()
        try:
            async with asyncio.timeout(timeout):
                await queue.acquire()
        except TimeoutError:
            raise refusal(self.upstream, lane, "queue", None) from None
        patience = timeout - (clock() - began)
        try:
            while True:
                waited = 0.0 if at_once else clock() - began
                decision = await self._decide(values | {"waited": waited})
                if decision.verdict == "granted" and decision.request is not None:
                    if decision.new_day:
                        with suppress(DatabaseError):
                            await self._delete_expired()
                    return Grant(self, decision.request, lane, cost, waited)
                if decision.reason == "exhausted" and (grant := await self._recheck(values)):
                    return grant
                wait = decision.wait or 0.0
                if decision.verdict != "wait" or wait > patience:
                    raise refusal(self.upstream, lane, decision.reason or "", decision.until)
                at_once = False
                pause = min(wait, _POLL_SECONDS)
                # The time to get a worker slot back does not count.
                patience -= pause
                async with self._waiting(wait):
                    await self._sleep(pause)
        finally:
            queue.release()

    async def settle(
        self,
        request: int,
        outcome: str,
        headers: Remaining = UNKNOWN,
        latency: float | None = None,
        retry_after: float | None = None,
    ) -> bool:
        """Record the outcome of a request by its number, as `Grant.settle` does."""
        values = {
            "request": request,
            "outcome": outcome,
            "latency_ms": None if latency is None else latency * 1000,
            "retry_after": retry_after,
            "day": _in_range(headers.day),
            "day_limit": _in_range(headers.day_limit),
            "minute": _in_range(headers.minute),
            "minute_limit": _in_range(headers.minute_limit),
        }

        async def write(conn: Connection) -> bool:
            cursor = await conn.execute(_SETTLE, values)
            return await cursor.fetchone() == (True,)

        return await self._with_connection(write)

    async def reopen_after(self, request: int) -> None:
        """Reopen the day after the response to a re-check."""

        async def reopen(conn: Connection) -> None:
            await conn.execute("SELECT budget.reopen_after(%s)", [request])

        await self._with_connection(reopen)

    async def slow_down(self, factor: float, pause: float = 0.0) -> None:
        """Reduce the rate of every process; a tenth of the full rate is restored each minute."""

        async def slow(conn: Connection) -> None:
            await conn.execute(
                "SELECT budget.slow_down(%s, %s, %s, NULL)", [self.upstream.name, factor, pause]
            )

        await self._with_connection(slow)

    async def _decide(self, values: dict[str, Any]) -> _Decision:
        async def decide(conn: Connection) -> _Decision:
            if not self._declared:
                await declare(conn, self.upstream)
                self._declared = True
            async with conn.cursor(row_factory=class_row(_Decision)) as cursor:
                await cursor.execute(_ACQUIRE, values)
                decision = await cursor.fetchone()
                if decision is None or decision.verdict == "undeclared":
                    # After a restore, or another process with other lanes.
                    await declare(conn, self.upstream)
                    await cursor.execute(_ACQUIRE, values)
                    decision = await cursor.fetchone()
            assert decision is not None
            return decision

        return await self._with_connection(decide)

    async def _recheck(self, values: dict[str, Any]) -> Grant | None:
        """Re-check an exhausted day if that is due and no other process does it.

        The free status request comes first. Only if it shows remaining quota, one request is
        granted, and its response reopens the day.
        """

        async def claim(conn: Connection) -> bool:
            cursor = await conn.execute(
                "SELECT budget.claim_recheck(%(upstream)s, %(cost)s)", values
            )
            return await cursor.fetchone() == (True,)

        async def grant(conn: Connection) -> int | None:
            cursor = await conn.execute(load_query("hasat.budget", "grant_recheck"), values)
            row = await cursor.fetchone()
            return cast(int | None, row[0]) if row else None

        if not await self._with_connection(claim):
            return None
        if self._is_used_up is not None and await self._is_used_up():
            return None
        request = await self._with_connection(grant)
        if request is None:
            return None
        return Grant(self, request, values["lane"], values["cost"], 0.0, is_recheck=True)

    async def _delete_expired(self) -> None:
        async def delete(conn: Connection) -> None:
            await conn.execute(
                load_query("hasat.budget", "delete_expired"),
                {"request_days": REQUEST_RETENTION_DAYS, "usage_days": USAGE_RETENTION_DAYS},
            )

        await self._with_connection(delete)

    async def _with_connection(self, use: Callable[[Connection], Awaitable[T]]) -> T:
        """Use a connection that commits each statement.

        A grant is thus one round trip, and its lock is never held by a busy or dead process. After
        a restart of the server every pooled connection may be dead, so the statement is repeated on
        the next one. At worst each repetition spends a grant that is not used.
        """
        pool = self._pool or await self._open()
        dead = 0
        try:
            while True:
                try:
                    async with pool.connection() as conn:
                        return await use(conn)
                except psycopg.Error as error:
                    dead += 1
                    if isinstance(error, PoolTimeout) or not is_lost(error) or dead > _CONNECTIONS:
                        raise
                    await pool.check()
        except PoolTimeout as error:
            raise DatabaseError(
                msg(
                    "Cannot reach the budget of {upstream}: {error}.",
                    upstream=self.upstream.name,
                    error=error,
                ),
                remedy=msg(
                    "Try again when the database responds; nothing is sent without a grant."
                ),
            ) from error
        except psycopg.Error as error:
            if is_lost(error):
                raise lost(error, self._store.label, embedded=self._store.embedded) from error
            raise

    async def _open(self) -> AsyncConnectionPool[Connection]:
        async with self._opening:
            if self._pool is None:
                shared = self._store.pool
                options: dict[str, Any] = cast(dict[str, Any], shared.kwargs)
                pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
                    shared.conninfo,
                    connection_class=shared.connection_class,
                    kwargs=options | {"autocommit": True},
                    min_size=1,
                    max_size=_CONNECTIONS,
                    timeout=_POOL_TIMEOUT_SECONDS,
                    name="hasat-budget",
                    open=False,
                )
                await pool.open()
                self._pool = pool
            return self._pool


_REASONS = {
    "spent": template("the daily quota is used up, except the reserve that {lane} must leave"),
    "reserved": template(
        "the rest of the daily quota is reserved for lanes with higher priority than {lane}"
    ),
    "exhausted": template("the upstream reports that the daily quota is used up"),
    "endpoint_spent": template("the daily quota of this endpoint is used up"),
    "endpoint_exhausted": template("this endpoint reports that its daily quota is used up"),
    "minute": template("the limit per minute is reached"),
    "turn": template("lanes with higher priority than {lane} are waiting"),
    "paused": template("the upstream asked for a pause"),
    "endpoint": template("this endpoint was used a moment ago or is in cooldown"),
    "opening": template("{lane} may not send in the first minutes of a quota day"),
    "paced": template("{lane} is spread over the day and has used its share for now"),
    "queue": template("other requests of this process are already waiting for {lane}"),
}


def refusal(upstream: Upstream, lane: str, reason: str, until: datetime | None) -> OutOfQuotaError:
    """Return the error for a grant that is refused or not available in time."""
    why = Message(_REASONS[reason], {"lane": repr(lane)})
    when = msg("later")
    if until is not None:
        there = until.astimezone(zone(upstream.zone))
        when = msg("after {until:%Y-%m-%d %H:%M:%S} {zone}", until=there, zone=there.tzname() or "")
    return OutOfQuotaError(
        msg("No request to {upstream}: {why}.", upstream=upstream.name, why=why),
        remedy=msg("Try again {when}; `hasat quota` shows every window.", when=when),
        until=until,
    )
