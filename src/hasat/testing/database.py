"""Throw-away databases for tests, copied from a migrated template, and a clock for them.

HASAT_TEST_SERVER chooses the server: `embedded` (the default), `debian` (the PostgreSQL installed
on the machine) or a URL. The first two are started for the tests alone, shared by all test
processes of the user and stopped by the last; the next run removes what a killed one left behind.
"""

import hashlib
import os
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from psycopg import AsyncConnection, sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow

from hasat.errors import ConflictError, SettingsError
from hasat.messages import msg
from hasat.settings import Settings, load_settings
from hasat.sim.clock import SettableClock
from hasat.store.embedded.account import Account
from hasat.store.embedded.binaries import installed_folders
from hasat.store.embedded.layout import make_private
from hasat.store.embedded.server import EmbeddedServer
from hasat.store.migrate import MigrationSet, checksum_of, known_migrations, migrate
from hasat.store.store import connect

SERVER_VARIABLE = "HASAT_TEST_SERVER"

_TEMPLATE_LOCK = 0x6861736175
_LEFT_BEHIND_SECONDS = 86_400
_CLOCK_FUNCTION = """
CREATE FUNCTION fake_clock.{}() RETURNS timestamptz LANGUAGE sql {}
AS 'SELECT at FROM fake_clock.clock'
"""


@dataclass(frozen=True)
class ThrowAwayDatabase:
    """A database for a single test."""

    url: str

    def settings(self, home: Path) -> Settings:
        """Return settings that use it as a configured server."""
        return load_settings(environ={"HASAT_HOME": str(home), "HASAT_DATABASE_URL": self.url})


class FakeDatabaseClock:
    """Moves the clock of a database and those of simulations forward together.

    Everything that decides reads the time from the database by `clock_timestamp()` or `now()`.
    Functions of these names in a schema that is searched first replace them for every process that
    connects afterwards. The clock stands still unless it is set, so the pace of the machine does
    not matter.
    """

    def __init__(
        self, conn: AsyncConnection[TupleRow], start: datetime, clocks: Sequence[SettableClock]
    ) -> None:
        self._conn = conn
        self._clocks = clocks
        self.now = start

    async def set_time(self, moment: datetime) -> None:
        """Jump forward to a moment; one in the past changes nothing."""
        if moment <= self.now:
            return
        self.now = moment
        await self._conn.execute("UPDATE fake_clock.clock SET at = %s", [moment])
        for clock in self._clocks:
            clock.set_time(moment)

    async def sleep(self, seconds: float) -> None:
        """Let time pass at once, with a microsecond more for what is rounded."""
        await self.set_time(self.now + timedelta(seconds=seconds, microseconds=1))


@asynccontextmanager
async def fake_database_clock(
    url: str, start: datetime, *clocks: SettableClock
) -> AsyncIterator[FakeDatabaseClock]:
    """Replace the clock of a throw-away database, and stop those of the given simulations."""
    async with await connect(url) as conn:
        await conn.execute("CREATE SCHEMA fake_clock")
        await conn.execute("CREATE UNLOGGED TABLE fake_clock.clock (at timestamptz NOT NULL)")
        await conn.execute("INSERT INTO fake_clock.clock VALUES (%s)", [start])
        for name, volatility in (("clock_timestamp", "VOLATILE"), ("now", "STABLE")):
            await conn.execute(
                sql.SQL(_CLOCK_FUNCTION).format(sql.Identifier(name), sql.SQL(volatility))
            )
        await conn.execute(
            sql.SQL("ALTER DATABASE {} SET search_path = fake_clock, pg_catalog, public").format(
                sql.Identifier(conn.info.dbname)
            )
        )
        for clock in clocks:
            clock.set_speed(0)
            clock.set_time(start)
        yield FakeDatabaseClock(conn, start, clocks)


@asynccontextmanager
async def database_server(choice: str | None = None) -> AsyncIterator[str]:
    """Yield the URL of a server on which databases may be created and dropped."""
    choice = choice or os.environ.get(SERVER_VARIABLE) or "embedded"
    if "://" in choice:
        yield choice
        return
    server = EmbeddedServer(_home(choice), binaries=_binaries(choice), durable=False)
    # A server without users was left by a killed run; its databases are removed with it.
    with suppress(ConflictError):
        await server.stop()
    async with server.lease() as url:
        yield url


