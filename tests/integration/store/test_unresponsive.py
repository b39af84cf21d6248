"""Servers that no longer respond: callers get a 503 in bounded time, and service comes back."""

import asyncio
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx2
import pytest

from hasat.api.app import create_app
from hasat.errors import DatabaseAwayError
from hasat.feed.archive import storage_of, write_archives
from hasat.jobs import Catalogue
from hasat.settings import Settings, load_settings
from hasat.source import Source
from hasat.store import Store, open_store
from hasat.store.embedded.server import EmbeddedServer
from hasat.testing.database import ThrowAwayDatabase
from hasat.testing.http import app_client
from support.feed_toys import TOYS, make_table, run
from support.pgbouncers import pgbouncer
from support.processes import TIMEOUT_SECONDS

pytestmark = pytest.mark.anyio

RESPONSE_SECONDS = 1.0
MAX_SECONDS = 30 * RESPONSE_SECONDS
"""Far more than a bounded wait takes, far less than PgBouncer's `query_wait_timeout` of 120 s."""

SHOP = Source("toy_shop", "toys", datasets=(TOYS,))
PATHS = [
    "/api/v1/toys/changes",
    "/api/v1/toys/digest",
    "/api/v1/toys/archives",
    "/api/v1/runs",
    "/readyz",
]


def settings_for(url: str, home: Path, **others: str) -> Settings:
    return load_settings(
        environ={
            "HASAT_HOME": str(home),
            "HASAT_DATABASE_URL": url,
            "HASAT_DATABASE_RESPONSE_SECONDS": str(RESPONSE_SECONDS),
            **others,
        }
    )


@pytest.fixture
async def server(home_with_database: Path) -> AsyncIterator[EmbeddedServer]:
    """A server that only this test uses, and may stop."""
    server = EmbeddedServer(home_with_database)
    async with server.lease():
        yield server


def client_for(settings: Settings, store: Store) -> httpx2.AsyncClient:
    return app_client(create_app(settings, store, Catalogue.of([], settings), [SHOP]))


@contextmanager
def frozen(server: EmbeddedServer) -> Iterator[None]:
    """PostgreSQL with all of its processes stopped."""
    postmaster = int((server.layout.data / "postmaster.pid").read_text().split()[0])
    os.kill(postmaster, signal.SIGSTOP)
    stopped = [postmaster, *_children(postmaster)]
    try:
        for process in stopped[1:]:
            os.kill(process, signal.SIGSTOP)
        yield
    finally:
        for process in reversed(stopped):
            os.kill(process, signal.SIGCONT)


