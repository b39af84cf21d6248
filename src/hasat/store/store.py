"""The store: a pool of connections to a migrated database, on the embedded or a given server."""

import asyncio
import math
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection
from psycopg.abc import Params, QueryNoTemplate
from psycopg.rows import TupleRow, class_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from hasat.errors import DatabaseError
from hasat.messages import msg
from hasat.settings import Settings
from hasat.store import explain
from hasat.store.embedded.layout import Layout
from hasat.store.embedded.server import EmbeddedServer
from hasat.store.home import make_home_private
from hasat.store.liveness import Liveness, watched_session_class
from hasat.store.migrate import MigrationSet, migrate
from hasat.store.reader import Reader, TextRow
from hasat.store.session import (
    DEFAULT_FROZEN_SECONDS,
    BlockingSession,
    Session,
    check,
    configure,
    kept_alive,
    session_class,
    transport_parameters,
)

_WAIT_SECONDS = 10.0
# Longer than a caller waits, so that a reconnect is in progress while callers wait.
_RECONNECT_SECONDS = 15.0
_CONNECT_SECONDS = 10

_PING_PART = 1 / 6
"""How often a long transaction is kept alive, as a part of `frozen_seconds`."""

Pool = AsyncConnectionPool[Session]
Fence = Callable[[AsyncConnection[TupleRow]], Awaitable[None]]
"""Runs first in a transaction, and raises if its owner may no longer write."""

T = TypeVar("T")


class Store:
    """An open database; `label` names it for people, without a password."""

    def __init__(
        self,
        pool: Pool,
        url: str,
        *,
        embedded: bool,
        label: str,
        frozen_seconds: float = DEFAULT_FROZEN_SECONDS,
        fence: Fence | None = None,
        liveness: Liveness | None = None,
        reader: Reader | None = None,
    ) -> None:
        self.pool = pool
        self.url = url
        self.embedded = embedded
        self.label = label
        self.liveness = liveness
        self.primary = self
        """Where the newest commit is."""
        self.reads = self
        """Where to read what may be as old as a standby; the primary where there is none."""
        self._frozen_seconds = frozen_seconds
        self._fence = fence
        self._reader = reader

    def fenced(self, fence: Fence) -> "Store":
        """Return the same database with a fence that every transaction passes first."""
        return Store(
            self.pool,
            self.url,
            embedded=self.embedded,
            label=self.label,
            frozen_seconds=self._frozen_seconds,
            fence=fence,
            liveness=self.liveness,
            reader=self._reader,
        )

    def connection(self) -> AbstractAsyncContextManager[AsyncConnection[TupleRow]]:
        """Open a transaction: committed at the end, rolled back on an error."""
        return self._transaction(self._fence)

    def snapshot(self) -> AbstractAsyncContextManager[AsyncConnection[TupleRow]]:
        """Open a read-only transaction in which all statements see one snapshot."""
        return self._transaction(_read_one_state)

    @asynccontextmanager
    async def _transaction(self, first: Fence | None) -> AsyncIterator[AsyncConnection[TupleRow]]:
        async with (
            self._connection() as connection,
            _left_if_demoted(connection),
            kept_alive(connection, self._frozen_seconds * _PING_PART),
        ):
            if first is not None:
                await first(connection)
            yield connection

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Session]:
        async with self._explained(), self.pool.connection() as connection:
            try:
                yield connection
            finally:
                connection.used_at = time.monotonic()

    @asynccontextmanager
    async def _explained(self) -> AsyncIterator[None]:
        """Refuse at once while the server is away, and raise what failed in plain words."""
        if self.liveness is not None:
            self.liveness.check()
        try:
            yield
        except PoolTimeout as error:
            raise await self._why_no_connection() from error
        except psycopg.Error as error:
            if trouble := explain.sentence(error, self.label, embedded=self.embedded):
                raise trouble from error
            raise

    async def read(self, query: QueryNoTemplate, values: Params | None = None) -> list[TupleRow]:
        """Run one statement that only reads, as one prepared statement in one round trip.

        Through a pooler such as PgBouncer it is a transaction like any other: statements cannot be
        prepared there, and only a transaction carries the time-outs of its session.
        """
        return await self._run_alone(query, values)

    async def read_texts(self, statement: bytes, values: Sequence[bytes]) -> list[TextRow]:
        """Run one statement that only reads, as `read` does, with the least work (`Reader`)."""
        assert self._reader is not None
        for is_last in (False, True):
            try:
                async with self._explained():
                    return await self._reader.rows(statement, values)
            except (DatabaseError, psycopg.OperationalError):
                # The connection may have been lost before it was used.
                if is_last or not self._reader.is_lost:
                    raise
        raise AssertionError

    async def write(self, query: QueryNoTemplate, values: Params | None = None) -> list[TupleRow]:
        """Run and commit one statement, as `read` does, and return its rows.

        If its connection was lost it runs again, perhaps for the second time. A fenced store runs
        it in a transaction behind its fence.
        """
        if self._fence is None:
            return await self._run_alone(query, values)
        async with self.connection() as connection:
            cursor = await connection.execute(query, values)
            return await cursor.fetchall()

    async def _run_alone(self, query: QueryNoTemplate, values: Params | None) -> list[TupleRow]:
        for is_last in (False, True):
            connection: Session | None = None
            try:
                async with self._connection() as connection, _left_if_demoted(connection):
                    if not connection.is_direct:
                        cursor = await connection.execute(query, values)
                        return await cursor.fetchall()
                    with connection.in_autocommit():
                        cursor = await connection.execute(query, values, prepare=True)
                        return await cursor.fetchall()
            except (DatabaseError, psycopg.OperationalError):
                # A pooled connection may have been lost before it was used.
                if is_last or connection is None or not connection.closed:
                    raise
        raise AssertionError

    async def rows(self, kind: type[T], query: str, values: Params | None = None) -> list[T]:
        """Run a query and return each row as an instance of a class, by column names."""
        async with self.connection() as conn, conn.cursor(row_factory=class_row(kind)) as cursor:
            await cursor.execute(query, values)
            return await cursor.fetchall()

    async def now(self) -> datetime:
        """Return the time of the database, which is authoritative."""
        async with self.connection() as connection:
            row = await (await connection.execute("SELECT clock_timestamp()")).fetchone()
        if row is None:
            raise DatabaseError(msg("PostgreSQL returned no time."))
        moment: datetime = row[0]
        return moment

    async def _why_no_connection(self) -> DatabaseError:
        try:
            if self.liveness is None:
                async with await connect(self.url):
                    pass
            elif self.liveness.trouble is not None or not await self.liveness.responds():
                self.liveness.check()
        except DatabaseError as error:
            return error
        return DatabaseError(
            msg(
                "No database connection became free within {timeout:.0f} s: all "
                "{max_size} are busy.",
                timeout=self.pool.timeout,
                max_size=self.pool.max_size,
            ),
            remedy=msg("Try again; if it happens often, raise database.pool_size."),
        )


