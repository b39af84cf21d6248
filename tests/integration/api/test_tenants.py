"""Tenants: a key sees its own watch lists, deliveries and usage, and only its datasets."""

import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from hasat.api.keys import create_key, restrict_key, revoke_key
from hasat.api.usage import list_usage
from hasat.console.runtime import build_catalogue, source_migrations
from hasat.deliver.watchlists.fanout import fan_out
from hasat.errors import UsageError
from hasat.mcp.server import ToolServers, serve_streamable
from hasat.settings import Settings
from hasat.source import ToolContext
from hasat.source.installed import all_datasets, all_sources
from hasat.store import MigrationSet, Store
from hasat.testing.http import app_client
from support.complete_app import complete_app
from support.feed_toys import run

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

DATASETS = {one.name: one for one in all_datasets()}
WEBHOOK = {"type": "webhook", "url": "https://erp.example/hasat?token=verysecretvalue"}
# What a restricted key may open that is no path of its datasets.
OPEN = {
    "/",
    "/api/v1/dead-letters",
    "/api/v1/deliveries",
    "/api/v1/deliveries/{number}",
    "/api/v1/usage",
    "/api/v1/watchlists",
    "/api/v1/watchlists/{name}",
    "/changes",
    "/changes.json",
    "/delivery",
    "/delivery.json",
    "/keys",
    "/keys.json",
    "/live",
    "/search",
    "/search.json",
    "/mcp",
    "/watchlists",
    "/watchlists.json",
    "/watchlists/{name}",
    "/watchlists/{name}.json",
}
PUBLIC = re.compile(
    r"/(healthz|readyz|health|metrics|openapi\.json|docs(\.css)?|login|logout|favicon\..*"
    r"|problems.*|static/.*|\.well-known/jwks\.json)"
)


@pytest.fixture
def migrations() -> Sequence[MigrationSet]:
    return source_migrations()


@pytest.fixture
def app(settings: Settings, store: Store) -> FastAPI:
    """A server where callers need a key."""
    serve = settings.serve.model_copy(update={"host": "192.0.2.10"})
    settings = settings.model_copy(update={"serve": serve})
    return complete_app(settings, store)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def new_list(**more: Any) -> dict[str, Any]:
    return {
        "name": "customers",
        "dataset": "einvoice",
        "keys": ["1234567890"],
        "channels": [WEBHOOK],
        **more,
    }


async def test_a_restricted_key_gets_403_everywhere_but_at_its_datasets(
    app: FastAPI, client: httpx2.AsyncClient, store: Store
) -> None:
    # More routes than the default limit allows in a minute.
    _, token = await create_key(store, "erp", datasets=["einvoice"], per_minute=10_000)
    tried = 0
    for route in iter_route_contexts(app.routes):
        path = str(route.path_format)
        if "GET" not in (route.methods or ()) or PUBLIC.fullmatch(path) or path == "/live":
            continue
        response = await client.get(re.sub(r"\{[^}]*\}", "1", path), headers=bearer(token))
        own = path == "/api/v1/einvoice" or path.startswith("/api/v1/einvoice/")
        if own or path in OPEN:
            assert response.status_code != 403, path
        else:
            tried += 1
            assert response.status_code == 403, path
            assert response.json()["code"] == "dataset-not-allowed", path
    assert tried > 40


async def test_the_search_of_a_restricted_key_finds_only_its_records(
    client: httpx2.AsyncClient, store: Store
) -> None:
    _, token = await create_key(store, "erp", datasets=["einvoice"])
    _, open_token = await create_key(store, "all")
    for query in ("sync", "parcels", "1"):
        params = {"q": query}
        found = (await client.get("/search.json", params=params, headers=bearer(token))).json()
        assert (found["run"], found["jobs"], found["datasets"]) == (None, [], [])
        assert found["searches"] == []
        assert {one["dataset"] for one in found["records"]} <= {"einvoice"}
        everything = await client.get("/search.json", params=params, headers=bearer(open_token))
        assert everything.json()["searches"] != []


