"""Remote callers cannot make a worker open private addresses or local files."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from mcp.client import Client

from hasat.console.runtime import build_catalogue, source_migrations
from hasat.errors import UsageError
from hasat.fetch.addresses import PrivateAddressError
from hasat.fetch.downloads import Downloader
from hasat.jobs import Run, Worker
from hasat.jobs.queue import queue_run
from hasat.jobs.runs import get_run
from hasat.mcp.server import ToolServers
from hasat.settings import Settings
from hasat.source import ToolContext
from hasat.source.installed import all_sources
from hasat.sources.gib.settings import GibSettings
from hasat.sources.gib.sync.downloads import fetch_list
from hasat.store import MigrationSet, Store
from hasat.testing.database import ThrowAwayDatabase
from support.complete_app import complete_app
from support.endpoint_pool import CONTEXT, FakeBudget
from support.processes import Commands

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

PRIVATE = ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433")


@pytest.fixture
def migrations() -> Sequence[MigrationSet]:
    return source_migrations()


class Server:
    """A loopback server that counts connections and gives every request the same response."""

    def __init__(self, response: bytes) -> None:
        self.response = response
        self.connections = 0
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self.response)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def serving(response: bytes, host: str = "127.0.0.1") -> AsyncIterator[Server]:
    server = Server(response)
    async with await asyncio.start_server(server.serve, host, 0) as listening:
        server.port = listening.sockets[0].getsockname()[1]
        yield server


@pytest.fixture
async def internal() -> AsyncIterator[Server]:
    body = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nsecret"
    async with serving(body) as server:
        yield server


@pytest.fixture
def app(settings: Settings, store: Store) -> FastAPI:
    return complete_app(settings, store)


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """A file that exists and one that does not."""
    there = tmp_path / "there.xml"
    there.write_text("<UserList/>")
    return str(there), str(tmp_path / "gone.xml")


async def executed(store: Store, settings: Settings, run_id: int) -> Run:
    """Let a worker execute the queued runs."""
    worker = Worker(build_catalogue(settings), store, settings, poll_seconds=0.05)
    working = asyncio.create_task(worker.run())
    try:
        async with asyncio.timeout(60):
            while True:
                run = await get_run(store, run_id)
                if run.state == "finished":
                    return run
                await asyncio.sleep(0.05)
    finally:
        worker.drain()
        await working


async def insert_run(store: Store, **params: str) -> int:
    """Record a finished run as the command line leaves it."""
    async with store.connection() as conn:
        cursor = await conn.execute(
            "INSERT INTO jobs.run (job, trigger, state, outcome, finished_at, params)"
            " SELECT 'gib_sync', 'hand', 'finished', 'failed', now(),"
            "        jsonb_object(%s::text[], %s::text[]) RETURNING id",
            [list(params), list(params.values())],
        )
        row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("form", ["{}", "file://{}"])
async def test_the_api_rejects_a_file(
    client: httpx2.AsyncClient, files: tuple[str, str], form: str
) -> None:
    results = []
    for path in files:
        params = {"pk": form.format(path), "gb": form.format(path)}
        answer = await client.post("/api/v1/jobs/gib_sync/runs", json={"params": params})
        results.append(
            (answer.status_code, answer.text.replace(answer.headers["x-request-id"], ""))
        )
    assert results[0] == results[1]
    assert results[0][0] == 400


async def test_mcp_rejects_a_file(settings: Settings, store: Store, files: tuple[str, str]) -> None:
    assistant = ToolServers(ToolContext(store, settings, build_catalogue(settings)), all_sources())
    results = []
    async with Client(assistant.operating) as client:
        for path in files:
            params = {"job_name": "gib_sync", "params": {"pk": path, "gb": path}}
            results.append(await client.call_tool("run_job", params))
    assert results[0].is_error
    assert results[0].content == results[1].content


async def test_a_command_line_run_with_a_file_cannot_be_retried(
    client: httpx2.AsyncClient, store: Store, files: tuple[str, str]
) -> None:
    results = set()
    own = {"Origin": "http://127.0.0.1", "Accept": "text/html"}
    for path in files:
        number = await insert_run(store, pk=path, gb=path)
        answer = await client.post(f"/runs/{number}/retry", headers=own)
        results.add(answer.status_code)
    assert results == {400}


async def test_the_command_line_does_not_queue_a_file(
    database: ThrowAwayDatabase, store: Store, tmp_path: Path, files: tuple[str, str]
) -> None:
    hasat = Commands("jobs", database.url, tmp_path / "home", columns=300)
    results = [hasat("run", "gib_sync", "--queue", "--param", f"pk={path}") for path in files]
    assert results[0].returncode == 2
    assert "must be an http(s) address" in results[0].stderr
    assert results[0].stderr == results[1].stderr


@pytest.mark.parametrize("host", PRIVATE)
async def test_a_worker_fetches_no_private_address_for_a_caller(
    client: httpx2.AsyncClient, store: Store, settings: Settings, internal: Server, host: str
) -> None:
    url = f"http://{host}:{internal.port}/pk.zip"
    answer = await client.post(
        "/api/v1/jobs/gib_sync/runs", json={"params": {"pk": url, "gb": url}}
    )
    assert answer.status_code == 202
    run = await executed(store, settings, answer.json()["id"])
    assert run.outcome == "failed"
    assert "has no public address; nothing was sent" in str(run.message)
    assert internal.connections == 0


async def test_a_private_name_and_a_missing_one_give_the_same_error(tmp_path: Path) -> None:
    results = set()
    for host in ("localhost", "nowhere.invalid"):
        with pytest.raises(PrivateAddressError) as caught:
            await _obtain(f"http://{host}/pk.zip", tmp_path, trusted=False)
        results.add(str(caught.value).replace(host, "HOST"))
    assert len(results) == 1


async def test_an_allowed_network_is_reachable(tmp_path: Path, internal: Server) -> None:
    url = f"http://127.0.0.1:{internal.port}/pk.zip"
    found = await _obtain(url, tmp_path, trusted=False, private_networks=["127.0.0.0/8"])
    assert found.read_bytes() == b"secret"


async def test_a_file_in_a_queued_run_is_not_read(tmp_path: Path, files: tuple[str, str]) -> None:
    """Also where its params came past the check, such as from an earlier version."""
    results = set()
    for path in files:
        with pytest.raises(UsageError) as caught:
            await _obtain(path, tmp_path, trusted=False)
        results.add(str(caught.value))
    assert len(results) == 1


async def test_a_redirect_to_another_private_host_is_not_followed(
    tmp_path: Path, internal: Server
) -> None:
    there = f"http://localhost:{internal.port}/latest/meta-data"
    head = f"HTTP/1.1 302 Found\r\nLocation: {there}\r\nContent-Length: 0\r\nConnection: close"
    async with serving(f"{head}\r\n\r\n".encode()) as upstream:
        with pytest.raises(PrivateAddressError, match="localhost has no public address"):
            await _obtain(f"http://127.0.0.1:{upstream.port}/pk.zip", tmp_path)
        assert upstream.connections == 1
    assert internal.connections == 0


async def test_what_the_operator_configured_is_trusted(
    store: Store, settings: Settings, internal: Server, files: tuple[str, str]
) -> None:
    url = f"http://127.0.0.1:{internal.port}/pk.zip"
    gib = settings.section(GibSettings).model_copy(update={"pk_list_url": url, "gb_list_url": url})
    configured = settings.model_copy(update={"gib": gib})
    queued = await queue_run(store, build_catalogue(configured), "gib_sync")
    await executed(store, configured, queued.id)
    assert internal.connections > 0


async def _obtain(source: str, folder: Path, **options: Any) -> Path:
    downloader = Downloader(FakeBudget(), CONTEXT, pauses=())
    return await fetch_list(downloader, source, "PK", folder, timeout_seconds=10, **options)