async def _read_one_state(connection: AsyncConnection[TupleRow]) -> None:
    await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")


class _StandbyReads(Store):
    """Reads from a standby; from the primary while the standby does not respond."""

    async def read(self, query: QueryNoTemplate, values: Params | None = None) -> list[TupleRow]:
        try:
            return await super().read(query, values)
        except DatabaseError:
            return await self.primary.read(query, values)

    async def read_texts(self, statement: bytes, values: Sequence[bytes]) -> list[TextRow]:
        try:
            return await super().read_texts(statement, values)
        except DatabaseError:
            return await self.primary.read_texts(statement, values)

    @asynccontextmanager
    async def _transaction(self, first: Fence | None) -> AsyncIterator[AsyncConnection[TupleRow]]:
        async with AsyncExitStack() as stack:
            try:
                connection = await stack.enter_async_context(super()._transaction(first))
            except DatabaseError:
                connection = await stack.enter_async_context(self.primary._transaction(first))
            yield connection


@asynccontextmanager
async def _left_if_demoted(connection: AsyncConnection[TupleRow]) -> AsyncIterator[None]:
    """Close a connection to a primary that became a standby; the next one finds the new primary."""
    try:
        yield
    except psycopg.errors.ReadOnlySqlTransaction:
        await connection.close()
        raise


@dataclass(frozen=True)
class Reached:
    """A database that accepts connections, migrated or not; `address` is for new connections."""

    url: str
    address: str | Callable[[], Awaitable[str]]
    label: str
    embedded: bool


def has_database(settings: Settings) -> bool:
    """Return whether a database is configured, or an embedded one has been created."""
    return settings.database.url is not None or Layout(settings.home / "postgres").data.is_dir()


@asynccontextmanager
async def reach(settings: Settings, *, leave_running: bool = False) -> AsyncIterator[Reached]:
    """Connect to the configured database, else start the embedded one."""
    await asyncio.to_thread(make_home_private, settings.home)
    if settings.database.url is not None:
        url = settings.database.url.get_secret_value()
        yield Reached(url, url, explain.label_of(url), embedded=False)
        return
    server = EmbeddedServer(settings.home, binaries=settings.database.binaries)
    async with server.lease(leave_running=leave_running) as url:
        yield Reached(url, server.address, str(server.layout.data), embedded=True)


