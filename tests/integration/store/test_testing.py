"""The promises of hasat.testing.database to those who write tests with it."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from hasat.store.locks import try_lock
from hasat.testing.database import throw_away_database

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

_RUN = """
import asyncio, sys
from hasat.testing.database import database_server, throw_away_database
async def main():
    async with database_server("embedded") as url, throw_away_database(url) as database:
        print(database.url, flush=True)
        await asyncio.to_thread(sys.stdin.readline)
asyncio.run(main())
"""


def _start(folder: Path) -> tuple[subprocess.Popen[str], str]:
    run = subprocess.Popen(
        [sys.executable, "-c", _RUN],
        env=os.environ | {"TMPDIR": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert run.stdout is not None
    while not (line := run.stdout.readline()).startswith("postgresql://"):
        assert line, "the run ended"
    return run, line.strip()


def _databases(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_database WHERE datname LIKE 'hasat_test_%'"
        ).fetchone()
    assert row is not None
    return int(row[0])


def _server_is_gone(folder: Path) -> bool:
    (lock,) = folder.glob("hasat-testing-*/embedded/postgres/server.lock")
    free = try_lock(lock)
    if free is not None:
        os.close(free)
    return free is not None


async def test_databases_are_migrated_and_apart(server_url: str) -> None:
    async with throw_away_database(server_url) as one, throw_away_database(server_url) as other:
        assert one.url != other.url
        with psycopg.connect(one.url) as connection:
            connection.execute("CREATE TABLE core.only_here (id int)")
        with psycopg.connect(other.url) as connection:
            found = connection.execute("SELECT to_regclass('core.only_here') IS NULL").fetchone()
    assert found == (True,)
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(one.url)


async def test_many_at_once(server_url: str) -> None:
    async def use() -> None:
        async with throw_away_database(server_url) as database:
            with psycopg.connect(database.url) as connection:
                connection.execute("SELECT FROM hasat_migration")

    await asyncio.gather(*(use() for _ in range(6)))


async def test_a_database_still_in_use_is_dropped(server_url: str) -> None:
    async with throw_away_database(server_url) as database:
        forgotten = psycopg.connect(database.url)
    with forgotten, pytest.raises(psycopg.OperationalError):
        forgotten.execute("SELECT 1")


def test_a_killed_run_leaves_nothing_to_the_next(tmp_path: Path) -> None:
    first, url = _start(tmp_path)
    assert _databases(url) == 1
    first.send_signal(signal.SIGKILL)
    first.communicate()
    assert not _server_is_gone(tmp_path)
    second, url = _start(tmp_path)
    third, _ = _start(tmp_path)
    assert _databases(url) == 2
    second.communicate("done\n")
    assert not _server_is_gone(tmp_path)
    third.communicate("done\n")
    assert _server_is_gone(tmp_path)
    assert not list(tmp_path.glob("hasat-testing-*/embedded/postgres/data"))
