"""The store in use: transactions, bounded waits, and a database that comes and goes."""

import asyncio
import os
import signal
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import TupleRow

from hasat.errors import DatabaseError
from hasat.settings import Settings, load_settings
from hasat.store import Store, open_store
from hasat.store.embedded.server import EmbeddedServer

pytestmark = pytest.mark.anyio


async def _pid_of_server(store: Store) -> int:
    async with store.connection() as connection:
        cursor = await connection.execute("SELECT pg_read_file('postmaster.pid')")
        row = await cursor.fetchone()
        assert row is not None
        return int(row[0].split()[0])


async def test_a_block_is_one_transaction(store: Store) -> None:
    async with store.connection() as connection:
        await connection.execute("CREATE TABLE kept (id int)")
        await connection.execute("INSERT INTO kept VALUES (1)")
    with pytest.raises(ZeroDivisionError):
        async with store.connection() as connection:
            await connection.execute("INSERT INTO kept VALUES (2)")
            raise ZeroDivisionError
    async with store.connection() as connection:
        rows = await (await connection.execute("SELECT id FROM kept")).fetchall()
    assert rows == [(1,)]


async def test_the_clock_is_the_databases(store: Store) -> None:
    before = await store.now()
    after = await store.now()
    assert before < after
    assert before.tzinfo is not None
    assert abs(datetime.now(UTC) - after).total_seconds() < 60


async def test_errors_of_statements_come_through_unchanged(store: Store) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        async with store.connection() as connection:
            await connection.execute("SELECT 1/0")


async def test_a_given_server_sees_no_prepared_statements(store: Store) -> None:
    async with store.connection() as connection:
        for number in range(10):
            await connection.execute("SELECT %s + 1", [number])
        cursor = await connection.execute("SELECT count(*) FROM pg_prepared_statements")
        assert await cursor.fetchone() == (0,)


async def test_a_connection_that_was_cut_is_replaced(store: Store) -> None:
    async with store.connection() as connection:
        pid = connection.info.backend_pid
    async with await psycopg.AsyncConnection.connect(store.url, autocommit=True) as killer:
        await killer.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    async with store.connection() as connection:
        assert connection.info.backend_pid != pid


async def test_a_transaction_that_loses_its_connection_says_so(store: Store) -> None:
    with pytest.raises(DatabaseError, match="connection to PostgreSQL was lost"):
        async with store.connection() as connection:
            await connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
            await connection.execute("SELECT 1")
    await store.now()


async def test_a_single_statement_is_committed_at_once(store: Store) -> None:
    async with store.connection() as connection:
        await connection.execute("CREATE TABLE kept (id int)")
    assert await store.write("INSERT INTO kept VALUES (%s) RETURNING id", [1]) == [(1,)]
    assert await store.read("SELECT id FROM kept") == [(1,)]
    with pytest.raises(psycopg.errors.DivisionByZero):
        await store.write("INSERT INTO kept VALUES (1 / %s) RETURNING id", [0])
    assert await store.write("INSERT INTO kept VALUES (%s) RETURNING id", [2]) == [(2,)]


async def test_a_single_statement_is_written_behind_the_fence(store: Store) -> None:
    async with store.connection() as connection:
        await connection.execute("CREATE TABLE kept (id int)")

    async def replaced(_: psycopg.AsyncConnection[TupleRow]) -> None:
        raise DatabaseError("replaced")

    with pytest.raises(DatabaseError, match="replaced"):
        await store.fenced(replaced).write("INSERT INTO kept VALUES (1) RETURNING id")
    assert await store.read("SELECT id FROM kept") == []


async def test_a_busy_pool_is_waited_for_and_then_named(settings: Settings) -> None:
    async with open_store(settings, pool_size=1) as store:
        store.pool.timeout = 0.2
        async with store.connection():
            with pytest.raises(DatabaseError, match="all 1 are busy"):
                await store.now()
        await store.now()


async def test_a_server_that_goes_away_and_comes_back(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path)
    async with server.lease() as url:
        given = load_settings(environ={"HASAT_HOME": str(tmp_path), "HASAT_DATABASE_URL": url})
        async with open_store(given) as store:
            pid = await _pid_of_server(store)
            store.pool.timeout = 0.5
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(DatabaseError) as caught:
                while True:
                    await store.now()
            assert caught.value.remedy
            async with server.lease() as again:
                assert again == url
            store.pool.timeout = 60
            await store.now()


async def test_the_embedded_server_is_started_again_by_its_users(tmp_path: Path) -> None:
    alone = load_settings(environ={"HASAT_HOME": str(tmp_path)})
    async with open_store(alone) as store:
        async with store.connection() as connection:
            await connection.execute("CREATE TABLE kept AS SELECT 1 AS id")
        os.kill(await _pid_of_server(store), signal.SIGKILL)
        async with asyncio.timeout(60):
            while True:
                try:
                    async with store.connection() as connection:
                        cursor = await connection.execute("SELECT id FROM kept")
                        assert await cursor.fetchone() == (1,)
                        break
                except DatabaseError:
                    continue