@asynccontextmanager
async def open_store(
    settings: Settings,
    migrations: Sequence[MigrationSet] = (),
    pool_size: int | None = None,
    *,
    for_requests: bool = False,
) -> AsyncIterator[Store]:
    """Open the migrated database with a connection pool.

    With `for_requests`, callers do not wait for a server that does not respond, and the standby of
    `database.read_url` serves `Store.reads`. Not for jobs: their long statements must not depend on
    whether PgBouncer has a free connection for the liveness check.
    """
    database = settings.database
    size = pool_size or database.pool_size
    async with reach(settings) as reached, AsyncExitStack() as stack:
        await bring_up_to_date(reached, migrations)
        seconds = database.response_seconds if for_requests and not reached.embedded else None
        opened = _open(Store, reached, size, database.frozen_seconds, seconds)
        store = await stack.enter_async_context(opened)
        if for_requests and database.read_url is not None:
            url = database.read_url.get_secret_value()
            standby = Reached(url, url, explain.label_of(url), embedded=False)
            opened = _open(
                _StandbyReads, standby, size, database.frozen_seconds, database.response_seconds
            )
            store.reads = await stack.enter_async_context(opened)
            store.reads.primary = store
        yield store


@asynccontextmanager
async def _open(
    kind: type[Store],
    reached: Reached,
    size: int,
    frozen_seconds: float,
    response_seconds: float | None,
) -> AsyncIterator[Store]:
    """Open a connection pool; without `response_seconds` a slow server is waited for."""
    # Given servers may be behind a pooler, and are upgraded while other processes run.
    options: dict[str, Any] = {} if reached.embedded else {"prepare_threshold": None}
    wait_seconds, liveness = _WAIT_SECONDS, None
    sessions = session_class(frozen_seconds)
    if response_seconds is not None:
        wait_seconds = min(_WAIT_SECONDS, 2 * response_seconds)
        limits = {"connect_timeout": max(2, math.ceil(response_seconds))}
        liveness = Liveness(
            partial(connect, reached.url, **limits), reached.label, response_seconds
        )
        sessions = watched_session_class(frozen_seconds, liveness)
        options |= limits
    make_pool = partial(
        AsyncConnectionPool,
        reached.address,
        connection_class=sessions,
        kwargs=_parameters(reached.url, frozen_seconds, options),
        min_size=1,
        timeout=wait_seconds,
        reconnect_timeout=_RECONNECT_SECONDS,
        configure=configure,
        check=check,
        open=False,
    )
    pool: Pool = make_pool(max_size=size, name="hasat")
    reader = Reader(make_pool(max_size=1, name="hasat-reader"))
    try:
        async with pool:
            yield kind(
                pool,
                reached.url,
                embedded=reached.embedded,
                label=reached.label,
                frozen_seconds=frozen_seconds,
                liveness=liveness,
                reader=reader,
            )
    finally:
        await reader.close()
        if liveness is not None:
            await liveness.close()


async def bring_up_to_date(reached: Reached, migrations: Sequence[MigrationSet]) -> list[str]:
    """Apply pending migrations and return their names."""
    try:
        async with await connect(reached.url) as connection:
            return await migrate(connection, migrations)
    except psycopg.errors.InsufficientPrivilege as error:
        raise DatabaseError(
            msg(
                "The role may not read what Hasat keeps in {reached}: {error}.",
                reached=reached.label,
                error=error,
            ),
            remedy=msg("Use the role that owns the database."),
        ) from error
    except psycopg.Error as error:
        trouble = explain.sentence(error, reached.label, embedded=reached.embedded)
        raise trouble or explain.lost(error, reached.label, embedded=reached.embedded) from error


async def connect(url: str, **options: Any) -> AsyncConnection[TupleRow]:
    """Open a connection outside the pool in autocommit mode; raise DatabaseError if that fails.

    It prepares no statements, so it works through PgBouncer.
    """
    parameters = _parameters(url, options=options)
    try:
        connection = await Session.connect(
            url, autocommit=True, prepare_threshold=None, **parameters
        )
    except psycopg.Error as error:
        raise explain.cannot_connect(error, url) from error
    try:
        info = connection.info
        explain.check_server(info.server_version, info.parameter_status("server_encoding"), url)
    except DatabaseError:
        await connection.close()
        raise
    return connection


def connect_blocking(url: str, **parameters: Any) -> BlockingSession:
    """Return a connection for a thread or process that reads on its own, through PgBouncer too."""
    return BlockingSession.connect(url, prepare_threshold=None, **_parameters(url), **parameters)


def _parameters(
    url: str,
    frozen_seconds: float = DEFAULT_FROZEN_SECONDS,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the parameters that the URL does not set."""
    name = f"hasat {os.getpid()}@{socket.gethostname()}"[:63]
    ours = {
        "connect_timeout": _CONNECT_SECONDS,
        "fallback_application_name": name,
        **transport_parameters(frozen_seconds),
        **(options or {}),
    }
    given = explain.parameters_of(url)
    return {key: value for key, value in ours.items() if key not in given}