@asynccontextmanager
async def throw_away_database(
    server_url: str, migrations: Sequence[MigrationSet] | None = ()
) -> AsyncIterator[ThrowAwayDatabase]:
    """Yield a migrated database, copied from a template made once per set of migrations.

    With None instead of migrations the database is empty.
    """
    name = f"hasat_test_{int(time.time())}_{secrets.token_hex(6)}"
    async with await connect(server_url) as admin:
        template = "template1"
        if migrations is not None:
            template = await _template(admin, server_url, migrations)
        await _create(admin, name, template)
    try:
        yield ThrowAwayDatabase(_with_database(server_url, name))
    finally:
        async with await connect(server_url) as admin:
            await _drop(admin, name)


async def _template(
    admin: AsyncConnection[TupleRow], server_url: str, migrations: Sequence[MigrationSet]
) -> str:
    declared = ";".join(f"{one.name}: {one.declared}" for one in migrations if one.declared)
    made_of = f"{checksum_of(known_migrations(migrations))} {declared}"
    name = f"hasat_template_{hashlib.sha256(made_of.encode()).hexdigest()[:16]}"
    if await _exists(admin, name):
        return name
    await admin.execute("SELECT pg_advisory_lock(%s)", [_TEMPLATE_LOCK])
    if not await _exists(admin, name):
        await _drop_left_behind(admin)
        unfinished = f"{name}_new"
        await _drop(admin, unfinished)
        await _create(admin, unfinished, "template1")
        async with await connect(_with_database(server_url, unfinished)) as connection:
            await migrate(connection, migrations)
        # Renamed when complete, so that a killed run leaves no half-made template under the name.
        await admin.execute(
            sql.SQL("ALTER DATABASE {} RENAME TO {}").format(
                sql.Identifier(unfinished), sql.Identifier(name)
            )
        )
    await admin.execute("SELECT pg_advisory_unlock(%s)", [_TEMPLATE_LOCK])
    return name


async def _exists(admin: AsyncConnection[TupleRow], name: str) -> bool:
    found = await admin.execute("SELECT FROM pg_database WHERE datname = %s", [name])
    return found.rowcount > 0


async def _create(admin: AsyncConnection[TupleRow], name: str, template: str) -> None:
    # Copying files is faster where nothing is synced to disk.
    await admin.execute(
        sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy").format(
            sql.Identifier(name), sql.Identifier(template)
        )
    )


async def _drop(admin: AsyncConnection[TupleRow], name: str) -> None:
    await admin.execute(
        sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
    )


async def _drop_left_behind(admin: AsyncConnection[TupleRow]) -> None:
    """Drop the databases of killed runs, which stay on a server given by URL."""
    found = await admin.execute(
        "SELECT datname FROM pg_database"
        " WHERE datname ~ '^hasat_test_[0-9]+_' AND split_part(datname, '_', 3)::bigint < %s",
        [int(time.time()) - _LEFT_BEHIND_SECONDS],
    )
    for (name,) in await found.fetchall():
        await _drop(admin, name)


def _home(choice: str) -> Path:
    home = Path(tempfile.gettempdir(), f"hasat-testing-{os.geteuid()}")
    make_private(home, Account("you", os.geteuid(), os.getegid()))
    return home / choice


def _binaries(choice: str) -> Path | None:
    if choice == "embedded":
        return None
    if choice != "debian":
        raise SettingsError(
            msg(
                "{setting} is {choice!r}; it must be embedded, debian or a URL.",
                setting=SERVER_VARIABLE,
                choice=choice,
            )
        )
    folders = installed_folders()
    if not folders:
        raise SettingsError(
            msg("{setting} is debian, but no PostgreSQL is installed.", setting=SERVER_VARIABLE),
            remedy=msg("Install it: apt-get install postgresql"),
        )
    return folders[0]


def _with_database(url: str, name: str) -> str:
    parts = conninfo_to_dict(url)
    old = parts.get("dbname")
    before, _, query = url.partition("?")
    base = before.removesuffix(f"/{old}") if old else before.rstrip("/")
    return f"{base}/{name}{'?' if query else ''}{query}"