def _children(parent: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


async def check_all_refused(client: httpx2.AsyncClient) -> None:
    async with asyncio.timeout(MAX_SECONDS):
        responses = await asyncio.gather(*(client.get(path) for path in PATHS * 3))
    for response in responses:
        assert response.status_code == 503, response.text
        assert response.json()["code"].startswith("database-")
        assert int(response.headers["Retry-After"]) > 0


async def sleep_for_long(store: Store) -> None:
    async with store.connection() as conn:
        await conn.execute("SELECT pg_sleep(600)")


async def is_sleeping(store: Store) -> None:
    query = "SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            async with store.connection() as conn:
                if (await conn.execute(query)).rowcount:
                    return
            await asyncio.sleep(0.05)


async def becomes_ready(client: httpx2.AsyncClient) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while (await client.get(PATHS[0])).status_code != 200:  # noqa: ASYNC110 - a condition
            await asyncio.sleep(0.1)


async def test_a_frozen_server_behind_pgbouncer_is_a_503(
    server: EmbeddedServer, tmp_path: Path
) -> None:
    with pgbouncer(tmp_path, await server.address()) as url:
        settings = settings_for(url, tmp_path / "other")
        async with open_store(settings, for_requests=True) as store:
            await make_table(store)
            await run(store, {"a": {}})
            async with client_for(settings, store) as client:
                assert (await client.get(PATHS[0])).status_code == 200
                with frozen(server):
                    await check_all_refused(client)
                await becomes_ready(client)


async def test_a_server_that_freezes_in_the_middle_of_a_statement_ends_it(
    server: EmbeddedServer, tmp_path: Path
) -> None:
    with pgbouncer(tmp_path, await server.address()) as url:
        settings = settings_for(url, tmp_path / "other")
        async with open_store(settings, for_requests=True) as store:
            statement = asyncio.create_task(sleep_for_long(store))
            await is_sleeping(store)
            with frozen(server), pytest.raises(DatabaseAwayError):
                async with asyncio.timeout(MAX_SECONDS):
                    await statement


async def test_a_server_that_is_gone_behind_pgbouncer_is_a_503(
    server: EmbeddedServer, tmp_path: Path
) -> None:
    with pgbouncer(tmp_path, await server.address()) as url:
        settings = settings_for(url, tmp_path / "other")
        async with (
            open_store(settings, for_requests=True) as store,
            client_for(settings, store) as client,
        ):
            await server.stop(force=True)
            await check_all_refused(client)


async def test_a_slow_statement_is_not_taken_for_a_dead_server(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    settings = settings_for(database.url, tmp_path)
    async with (
        open_store(settings, for_requests=True) as store,
        store.connection() as conn,
    ):
        cursor = await conn.execute("SELECT pg_sleep(%s), 7", [3 * RESPONSE_SECONDS])
        row = await cursor.fetchone()
        assert row is not None
        assert row[1] == 7


@contextmanager
def silent_endpoint() -> Iterator[str]:
    """The address of a server that accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


async def test_an_object_store_that_never_responds_is_a_503(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    settings = settings_for(database.url, tmp_path)
    async with open_store(settings, for_requests=True) as store:
        await make_table(store)
        await run(store, {"a": {}})
        await write_archives(store, settings, TOYS)
        with silent_endpoint() as address:
            settings = settings_for(
                database.url,
                tmp_path,
                HASAT_ARCHIVES_PROVIDER="S3",
                HASAT_ARCHIVES_BUCKET_NAME="archives",
                HASAT_ARCHIVES_SERVICE_URL=address,
                HASAT_ARCHIVES_ACCESS_KEY="me",
                HASAT_ARCHIVES_SECRET_KEY="hush",
                HASAT_ARCHIVES_RESPONSE_TIMEOUT=f"{RESPONSE_SECONDS}s",
            )
            async with client_for(settings, store) as client:
                async with asyncio.timeout(MAX_SECONDS):
                    response = await client.get("/api/v1/toys/archives/latest")
                    health = (await client.get("/health")).json()
        assert response.status_code == 503
        assert int(response.headers["Retry-After"]) > 0
        assert "no response" in response.json()["detail"]
        assert health["checks"]["archive_storage"]["status"] == "Degraded"


class SlowStore(BaseHTTPRequestHandler):
    """An object store that sends a file in pieces, with a pause before each."""

    protocol_version = "HTTP/1.1"
    content = bytes(range(256)) * 2048
    limit_seconds = 3.0
    pause_seconds = 0.5

    def do_GET(self) -> None:
        self.send_response(206)
        self.send_header("Content-Length", str(len(self.content)))
        last = len(self.content) - 1
        self.send_header("Content-Range", f"bytes 0-{last}/{last + 1}")
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        for start in range(0, len(self.content), 1 << 16):
            time.sleep(self.pause_seconds)
            self.wfile.write(self.content[start : start + (1 << 16)])

    def log_message(self, *_: object) -> None:
        return


async def test_a_slow_download_that_makes_progress_is_not_cut(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), SlowStore) as store:
        Thread(target=store.serve_forever, daemon=True).start()
        settings = load_settings(
            environ={
                "HASAT_HOME": str(tmp_path),
                "HASAT_ARCHIVES_PROVIDER": "S3",
                "HASAT_ARCHIVES_BUCKET_NAME": "archives",
                "HASAT_ARCHIVES_SERVICE_URL": f"http://127.0.0.1:{store.server_port}",
                "HASAT_ARCHIVES_ACCESS_KEY": "me",
                "HASAT_ARCHIVES_SECRET_KEY": "hush",
                "HASAT_ARCHIVES_RESPONSE_TIMEOUT": f"{SlowStore.limit_seconds}s",
            }
        )
        size = len(SlowStore.content)
        read = storage_of(settings).read("toys/big", 0, size)
        assert b"".join([piece async for piece in read]) == SlowStore.content
        store.shutdown()
