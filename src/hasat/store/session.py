"""Database sessions that a frozen or cut-off process cannot hold for long.

Each transaction begins with its time-outs, in the same round trip as BEGIN. They are set with
SET LOCAL because that is what PgBouncer in transaction mode supports. PostgreSQL ends a session
that is idle inside a transaction; a process that is alive keeps a long transaction from being idle
(`kept_alive`).
"""

import asyncio
import select
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, ClassVar

import psycopg
from psycopg import AsyncConnection, BaseConnection, Connection, generators, pq
from psycopg.abc import PQGen, QueryNoTemplate
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

DEFAULT_FROZEN_SECONDS = 30.0
_UNCHECKED_SECONDS = 1.0
_ONLY_ON_DEMAND = 1_000_000_000

_SUCCEEDED = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)


def transport_parameters(frozen_seconds: float) -> dict[str, int]:
    """Return the libpq parameters with which a client notices that its server is unreachable."""
    return {
        "keepalives": 1,
        "keepalives_idle": _at_least_one(frozen_seconds / 3),
        "keepalives_interval": _at_least_one(frozen_seconds / 6),
        "keepalives_count": 3,
        "tcp_user_timeout": int(frozen_seconds * 1000),
    }


def _transaction_settings(frozen_seconds: float) -> bytes:
    """Return the SET LOCAL statements that follow BEGIN."""
    values = _timeouts(frozen_seconds)
    return "".join(f"; SET LOCAL {name} = '{value}'" for name, value in values.items()).encode()


def _session_settings(frozen_seconds: float) -> bytes:
    """Return the SET statements for a connection that is one session from its start to its end."""
    values = _timeouts(frozen_seconds)
    return "; ".join(f"SET {name} = '{value}'" for name, value in values.items()).encode()


def _timeouts(frozen_seconds: float) -> dict[str, str]:
    """Return the time-outs by setting.

    That for locks is much longer than the time for which a frozen process can hold one: a process
    that works may need minutes, as a first load does.
    """
    return {
        "idle_in_transaction_session_timeout": f"{frozen_seconds * 1000:.0f}ms",
        "lock_timeout": f"{frozen_seconds * 10_000:.0f}ms",
        "client_connection_check_interval": f"{frozen_seconds / 3 * 1000:.0f}ms",
        "tcp_keepalives_idle": f"{_at_least_one(frozen_seconds / 3)}",
        "tcp_keepalives_interval": f"{_at_least_one(frozen_seconds / 6)}",
        "tcp_keepalives_count": "3",
        "tcp_user_timeout": f"{frozen_seconds * 1000:.0f}ms",
    }


def _at_least_one(seconds: float) -> int:
    return max(1, round(seconds))


class _TimedTransactions(BaseConnection[Any]):
    """Sends the time-outs together with every BEGIN."""

    transaction_settings: ClassVar[bytes] = _transaction_settings(DEFAULT_FROZEN_SECONDS)
    session_settings: ClassVar[bytes] = _session_settings(DEFAULT_FROZEN_SECONDS)

    def _exec_command(
        self, command: QueryNoTemplate, result_format: pq.Format = pq.Format.TEXT
    ) -> PQGen[Any]:
        # psycopg sends BEGIN, COMMIT and ROLLBACK through here, for `transaction()` too.
        if not (isinstance(command, bytes) and command.startswith(b"BEGIN")) or self._pipeline:
            return (yield from super()._exec_command(command, result_format))
        self._check_connection_ok()
        self.pgconn.send_query(command + self.transaction_settings)
        results = yield from generators.execute(self.pgconn)
        for result in results:
            if result.status not in _SUCCEEDED:
                raise psycopg.errors.error_from_result(result, encoding=self.pgconn._encoding)
        return results[0]


class Session(_TimedTransactions, AsyncConnection[TupleRow]):
    """An asynchronous connection whose transactions have time-outs."""

    is_direct = False
    """Whether the session is one of PostgreSQL itself, not one of a pooler."""
    used_at = float("-inf")
    """When it was last returned to its pool, on the monotonic clock."""

    @contextmanager
    def in_autocommit(self) -> Iterator[None]:
        """Run statements outside a transaction; there must be none yet.

        `set_autocommit` checks that with a lock and a task switch, twice for each statement.
        """
        self._autocommit = True
        try:
            yield
        finally:
            self._autocommit = False


async def configure(session: Session) -> None:
    """Find out whether a new connection is a session of its own, and set its time-outs if it is.

    A pooler in transaction mode names a process that is none of PostgreSQL's. There, a statement
    that was prepared in one transaction may be missing in the next.
    """
    await session.set_autocommit(True)
    cursor = await session.execute("SELECT pg_backend_pid()")
    row = await cursor.fetchone()
    session.is_direct = row is not None and row[0] == session.info.backend_pid
    if session.is_direct:
        await session.execute(session.session_settings)
        if session.prepare_threshold is None:
            session.prepare_threshold = _ONLY_ON_DEMAND
    await session.set_autocommit(False)


async def check(session: Session) -> None:
    """Raise if a connection from the pool is lost.

    One that was used a moment ago and has received nothing since, not even its end, is not asked.
    """
    if time.monotonic() - session.used_at > _UNCHECKED_SECONDS or _has_input(session):
        await AsyncConnectionPool.check_connection(session)


def _has_input(session: Session) -> bool:
    poll = select.poll()
    poll.register(session.pgconn.socket, select.POLLIN)
    return bool(poll.poll(0))


class BlockingSession(_TimedTransactions, Connection[TupleRow]):
    """A blocking connection whose transactions have time-outs."""


def session_class(frozen_seconds: float) -> type[Session]:
    """Return the class of sessions with other time-outs than the default ones."""

    class Configured(Session):
        transaction_settings = _transaction_settings(frozen_seconds)
        session_settings = _session_settings(frozen_seconds)

    return Configured


@asynccontextmanager
async def kept_alive(conn: AsyncConnection[Any], every_seconds: float) -> AsyncIterator[None]:
    """Prevent the idle time-out of a transaction while the process computes or waits."""
    loop = asyncio.get_running_loop()
    ping: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle

    def start() -> None:
        nonlocal ping, timer
        ping = loop.create_task(_ping(conn))
        timer = loop.call_later(every_seconds, start)

    timer = loop.call_later(every_seconds, start)
    try:
        yield
    finally:
        timer.cancel()
        if ping is not None:
            # Not cancelled: that would cancel the statement, and the transaction with it.
            await asyncio.wait({ping})


async def _ping(conn: AsyncConnection[Any]) -> None:
    # Nothing is awaited between these checks and the lock inside `execute`, so that no other
    # statement, and no COPY, can begin in between.
    is_idle = conn.pgconn.transaction_status == pq.TransactionStatus.INTRANS
    if not is_idle or conn.lock.locked() or conn.pgconn.pipeline_status:
        return
    try:
        await conn.execute("SELECT")
    except psycopg.Error:
        # The connection is lost; the next statement of the transaction reports it.
        return
