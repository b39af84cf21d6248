"""Deliveries as people and programs look at them, and have them sent again."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from hasat.api.app import create_app
from hasat.api.keys import create_key
from hasat.deliver import Event, publish_event
from hasat.deliver.outbox import create_deliveries, save_failure, save_success, subscribe
from hasat.deliver.webhook_endpoints import Endpoint
from hasat.jobs import Catalogue
from hasat.settings import Settings
from hasat.store import Store
from hasat.testing.database import ThrowAwayDatabase
from hasat.testing.http import app_client
from support.forks import run_hasat
from support.receivers import answer, receiving

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

HTTP = Endpoint("http", "https://hooks.example", "http")


@pytest.fixture
async def client(settings: Settings, store: Store) -> AsyncIterator[httpx2.AsyncClient]:
    """A server with one delivered message (1), two dead letters (2, 3) and one that waits (4)."""
    await subscribe(store, [HTTP])
    async with store.connection() as conn:
        for n in range(4):
            await publish_event(conn, Event("SyncCompleted", "Info", f"message {n}", {"n": n}))
    await create_deliveries(store)
    await save_success(store, 1, 200)
    for number in (2, 3):
        await save_failure(
            store, number, settings.webhooks, error="no", pause_seconds=0, status=410, final=True
        )
    app = create_app(settings, store, Catalogue.of([], settings), [])
    async with app_client(app) as client:
        yield client


async def test_deliveries_and_dead_letters_are_shown(client: httpx2.AsyncClient) -> None:
    async def ids(path: str, **query: Any) -> list[int]:
        found = (await client.get(f"/api/v1/{path}", params=query)).json()
        return [one["id"] for one in found["deliveries"]]

    assert await ids("deliveries") == [4, 3, 2, 1]
    assert await ids("deliveries", limit=2, before=4) == [3, 2]
    assert await ids("deliveries", state="delivered") == [1]
    assert await ids("deliveries", endpoint="slack") == []
    assert await ids("dead-letters") == [3, 2]
    shown = (await client.get("/api/v1/deliveries/2")).json()
    assert (shown["payload"], shown["lastStatus"], shown["state"]) == ({"n": 1}, 410, "dead")
    assert (await client.get("/api/v1/deliveries/99")).status_code == 404
    scraped = (await client.get("/metrics")).text
    assert 'hasat_deliveries{endpoint="http",state="dead"} 2.0' in scraped
    assert 'hasat_delivery_oldest_waiting_seconds{endpoint="http"}' in scraped


async def test_only_operators_send_again(client: httpx2.AsyncClient, store: Store) -> None:
    _, reader = await create_key(store, "reader", "read")
    _, operator = await create_key(store, "operator", "operate")

    async def replay(path: str, key: str, **more: Any) -> httpx2.Response:
        return await client.post(
            f"/api/v1/{path}/replay", headers={"Authorization": f"Bearer {key}"}, **more
        )

    assert (await replay("dead-letters", reader)).status_code == 403
    assert (await replay("deliveries/2", reader)).status_code == 403
    assert (await replay("deliveries/4", operator)).status_code == 409
    assert (await replay("deliveries/99", operator)).status_code == 404
    assert (await replay("deliveries/1", operator)).json() == {"replayed": [1]}
    other = await replay("dead-letters", operator, json={"endpoint": "slack"})
    assert other.json() == {"replayed": []}
    assert (await replay("dead-letters", operator)).json() == {"replayed": [2, 3]}
    assert (await replay("dead-letters", operator)).json() == {"replayed": []}


@pytest.mark.usefixtures("client")
async def test_the_command_line_shows_sends_again_and_tries_an_endpoint(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    with receiving() as receiver:
        environ = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(sys.path),
            "COLUMNS": "200",
            "HASAT_HOME": str(tmp_path),
            "HASAT_DATABASE_URL": database.url,
            "HASAT_WEBHOOKS_PRIVATE_NETWORKS": "127.0.0.1/32",
            "Webhooks__Enabled": "true",
            "Webhooks__Http__Enabled": "true",
            "Webhooks__Http__Url": receiver.url,
        }

        def hasat(*words: str) -> subprocess.CompletedProcess[str]:
            return run_hasat("webhooks", *words, environ=environ)

        [listed] = json.loads(hasat("list", "--json").stdout)
        assert (listed["host"], listed["waiting"], listed["dead"]) == ("127.0.0.1", 1, 2)
        output = hasat("dead-letters").stdout
        assert "SyncCompleted" in output
        assert json.loads(hasat("replay", "--all", "--json").stdout) == {"replayed": [2, 3]}
        receiver.behave = lambda *_: answer(401, b"who are you")
        refused = hasat("test", "http", "--json")
        assert refused.returncode == 1
        assert json.loads(refused.stdout)["error"] == "It responded with 401: who are you"
        assert [got.json["eventType"] for got in receiver.received] == ["Test"]
