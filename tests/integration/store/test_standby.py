"""Reads from a standby, and several hosts in one address.

The standby is a second database of the same server: read-only, and as far behind as a test wants.
"""

import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
from anyio.from_thread import BlockingPortal
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from hasat.api.app import create_app
from hasat.errors import DatabaseAwayError, DatabaseError
from hasat.jobs import Catalogue
from hasat.settings import Settings, load_settings
from hasat.source import Source
from hasat.store import MigrationSet, Store, open_store
from hasat.store.store import connect
from hasat.testing.database import ThrowAwayDatabase, throw_away_database
from hasat.testing.http import app_client
from support.feed_toys import TOYS, make_table, run
from support.processes import free_port

pytestmark = pytest.mark.anyio

SHOP = Source("toy_shop", "toys", datasets=(TOYS,))
FIRST = {"a": {"n": 1}}


@pytest.fixture
def other_database(
    background: BlockingPortal, server_url: str, migrations: Sequence[MigrationSet]
) -> Iterator[ThrowAwayDatabase]:
    made = throw_away_database(server_url, None)
    with background.wrap_async_context_manager(made) as database:
        yield database


async def copy_to_standby(primary: ThrowAwayDatabase, standby: ThrowAwayDatabase) -> None:
    """Bring the standby to what the primary is now; neither may have a connection."""
    source, target = (str(conninfo_to_dict(one.url)["dbname"]) for one in (primary, standby))
    async with await connect(primary.url.replace(source, "postgres")) as admin:
        for statement in (
            "DROP DATABASE IF EXISTS {target} WITH (FORCE)",
            "CREATE DATABASE {target} TEMPLATE {source}",
            "ALTER DATABASE {target} SET default_transaction_read_only = on",
        ):
            names = {"source": sql.Identifier(source), "target": sql.Identifier(target)}
            await admin.execute(sql.SQL(statement).format(**names))


def settings_for(database: ThrowAwayDatabase, home: Path, read_url: str | None = None) -> Settings:
    return load_settings(
        environ={
            "HASAT_HOME": str(home),
            "HASAT_DATABASE_URL": database.url,
            "HASAT_DATABASE_RESPONSE_SECONDS": "1",
            **({} if read_url is None else {"HASAT_DATABASE_READ_URL": read_url}),
        }
    )


@dataclass(frozen=True)
class Service:
    store: Store
    client: httpx2.AsyncClient

    async def get(self, path: str, **query: Any) -> httpx2.Response:
        return await self.client.get(f"/api/v1/toys/{path}", params=query)


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[Service]:
    async with open_store(settings, for_requests=True) as store:
        app = create_app(settings, store, Catalogue.of([], settings), [SHOP])
        async with app_client(app) as client:
            yield Service(store, client)


@pytest.fixture
async def lagging(
    database: ThrowAwayDatabase, other_database: ThrowAwayDatabase, tmp_path: Path
) -> AsyncIterator[Service]:
    """A service whose standby has the first of two commits."""
    async with open_store(settings_for(database, tmp_path)) as store:
        await make_table(store)
        await run(store, FIRST)
        await run(store, FIRST | {"b": {"n": 2}})
    await copy_to_standby(database, other_database)
    async with open_store(settings_for(database, tmp_path)) as store:
        await run(store, FIRST | {"b": {"n": 2}, "c": {"n": 3}})
    async with serving(settings_for(database, tmp_path, other_database.url)) as service:
        yield service


async def test_reads_come_from_the_standby_and_the_rest_from_the_primary(lagging: Service) -> None:
    response = await lagging.get("changes")
    page = response.json()
    assert [change["key"] for change in page["changes"]] == ["b"]
    assert page["upToDate"]
    assert (await lagging.get("c/history")).status_code == 404
    assert (await lagging.get("digest")).json()["head"] == 2
    since = response.headers["X-Last-Sync-At"]
    by_time = (await lagging.get("changes", since=since)).json()
    assert [change["key"] for change in by_time["changes"]] == ["c"]
    health = (await lagging.client.get("/health")).json()
    assert health["checks"]["standby"] == {"status": "Healthy", "description": None}


@pytest.mark.parametrize("form", ["json", "ndjson"])
async def test_a_cursor_ahead_of_the_standby_is_answered_by_the_primary(
    lagging: Service, form: str
) -> None:
    newest = (await lagging.get("digest")).json()["cursor"]
    response = await lagging.get("changes", after=newest, format=form)
    assert response.status_code == 200, response.text
    assert newest in response.text


async def test_a_follower_of_a_lagging_standby_misses_nothing(lagging: Service) -> None:
    page = (await lagging.get("changes")).json()
    seen = [change["seq"] for change in page["changes"]]
    # With `wait` the primary is asked, where the next change is.
    page = (await lagging.get("changes", after=page["next"], wait=1)).json()
    seen += [change["seq"] for change in page["changes"]]
    assert seen == [1, 2]
    assert (await lagging.get("changes", after=page["next"])).json()["changes"] == []


async def test_a_rebuild_that_the_standby_does_not_know_is_no_410(lagging: Service) -> None:
    async with lagging.store.connection() as conn:
        await conn.execute("UPDATE feed.head SET epoch = gen_random_uuid()")
    newest = (await lagging.get("digest")).json()["cursor"]
    assert (await lagging.get("changes", after=newest)).status_code == 200


async def test_the_primary_serves_reads_while_the_standby_is_away(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with open_store(settings_for(database, tmp_path)) as store:
        await make_table(store)
        await run(store, FIRST)
    unreachable = f"postgresql://hasat:hush@127.0.0.1:{free_port()}/hasat"
    async with serving(settings_for(database, tmp_path, unreachable)) as service:
        assert (await service.get("changes")).status_code == 200
        health = (await service.client.get("/health")).json()
        assert health["status"] == "Degraded"
        assert health["checks"]["postgresql"]["status"] == "Healthy"
        standby = health["checks"]["standby"]
        assert standby["status"] == "Degraded"
        assert "primary serves all reads" in standby["description"]
        assert "hush" not in standby["description"]
        # No commit waits for it from here on.
        with pytest.raises(DatabaseError):
            assert service.store.reads.liveness is not None
            service.store.reads.liveness.check()


async def test_connecting_tries_the_next_host(database: ThrowAwayDatabase, tmp_path: Path) -> None:
    parts = conninfo_to_dict(database.url)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        closed = listening.getsockname()[1]
    host = parts.get("host", "127.0.0.1")
    port = parts.get("port", 5432)
    url = (
        f"host=127.0.0.1,{host} port={closed},{port} user={parts['user']}"
        f" dbname={parts['dbname']} target_session_attrs=read-write"
    )
    if "password" in parts:
        url += f" password={parts['password']}"
    settings = load_settings(environ={"HASAT_HOME": str(tmp_path), "HASAT_DATABASE_URL": url})
    async with open_store(settings, for_requests=True) as store:
        assert await store.now()
        assert store.liveness is not None
        assert await store.liveness.responds()


async def test_a_primary_that_was_demoted_is_left(store: Store) -> None:
    """The connection is closed, so that the next one goes to the new primary."""
    with pytest.raises(DatabaseAwayError):
        async with store.connection() as conn:
            await conn.execute("SET TRANSACTION READ ONLY")
            await conn.execute("CREATE TABLE public.nothing ()")
    assert conn.closed
    async with store.connection() as conn:
        with pytest.raises(psycopg.errors.UndefinedTable):
            await conn.execute("SELECT FROM public.nothing")
