"""Grants: asked for in one round trip, waited for without blocking, and settled once."""

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

KEEP_REQUESTS_DAYS = 14
KEEP_USAGE_DAYS = 400

# Rules can change while somebody waits: look again at least so often.
_POLL_SECONDS = 5.0
_CONNECTIONS = 4
_MAX_COUNT = 2**31 - 1
_PATIENCE_SECONDS = 10.0

_ACQUIRE = load_query("hasat.budget", "acquire")
_SETTLE = load_query("hasat.budget", "settle")

Sleep = Callable[[float], Awaitable[None]]
Waiting = Callable[[float], AbstractAsyncContextManager[None]]
"""Surrounds a wait of about so many seconds: a run leaves its worker slot to others meanwhile."""


def keep_slot(seconds: float) -> AbstractAsyncContextManager[None]:
    """Wait without leaving anything to others."""
    return nullcontext()


IsUsedUp = Callable[[], Awaitable[bool]]
"""An upstream's free status request: whether its day is used up. True if it does not respond."""
# With these an upstream answers what it was asked: its day is not used up.
_REOPENING = frozenset({"ok", "empty", "not_in_plan", "bad_request"})

Connection = AsyncConnection[TupleRow]
T = TypeVar("T")


@dataclass(frozen=True)
class Remaining:
    """What an answer's headers say is left; None for what they do not say."""

    day: int | None = None
    minute: int | None = None
    day_limit: int | None = None
    minute_limit: int | None = None


NOTHING_SAID = Remaining()


@dataclass(frozen=True)
class Grant:
    """Leave to send one request, now. It is spent, whatever comes of it."""

    budget: "Budget"
    request: int
    """Its number in the ledger."""
    lane: str
    cost: int
    waited: float
    """Seconds that it took to get it."""
    is_recheck: bool = False
    """Whether its response decides if a day that was declared used up is open again."""

    async def settle(
        self,
        outcome: str,
        headers: Remaining = NOTHING_SAID,
        latency: float | None = None,
        retry_after: float | None = None,
    ) -> bool:
        """Write down what became of the request; False if that was done before."""
        is_new = await self.budget.settle(self.request, outcome, headers, latency, retry_after)
        if self.is_recheck and is_new and outcome in _REOPENING:
            await self.budget.reopen_after(self.request)
        return is_new


@dataclass(frozen=True)
class _Answer:
    verdict: str
    reason: str | None
    wait: float | None
    until: datetime | None
    request: int | None
    new_day: bool | None


def _in_range(count: int | None) -> int | None:
    """A count that can be one; upstreams send others, which say nothing."""
    return count if count is not None and 0 <= count <= _MAX_COUNT else None


