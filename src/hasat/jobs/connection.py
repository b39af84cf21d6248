"""The worker's own connections to PostgreSQL, separate from those that its jobs use."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import TypeVar

import psycopg
import structlog
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from hasat.errors import DatabaseError
from hasat.store import Store

T = TypeVar("T")
Connection = psycopg.AsyncConnection[TupleRow]

DATABASE_ERRORS = (psycopg.OperationalError, psycopg.InterfaceError, DatabaseError)
"""Raised when PostgreSQL is unavailable or shutting down."""

CONNECTION_ERRORS = (*DATABASE_ERRORS, OSError)
"""The same around SQL only, where a time-out (an OSError) can only be PostgreSQL's."""

_MIN_PAUSE, _MAX_PAUSE = 0.1, 5.0
_TIMEOUT_SECONDS = 10.0

log = structlog.get_logger(__name__)


class RetryingPool:
    """A few connections that are retried while PostgreSQL is unavailable."""

    def __init__(self, pool: "AsyncConnectionPool[Connection]") -> None:
        self.pool = pool
        self.give_up = asyncio.Event()
        """Set when the process must end, whether PostgreSQL is available or not."""
        self._is_unavailable = False

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Open a transaction; raise one of CONNECTION_ERRORS within a limited time."""
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS), self.pool.connection() as connection:
                yield connection
        except CONNECTION_ERRORS as error:
            self.mark_unavailable(error)
            raise
        self.mark_available()

    async def retry(self, step: Callable[[], Awaitable[T]]) -> T:
        """Repeat the step until PostgreSQL responds; raise only after `give_up` is set."""
        pauses = backoff()
        while True:
            try:
                return await step()
            except CONNECTION_ERRORS:
                if self.give_up.is_set():
                    raise
            await wait_for_event(self.give_up, next(pauses))

    @property
    def is_given_up(self) -> bool:
        """Whether PostgreSQL is unavailable and there is no time left to wait for it."""
        return self._is_unavailable and self.give_up.is_set()

    def mark_unavailable(self, error: BaseException) -> None:
        if not self._is_unavailable:
            self._is_unavailable = True
            code = error.sqlstate if isinstance(error, psycopg.Error) else None
            event = "database.disk_full" if code == "53100" else "database.unavailable"
            log.warning(event, error=str(error), retrying=True)

    def mark_available(self) -> None:
        if self._is_unavailable:
            self._is_unavailable = False
            log.info("database.available")


@asynccontextmanager
async def open_retrying_pool(store: Store) -> AsyncIterator[RetryingPool]:
    """Open a retrying pool; PostgreSQL may be unavailable at that time."""
    assert isinstance(store.pool.kwargs, dict)
    pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
        # The store's callable, which restarts an embedded server that died.
        store.pool.conninfo,
        open=False,
        min_size=1,
        max_size=4,
        timeout=2.0,
        # The pool doubles its pauses up to this; longer ones would outlast a short outage.
        reconnect_timeout=5.0,
        connection_class=store.pool.connection_class,
        # PgBouncer in transaction mode cannot keep prepared statements apart.
        kwargs=store.pool.kwargs | {"prepare_threshold": None, "connect_timeout": 5},
        check=AsyncConnectionPool.check_connection,
        name="jobs",
    )
    await pool.open(wait=False)
    try:
        yield RetryingPool(pool)
    finally:
        await pool.close(timeout=2.0)


def backoff() -> Iterator[float]:
    """Yield 0.1, 0.2, 0.4, ... seconds, at most 5."""
    pause = _MIN_PAUSE
    while True:
        yield pause
        pause = min(pause * 2, _MAX_PAUSE)


async def wait_for_event(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event at most that many seconds; return whether it was set."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return event.is_set()
