"""Throw-away databases for tests: migrated, made from a template, gone afterwards.

The server is chosen by HASAT_TEST_SERVER: `embedded` (the default), `debian` (the PostgreSQL that
is installed on the machine) or a URL. Either of the first two is started for the tests alone,
shared by all test processes of the user, and stopped by the last; what a killed run leaves behind
is cleaned up by the next one.
"""

import os
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from psycopg import AsyncConnection, sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow

from hasat.errors import ConflictError, SettingsError
from hasat.messages import msg
from hasat.settings import Settings, load_settings
from hasat.store.account import Account
from hasat.store.binaries import installed_folders
from hasat.store.embedded import EmbeddedServer
from hasat.store.layout import make_private
from hasat.store.migrate import MigrationSet, checksum_of, known_migrations, migrate
from hasat.store.store import connect

CHOICE = "HASAT_TEST_SERVER"

_TEMPLATE_LOCK = 0x6861736175
_LEFT_BEHIND_SECONDS = 86_400


@dataclass(frozen=True)
class ThrowAwayDatabase:
    """A database that only one test knows."""

    url: str

    def settings(self, home: Path) -> Settings:
        """Settings that use it as a given server."""
        return load_settings(environ={"HASAT_HOME": str(home), "HASAT_DATABASE_URL": self.url})


@asynccontextmanager
async def database_server(choice: str | None = None) -> AsyncIterator[str]:
    """The URL of a server on which databases may be created and dropped."""
    choice = choice or os.environ.get(CHOICE) or "embedded"
    if "://" in choice:
        yield choice
        return
    server = EmbeddedServer(_home(choice), binaries=_binaries(choice), durable=False)
    # A server that nobody uses was left by a run that was killed: its databases go with it.
    with suppress(ConflictError):
        await server.stop()
    async with server.lease() as url:
        yield url


@asynccontextmanager
async def throw_away_database(
    server_url: str, migrations: Sequence[MigrationSet] | None = ()
) -> AsyncIterator[ThrowAwayDatabase]:
    """A migrated database, copied from a template that is made once per set of migrations.

    With None instead of migrations it is empty.
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
    name = f"hasat_template_{checksum_of(known_migrations(migrations))[:16]}"
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
        # Only a complete template ever has the name, whatever is killed when.
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
    # Copying files is the faster way where nothing is synced to disk.
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
    """On a server given by URL, nobody else removes what killed runs left."""
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
                setting=CHOICE,
                choice=choice,
            )
        )
    folders = installed_folders()
    if not folders:
        raise SettingsError(
            msg("{setting} is debian, but no PostgreSQL is installed.", setting=CHOICE),
            remedy=msg("Install it: apt-get install postgresql"),
        )
    return folders[0]


def _with_database(url: str, name: str) -> str:
    parts = conninfo_to_dict(url)
    old = parts.get("dbname")
    before, _, query = url.partition("?")
    place = before.removesuffix(f"/{old}") if old else before.rstrip("/")
    return f"{place}/{name}{'?' if query else ''}{query}"
