"""Statements on the connection that is held for lookups."""

import asyncio
from contextlib import suppress

import psycopg
import pytest

from hasat.store import Store
from hasat.store.session import DEFAULT_FROZEN_SECONDS

pytestmark = pytest.mark.anyio

PREPARED = b"SELECT count(*)::text FROM pg_prepared_statements"


async def test_rows_are_the_texts_that_postgresql_sends(store: Store) -> None:
    statement = b"SELECT n::text, nullif(n, 2)::text FROM unnest($1::int[]) AS n WHERE n < $2::int"
    for _ in range(2):
        rows = await store.read_texts(statement, (b"{1,2,3}", b"3"))
        assert rows == [(b"1", b"1"), (b"2", None)]


async def test_a_statement_is_prepared_once(store: Store) -> None:
    for _ in range(3):
        assert await store.read_texts(PREPARED, ()) == [(b"1",)]
    await store.read_texts(b"SELECT 1", ())
    assert await store.read_texts(PREPARED, ()) == [(b"2",)]


async def test_a_statement_is_planned_once_also_on_a_new_connection(store: Store) -> None:
    statement = b"SELECT oid::text FROM pg_class WHERE oid = ANY ($1::oid[])"
    for _ in range(2):
        for number in range(8):
            await store.read_texts(statement, (b"{%d}" % number,))
        [(pid, plans)] = await store.read_texts(
            b"SELECT pg_backend_pid()::text, sum(custom_plans)::text"
            b" FROM pg_prepared_statements WHERE statement LIKE '%oid = ANY%'",
            (),
        )
        assert pid is not None
        assert plans == b"0"
        async with store.connection() as conn:
            await conn.execute("SELECT pg_terminate_backend(%s, 5000)", [int(pid)])


async def test_a_statement_that_fails_spoils_no_other(store: Store) -> None:
    for _ in range(2):
        with pytest.raises(psycopg.errors.DivisionByZero):
            await store.read_texts(b"SELECT 1 / $1::int", (b"0",))
        assert await store.read_texts(b"SELECT 1 / $1::int", (b"1",)) == [(b"1",)]


async def test_a_lost_connection_is_replaced(store: Store) -> None:
    own = b"SELECT pg_backend_pid()::text"
    for _ in range(3):
        [(pid,)] = await store.read_texts(own, ())
        assert pid is not None
        async with store.connection() as conn:
            await conn.execute("SELECT pg_terminate_backend(%s, 5000)", [int(pid)])
        assert await store.read_texts(own, ()) != [(pid,)]


async def test_a_cancelled_statement_ends_and_the_next_one_works(store: Store) -> None:
    pending = asyncio.create_task(store.read_texts(b"SELECT pg_sleep(600)::text", ()))
    # Each look is a transaction of its own: one transaction sees one state of the activity.
    running = (
        "SELECT FROM pg_stat_activity WHERE datname = current_database()"
        " AND state = 'active' AND query LIKE 'SELECT pg_sleep(600)%'"
    )
    async with asyncio.timeout(60):
        while not await store.read(running):
            pass
    pending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pending
    assert await store.read_texts(b"SELECT 1", ()) == [(b"1",)]


async def test_statements_cancelled_at_any_moment_spoil_no_other(store: Store) -> None:
    for turn in range(150):
        pending = asyncio.create_task(store.read_texts(b"SELECT %d::text" % turn, ()))
        for _ in range(turn % 30):
            await asyncio.sleep(0)
        pending.cancel()
        with suppress(asyncio.CancelledError):
            await pending
        assert await store.read_texts(b"SELECT $1", (b"%d" % turn,)) == [(b"%d" % turn,)]


async def test_behind_a_pooler_it_is_a_transaction_with_time_outs(store: Store) -> None:
    await store.read_texts(b"SELECT 1", ())
    assert store._reader is not None
    assert store._reader._session is not None
    store._reader._session.is_direct = False
    before = await store.read_texts(PREPARED, ())
    [(timeout, number)] = await store.read_texts(
        b"SELECT current_setting('lock_timeout'), (SELECT count(*)::text FROM"
        b" pg_prepared_statements)",
        (),
    )
    assert timeout == b"%dmin" % (DEFAULT_FROZEN_SECONDS * 10 / 60)
    assert [(number,)] == before
