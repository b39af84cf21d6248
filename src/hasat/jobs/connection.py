"""The engine's own way to PostgreSQL, which stays open however busy the jobs keep the store."""

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
"""What is raised when PostgreSQL is away or going down."""

CONNECTION_ERRORS = (*DATABASE_ERRORS, OSError)
"""The same around nothing but SQL, where a time-out (an OSError) can only be PostgreSQL's."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_ANSWER_SECONDS = 10.0

log = structlog.get_logger(__name__)


class RetryingPool:
    """A few connections, and patience when PostgreSQL is away."""

    def __init__(self, pool: "AsyncConnectionPool[Connection]") -> None:
        self.pool = pool
        self.give_up = asyncio.Event()
        """Set when the process must end, whether PostgreSQL comes back or not."""
        self._is_away = False

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """One transaction; raises one of CONNECTION_ERRORS within a bounded time."""
        try:
            async with asyncio.timeout(_ANSWER_SECONDS), self.pool.connection() as connection:
                yield connection
        except CONNECTION_ERRORS as error:
            self.note_away(error)
            raise
        self.note_back()

    async def insist(self, step: Callable[[], Awaitable[T]]) -> T:
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
    def hopeless(self) -> bool:
        """PostgreSQL is away, and there is no more time to wait for it."""
        return self._is_away and self.give_up.is_set()

    def note_away(self, error: BaseException) -> None:
        if not self._is_away:
            self._is_away = True
            code = error.sqlstate if isinstance(error, psycopg.Error) else None
            event = "PostgreSQL does not answer; trying again until it does"
            if code == "53100":
                event = "PostgreSQL's disk is full; trying again until there is room"
            log.warning(event, error=str(error))

    def note_back(self) -> None:
        if self._is_away:
            self._is_away = False
            log.info("PostgreSQL answers again")


@asynccontextmanager
async def open_retrying_pool(store: Store) -> AsyncIterator[RetryingPool]:
    """A link for as long as the block lasts; PostgreSQL need not be there when it is opened."""
    assert isinstance(store.pool.kwargs, dict)
    pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
        # The store's own way to an address: it starts an embedded server that died.
        store.pool.conninfo,
        open=False,
        min_size=1,
        max_size=4,
        timeout=2.0,
        # The pool doubles its pauses up to this; a longer one would outlast the outage itself.
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
    """0.1, 0.2, 0.4, ... up to 5 seconds, then 5 for ever."""
    pause = _FIRST_PAUSE
    while True:
        yield pause
        pause = min(pause * 2, _LONGEST_PAUSE)


async def wait_for_event(event: asyncio.Event, seconds: float) -> bool:
    """Whether the event was set before that many seconds were over."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return event.is_set()
