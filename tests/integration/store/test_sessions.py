"""A session that is idle inside a transaction is ended; that of a live process is not."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence

import pytest

from hasat.errors import DatabaseError
from hasat.jobs.connection import open_retrying_pool
from hasat.settings import Settings
from hasat.store import MigrationSet, Store, open_store
from hasat.store.store import connect, connect_blocking

pytestmark = pytest.mark.anyio

TIMEOUTS = (
    "SELECT current_setting('idle_in_transaction_session_timeout'),"
    " current_setting('lock_timeout'), current_setting('client_connection_check_interval')"
)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    values = {"frozen_seconds": 3.0}
    return settings.model_copy(update={"database": settings.database.model_copy(update=values)})


@pytest.fixture
async def store(settings: Settings, migrations: Sequence[MigrationSet]) -> AsyncIterator[Store]:
    async with open_store(settings, migrations) as store:
        yield store


async def test_every_kind_of_transaction_has_time_outs(store: Store) -> None:
    async with store.connection() as conn:
        assert await (await conn.execute(TIMEOUTS)).fetchone() == ("3s", "30s", "1s")
    async with open_retrying_pool(store) as link:
        async with link.transaction() as conn:
            assert await (await conn.execute(TIMEOUTS)).fetchone() == ("3s", "30s", "1s")
        # procrastinate takes its connections from the pool itself.
        async with link.pool.connection() as conn:
            assert await (await conn.execute(TIMEOUTS)).fetchone() == ("3s", "30s", "1s")
    async with await connect(store.url) as conn, conn.transaction():
        assert await (await conn.execute(TIMEOUTS)).fetchone() == ("30s", "5min", "10s")
    with connect_blocking(store.url) as blocking:
        assert blocking.execute(TIMEOUTS).fetchone() == ("30s", "5min", "10s")


async def test_time_outs_end_with_the_transaction(store: Store) -> None:
    async with await connect(store.url) as conn:
        before = await (await conn.execute(TIMEOUTS)).fetchone()
        async with conn.transaction():
            await conn.execute("SELECT 1")
        assert await (await conn.execute(TIMEOUTS)).fetchone() == before


async def test_a_busy_process_keeps_its_idle_transaction(store: Store) -> None:
    async with store.connection() as conn:
        await conn.execute("CREATE TEMP TABLE seen (n integer) ON COMMIT DROP")
        await asyncio.sleep(4.5)
        await conn.execute("INSERT INTO seen VALUES (1)")
        async with conn.cursor().copy("COPY seen FROM STDIN") as copy:
            await copy.write("2\n")
            await asyncio.sleep(1.5)
            await copy.write("3\n")
        cursor = await conn.execute("SELECT count(*) FROM seen")
        assert await cursor.fetchone() == (3,)


async def test_a_frozen_process_loses_its_transaction(store: Store) -> None:
    async def frozen() -> None:
        async with store.connection() as conn:
            await conn.execute("SELECT pg_advisory_xact_lock(1)")
            # The event loop does nothing, as in a process that is stopped.
            time.sleep(4.5)  # noqa: ASYNC251
            await conn.execute("SELECT 1")

    with pytest.raises(DatabaseError, match="was lost"):
        await frozen()
    async with store.connection() as conn:
        cursor = await conn.execute("SELECT pg_try_advisory_xact_lock(1)")
        assert await cursor.fetchone() == (True,)