class Budget:
    """One upstream's budget as one process uses it."""

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
        # One asker a lane and endpoint: the others of this process wait in line behind it.
        self._lines: defaultdict[tuple[str, str | None], asyncio.Lock] = defaultdict(asyncio.Lock)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the connections."""
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
        """Leave to send one request now, after waiting at most `timeout` seconds for it.

        OutOfQuotaError says when to come back, if it is refused or the wait would be too long.
        """
        if lane not in self._lanes:
            raise UsageError(
                msg(
                    "{upstream} has no lane {lane!r}: {lanes}.",
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
        line = self._lines[lane, endpoint if self.upstream.has_endpoints else None]
        at_once = not line.locked()
        try:
            async with asyncio.timeout(timeout):
                await line.acquire()
        except TimeoutError:
            raise refusal(self.upstream, lane, "line", None) from None
        patience = timeout - (clock() - began)
        try:
            while True:
                waited = 0.0 if at_once else clock() - began
                answer = await self._ask(values | {"waited": waited})
                if answer.verdict == "granted" and answer.request is not None:
                    if answer.new_day:
                        with suppress(DatabaseError):
                            await self._tidy()
                    return Grant(self, answer.request, lane, cost, waited)
                if answer.reason == "exhausted" and (grant := await self._recheck(values)):
                    return grant
                wait = answer.wait or 0.0
                if answer.verdict != "wait" or wait > patience:
                    raise refusal(self.upstream, lane, answer.reason or "", answer.until)
                at_once = False
                pause = min(wait, _POLL_SECONDS)
                # What it takes to get a worker slot back is no wait for the budget.
                patience -= pause
                async with self._waiting(wait):
                    await self._sleep(pause)
        finally:
            line.release()

    async def settle(
        self,
        request: int,
        outcome: str,
        headers: Remaining = NOTHING_SAID,
        latency: float | None = None,
        retry_after: float | None = None,
    ) -> bool:
        """What `Grant.settle` does, for whoever kept only the number."""
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
        """Open the day again after the response to a re-check."""

        async def reopen(conn: Connection) -> None:
            await conn.execute("SELECT budget.reopen_after(%s)", [request])

        await self._with_connection(reopen)

    async def slow_down(self, factor: float, pause: float = 0.0) -> None:
        """Let every process ask less often; a tenth of the full rate comes back each minute."""

        async def slow(conn: Connection) -> None:
            await conn.execute(
                "SELECT budget.slow_down(%s, %s, %s, NULL)", [self.upstream.name, factor, pause]
            )

        await self._with_connection(slow)

    async def _ask(self, values: dict[str, Any]) -> _Answer:
        async def ask(conn: Connection) -> _Answer:
            if not self._declared:
                await declare(conn, self.upstream)
                self._declared = True
            async with conn.cursor(row_factory=class_row(_Answer)) as cursor:
                await cursor.execute(_ACQUIRE, values)
                answer = await cursor.fetchone()
                if answer is None or answer.verdict == "undeclared":
                    # A restore, or a process with other lanes: say our rules again.
                    await declare(conn, self.upstream)
                    await cursor.execute(_ACQUIRE, values)
                    answer = await cursor.fetchone()
            assert answer is not None
            return answer

        return await self._with_connection(ask)

    async def _recheck(self, values: dict[str, Any]) -> Grant | None:
        """Re-check a day that was declared used up, if that is due and nobody else does.

        The free status request comes first. Only if it shows that something is left, one request
        is granted, and its response reopens the day.
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

    async def _tidy(self) -> None:
        async def tidy(conn: Connection) -> None:
            await conn.execute(
                load_query("hasat.budget", "tidy"),
                {"request_days": KEEP_REQUESTS_DAYS, "usage_days": KEEP_USAGE_DAYS},
            )

        await self._with_connection(tidy)

    async def _with_connection(self, use: Callable[[Connection], Awaitable[T]]) -> T:
        """Use a connection that has no transaction around each statement.

        So a grant is one round trip, and its lock is never held while a process is busy or gone.
        After a restart of the server each connection that we hold may be dead, which only use can
        tell: then it is done again on the next. At worst each try counts a grant that nobody got.
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
                    "The budget of {upstream} cannot be asked: {error}.",
                    upstream=self.upstream.name,
                    error=error,
                ),
                remedy=msg("Nothing is sent without a grant; try again when the database answers."),
            ) from error
        except psycopg.Error as error:
            if is_lost(error):
                raise lost(error, self._store.label, embedded=self._store.embedded) from error
            raise

    async def _open(self) -> AsyncConnectionPool[Connection]:
        async with self._opening:
            if self._pool is None:
                theirs = self._store.pool
                options: dict[str, Any] = cast(dict[str, Any], theirs.kwargs)
                pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
                    theirs.conninfo,
                    connection_class=theirs.connection_class,
                    kwargs=options | {"autocommit": True},
                    min_size=1,
                    max_size=_CONNECTIONS,
                    timeout=_PATIENCE_SECONDS,
                    name="hasat-budget",
                    open=False,
                )
                await pool.open()
                self._pool = pool
            return self._pool


_WHY = {
    "spent": template("the day's requests are spent down to what is kept back from {lane}"),
    "reserved": template("what is left of the day is kept for lanes of more worth than {lane}"),
    "exhausted": template("the upstream says that the day's requests are used up"),
    "endpoint_spent": template("this endpoint's requests of the day are spent"),
    "endpoint_exhausted": template("this endpoint says that its requests of the day are used up"),
    "minute": template("as many requests as a minute allows are under way"),
    "turn": template("lanes of more worth than {lane} are waiting"),
    "paused": template("the upstream asked for a pause"),
    "endpoint": template("this endpoint was asked a moment ago or rests"),
    "opening": template("the first minutes of a quota day belong to other lanes than {lane}"),
    "paced": template("{lane} is spread over the day and had its part for now"),
    "line": template("others of this process are waiting for {lane} already"),
}


def refusal(upstream: Upstream, lane: str, reason: str, until: datetime | None) -> OutOfQuotaError:
    """The error for a grant that cannot be had, or not in time."""
    why = Message(_WHY[reason], {"lane": repr(lane)})
    when = msg("in a while")
    if until is not None:
        there = until.astimezone(zone(upstream.zone))
        when = msg("after {until:%Y-%m-%d %H:%M:%S} {zone}", until=there, zone=there.tzname() or "")
    return OutOfQuotaError(
        msg("No request to {upstream}: {why}.", upstream=upstream.name, why=why),
        remedy=msg("Try again {when}; `hasat quota` shows every window.", when=when),
        until=until,
    )