async def test_what_checks_the_dataset_itself_refuses_others(
    client: httpx2.AsyncClient, store: Store
) -> None:
    _, token = await create_key(store, "erp", datasets=["einvoice"])
    headers = bearer(token)
    for path in ("/changes?dataset=edespatch", "/changes/record?dataset=edespatch&key=1"):
        assert (await client.get(path, headers=headers)).status_code == 403, path
    assert (await client.get("/live", params={"at": "/runs"}, headers=headers)).status_code == 403
    refused = await client.post(
        "/api/v1/watchlists", json=new_list(dataset="edespatch"), headers=headers
    )
    assert (refused.status_code, refused.json()["code"]) == (403, "dataset-not-allowed")
    for method, path in (
        ("POST", "/api/v1/edespatch/changes"),
        ("POST", "/api/v1/edespatch/batch"),
        ("HEAD", "/api/v1/edespatch/archives/latest"),
        ("GET", "/api/v1/edespatch%2Fchanges"),
        ("GET", "/api/v1//edespatch/changes"),
        ("GET", "/api/v1/einvoice/../edespatch/changes"),
        ("POST", "/api/v1/jobs/gib_sync/runs"),
    ):
        response = await client.request(method, path, headers=headers)
        assert response.status_code in (403, 404), path


async def test_restrictions_apply_to_running_servers_and_to_logins(
    client: httpx2.AsyncClient, store: Store
) -> None:
    key, token = await create_key(store, "erp")
    assert (await client.get("/api/v1/status", headers=bearer(token))).status_code == 200
    await restrict_key(store, "erp", ["einvoice"])
    app_keys = client._transport.app.state.keys  # type: ignore[attr-defined]
    app_keys.invalidate()
    assert (await client.get("/api/v1/status", headers=bearer(token))).status_code == 403
    page = await client.post(
        "/login", data={"key": token}, headers={"Origin": "http://127.0.0.1", "Accept": "text/html"}
    )
    client.cookies = page.cookies
    assert (await client.get("/")).headers["location"] == "/watchlists"
    shown = await client.get("/watchlists", headers={"Accept": "text/html"})
    assert shown.status_code == 200
    assert 'href="/runs"' not in shown.text
    assert (await client.get("/runs")).status_code == 403
    with pytest.raises(UsageError):
        await create_key(store, "ops", "operate", datasets=["einvoice"])
    with pytest.raises(UsageError):
        await restrict_key(store, key.id, [])


async def test_a_read_key_sees_only_its_own_lists_and_deliveries(
    client: httpx2.AsyncClient, store: Store
) -> None:
    (mine, my_token), (theirs, their_token), (_, operator) = [
        await create_key(store, name, scope)  # type: ignore[arg-type]
        for name, scope in (("a", "read"), ("b", "read"), ("ops", "operate"))
    ]
    for token in (my_token, their_token):
        created = await client.post(
            "/api/v1/watchlists",
            json=new_list(dataset="fixtures", channels=[{**WEBHOOK, "secret": "whsec_c2VjcmV0"}]),
            headers=bearer(token),
        )
        assert created.status_code == 201, created.text
        assert "verysecretvalue" not in created.text
        assert "c2VjcmV0" not in created.text
    await run(store, {"1234567890": {"title": "A"}}, dataset=DATASETS["fixtures"])
    await run(store, {"1234567890": {"title": "B"}}, dataset=DATASETS["fixtures"])
    while await fan_out(store, DATASETS, "UTC"):
        pass

    async def seen(token: str, path: str, name: str) -> list[Any]:
        response = await client.get(f"/api/v1/{path}", headers=bearer(token))
        assert response.status_code == 200, response.text
        found: list[Any] = response.json()[name]
        return found

    [own] = await seen(my_token, "watchlists", "watchlists")
    assert own["owner"] == f"key:{mine.id}"
    assert len(await seen(operator, "watchlists", "watchlists")) == 2
    [delivery] = await seen(my_token, "deliveries", "deliveries")
    [foreign] = await seen(their_token, "deliveries", "deliveries")
    assert len(await seen(operator, "deliveries", "deliveries")) == 2
    number = foreign["id"]
    assert (
        await client.get(f"/api/v1/deliveries/{number}", headers=bearer(my_token))
    ).status_code == 404
    payload = (
        await client.get(f"/api/v1/deliveries/{delivery['id']}", headers=bearer(my_token))
    ).json()["payload"]
    assert payload["type"] == "watchlist.changed"
    assert payload["changes"][0]["changedFields"] == ["title"]
    assert payload["changes"][0]["before"] == {"title": "A"}
    # The names of two owners are two lists; an operator says which one.
    both = await client.get("/api/v1/watchlists/customers", headers=bearer(operator))
    assert both.status_code == 409
    one = await client.get(
        "/api/v1/watchlists/customers",
        params={"owner": f"key:{theirs.id}"},
        headers=bearer(operator),
    )
    assert one.json()["owner"] == f"key:{theirs.id}"
    # `owner` opens nothing to a key that only reads.
    still = await client.get(
        "/api/v1/watchlists/customers",
        params={"owner": f"key:{theirs.id}"},
        headers=bearer(my_token),
    )
    assert still.json()["owner"] == f"key:{mine.id}"
    page = await client.get("/delivery.json", headers=bearer(my_token))
    assert [found["id"] for found in page.json()["recent"]] == [delivery["id"]]
    assert page.json()["consumers"] == page.json()["endpoints"] == []


