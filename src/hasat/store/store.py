"""The store: a pool of connections to a migrated database, on the embedded or a given server."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection
from psycopg.abc import Params
from psycopg.rows import TupleRow, class_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from hasat.errors import DatabaseError
from hasat.settings import Settings
from hasat.store import explain
from hasat.store.embedded import EmbeddedServer
from hasat.store.migrate import MigrationSet, migrate
from hasat.store.private import make_home_private

_WAIT_SECONDS = 10.0
# Longer than a caller waits, so that somebody is always trying while somebody waits.
_RECONNECT_SECONDS = 15.0
_CONNECT_SECONDS = 10

Pool = AsyncConnectionPool[AsyncConnection[TupleRow]]
T = TypeVar("T")


class Store:
    """The database, open for use. `label` names it for people, without a password."""

    def __init__(self, pool: Pool, url: str, *, embedded: bool, label: str) -> None:
        self.pool = pool
        self.url = url
        self.embedded = embedded
        self.label = label

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection[TupleRow]]:
        """One transaction: committed at the end, rolled back on an error."""
        try:
            async with self.pool.connection() as connection:
                yield connection
        except PoolTimeout as error:
            raise await self._why_no_connection() from error
        except psycopg.errors.DiskFull as error:
            raise explain.disk_full(error, self.label) from error
        except psycopg.Error as error:
            if explain.is_lost(error):
                raise explain.lost(error, self.label, embedded=self.embedded) from error
            raise

    async def rows(self, kind: type[T], query: str, values: Params | None = None) -> list[T]:
        """What a question is answered with, each row as one of that kind, by its columns' names."""
        async with self.connection() as conn, conn.cursor(row_factory=class_row(kind)) as cursor:
            await cursor.execute(query, values)
            return await cursor.fetchall()

    async def now(self) -> datetime:
        """The database's clock, the one that decides."""
        async with self.connection() as connection:
            row = await (await connection.execute("SELECT clock_timestamp()")).fetchone()
        if row is None:
            raise DatabaseError("PostgreSQL did not tell the time.")
        moment: datetime = row[0]
        return moment

    async def _why_no_connection(self) -> DatabaseError:
        try:
            async with await connect(self.url):
                pass
        except DatabaseError as error:
            return error
        return DatabaseError(
            f"No database connection became free within {self.pool.timeout:.0f} s: all "
            f"{self.pool.max_size} are busy.",
            remedy="Try again; if it happens often, raise database.pool_size.",
        )


@dataclass(frozen=True)
class Reached:
    """A database that answers, migrated or not. `address` is what new connections use."""

    url: str
    address: str | Callable[[], Awaitable[str]]
    label: str
    embedded: bool


@asynccontextmanager
async def reach(settings: Settings, *, leave_running: bool = False) -> AsyncIterator[Reached]:
    """The given database, else the embedded one, whose server is started if needed."""
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
) -> AsyncIterator[Store]:
    """The database, migrated and with a pool of connections."""
    async with reach(settings) as reached:
        await bring_up_to_date(reached, migrations)
        # PgBouncer in transaction mode cannot keep prepared statements.
        unprepared = {} if reached.embedded else {"prepare_threshold": None}
        pool: Pool = AsyncConnectionPool(
            reached.address,
            kwargs=_parameters(reached.url) | unprepared,
            min_size=1,
            max_size=pool_size or settings.database.pool_size,
            timeout=_WAIT_SECONDS,
            reconnect_timeout=_RECONNECT_SECONDS,
            check=AsyncConnectionPool.check_connection,
            name="hasat",
            open=False,
        )
        async with pool:
            yield Store(pool, reached.url, embedded=reached.embedded, label=reached.label)


async def bring_up_to_date(reached: Reached, migrations: Sequence[MigrationSet]) -> list[str]:
    """Apply the migrations that are pending; returns their names."""
    try:
        async with await connect(reached.url) as connection:
            return await migrate(connection, migrations)
    except psycopg.errors.InsufficientPrivilege as error:
        raise DatabaseError(
            f"The role may not read what Hasat keeps in {reached.label}: {error}.",
            remedy="Use the role that owns the database.",
        ) from error
    except psycopg.Error as error:
        raise explain.lost(error, reached.label, embedded=reached.embedded) from error


async def connect(url: str) -> AsyncConnection[TupleRow]:
    """One connection outside the pool, each statement its own transaction; or a sentence why not.

    It prepares no statements, so it works through PgBouncer.
    """
    parameters = _parameters(url)
    try:
        connection = await AsyncConnection.connect(
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


def _parameters(url: str) -> dict[str, Any]:
    """What we add to the URL where it says nothing itself."""
    name = f"hasat {os.getpid()}@{socket.gethostname()}"[:63]
    ours = {"connect_timeout": _CONNECT_SECONDS, "fallback_application_name": name}
    given = explain.parameters_of(url)
    return {key: value for key, value in ours.items() if key not in given}