async def test_the_lists_of_a_revoked_key_are_paused(
    client: httpx2.AsyncClient, store: Store
) -> None:
    key, token = await create_key(store, "erp")
    await client.post("/api/v1/watchlists", json=new_list(), headers=bearer(token))
    await run(store, {"1234567890": {"title": "A"}}, dataset=DATASETS["einvoice"])
    await revoke_key(store, key.id)
    await run(store, {"1234567890": {"title": "B"}}, dataset=DATASETS["einvoice"])
    assert not await fan_out(store, DATASETS, "UTC")


async def test_usage_is_counted_by_key_and_day(
    app: FastAPI, client: httpx2.AsyncClient, store: Store
) -> None:
    key, token = await create_key(store, "erp")
    _, operator = await create_key(store, "ops", "operate")
    for _ in range(3):
        await client.get("/api/v1/status", headers=bearer(token))
    await client.get("/api/v1/status", headers=bearer("hsk_aaaaaaaaaa_" + "x" * 43))
    await app.state.usage.write()
    await client.get("/api/v1/status", headers=bearer(token))
    await app.state.usage.write()
    [used] = await list_usage(store, "Europe/Istanbul", caller=f"key:{key.id}")
    assert (used.name, used.requests, used.refused, used.failed) == ("erp", 4, 0, 0)
    assert used.bytes > 400
    own = (await client.get("/api/v1/usage", headers=bearer(token))).json()["usage"]
    assert [one["caller"] for one in own] == [f"key:{key.id}"]
    every = (await client.get("/api/v1/usage", headers=bearer(operator))).json()["usage"]
    assert [one["caller"] for one in every] == [f"key:{key.id}"]
    scraped = (await client.get("/metrics")).text
    assert f'hasat_key_requests_total{{key="key:{key.id}",name="erp"}} 4.0' in scraped
    page = (await client.get("/keys.json", headers=bearer(token))).json()
    assert [(one["name"], one["today"]) for one in page["keys"]] == [("erp", 4)]


@asynccontextmanager
async def mcp_client(app: FastAPI, token: str) -> AsyncIterator[Client]:
    async with (
        app_client(app, headers=bearer(token)) as http,
        Client(streamable_http_client("http://127.0.0.1/mcp", http_client=http)) as client,
    ):
        yield client


async def test_tools_of_a_restricted_key_read_its_datasets_only(
    app: FastAPI, settings: Settings, store: Store
) -> None:
    _, token = await create_key(store, "erp", datasets=["einvoice"])
    await run(store, {"1234567890": {"title": "A"}}, dataset=DATASETS["einvoice"])
    await run(store, {"1234567890": {"title": "A"}}, dataset=DATASETS["edespatch"])
    context = ToolContext(store, settings, build_catalogue(settings))
    servers = ToolServers(context, all_sources())
    async with (
        serve_streamable(app, servers, "/mcp"),
        mcp_client(app, token) as client,
    ):
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert "get_record" in names
        assert not names & {"get_database_stats", "run_job", "list_holds"}

        async def is_refused(tool: str, **arguments: Any) -> bool:
            return (await client.call_tool(tool, arguments)).is_error

        own = await client.call_tool("get_record", {"dataset": "einvoice", "key": "1234567890"})
        assert not own.is_error
        assert '"A"' in json.dumps(own.structured_content)
        assert await is_refused("get_record", dataset="edespatch", key="1234567890")
        assert await is_refused("get_recent_changes", dataset="fixtures")
        assert await is_refused("get_database_stats")
        assert await is_refused("run_job", job_name="gib_sync")
