"""The overview, the filters of runs, the search and the settings page."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import httpx2
import pytest
from fastapi import FastAPI

from hasat.api.keys import create_key
from hasat.console.runtime import source_migrations
from hasat.deliver import Event, publish_event
from hasat.deliver.outbox import create_deliveries, save_failure, subscribe
from hasat.deliver.webhook_endpoints import Endpoint
from hasat.settings import Settings
from hasat.sources.gib.datasets import DATASETS
from hasat.store import MigrationSet, Store
from hasat.testing.http import app_client
from hasat.web.trends import load_trends
from support import feed_toys
from support.complete_app import complete_app
from support.gib_lists import by_identifier, taxpayer_body

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

BROWSER = {"Accept": "text/html"}
OWN = {"Origin": "http://127.0.0.1", **BROWSER}


@pytest.fixture
def migrations() -> Sequence[MigrationSet]:
    return source_migrations()


@pytest.fixture
def app(settings: Settings, store: Store) -> FastAPI:
    return complete_app(settings, store)


async def _load(store: Store, *titles: str) -> None:
    """Commit a state with these taxpayers."""
    state: dict[str, Any] = {}
    for number, title in enumerate(titles):
        state |= by_identifier(taxpayer_body(f"123456789{number}", title, "urn:mail:pk@x.tr"))
    await feed_toys.run(store, state, dataset=DATASETS[0])


async def _add_run(store: Store, job: str, outcome: str, *, hours: float = 0.0) -> int:
    async with store.connection() as conn:
        cursor = await conn.execute(
            "INSERT INTO jobs.run (job, trigger, state, outcome, started_at, finished_at,"
            "                      rows_changed)"
            " VALUES (%s, 'hand', 'finished', %s, now() - %s - interval '3 s', now() - %s, 7)"
            " RETURNING id",
            [job, outcome, timedelta(hours=hours), timedelta(hours=hours)],
        )
        row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def test_the_trend_counts_changes_and_records(
    client: httpx2.AsyncClient, store: Store
) -> None:
    await _load(store, "A", "B")
    await _load(store, "A", "B2", "C")
    [card] = [
        one
        for one in (await client.get("/overview.json")).json()["sources"]
        if one["name"] == "gib"
    ]
    points = card["trend"]["points"]
    assert len(points) == 24
    assert points[-1]["records"] == 3
    # B was modified and C added; the initial load is no change.
    assert sum(one["changes"] for one in points) == 2
    page = (await client.get("/", headers=BROWSER)).text
    assert "Changes per 5 min" in page
    assert "at most 2, 2 in all" in page
    # After days, each point is one day.
    days = await load_trends(store, await store.now() + timedelta(days=3), ZoneInfo("UTC"))
    assert days["gib"].days
    assert len(days["gib"].points) == 14
    assert sum(point.changes for point in days["gib"].points) == 2


async def test_failures_need_attention_until_the_job_succeeds(
    client: httpx2.AsyncClient, store: Store
) -> None:
    assert (await client.get("/overview.json")).json()["failures"] == []
    assert "No run failed." in (await client.get("/", headers=BROWSER)).text
    for _ in range(2):
        failed = await _add_run(store, "gib_sync", "failed")
    await _add_run(store, "housekeeping", "failed", hours=30)
    found = (await client.get("/overview.json")).json()
    [failure] = found["failures"]
    assert (failure["job"], failure["runs"], failure["run"]) == ("gib_sync", 2, failed)
    assert failure["still"]
    [wanted] = [one for one in found["attention"] if one["subject"] == "gib_sync"]
    assert (wanted["level"], wanted["path"]) == ("error", f"/runs/{failed}")
    assert "Needs attention" in (await client.get("/", headers=BROWSER)).text
    await _add_run(store, "gib_sync", "done")
    found = (await client.get("/overview.json")).json()
    assert not found["failures"][0]["still"]
    assert "gib_sync" not in [one["subject"] for one in found["attention"]]


async def test_dead_letters_need_attention(
    client: httpx2.AsyncClient, store: Store, settings: Settings
) -> None:
    await subscribe(store, [Endpoint("http", "https://hooks.example", "http")])
    async with store.connection() as conn:
        await publish_event(conn, Event("SyncCompleted", "Info", "message", {}))
    await create_deliveries(store)
    await save_failure(store, 1, settings.webhooks, error="no", pause_seconds=0, final=True)
    found = (await client.get("/overview.json")).json()["attention"]
    assert [one["path"] for one in found if one["path"].startswith("/delivery")]


async def test_filters_of_runs_combine(client: httpx2.AsyncClient, store: Store) -> None:
    old = await _add_run(store, "gib_sync", "failed", hours=30)
    failed = await _add_run(store, "gib_sync", "failed")
    done = await _add_run(store, "gib_sync", "done")
    other = await _add_run(store, "housekeeping", "failed")

    async def listed(query: str) -> list[int]:
        return [one["id"] for one in (await client.get(f"/runs.json?{query}")).json()["runs"]]

    assert await listed("") == [other, done, failed, old]
    assert await listed("state=failed") == [other, failed, old]
    assert await listed("bad=1") == [other, failed, old]
    assert await listed("state=failed&job=gib_sync") == [failed, old]
    assert await listed("state=failed&source=gib&hours=24") == [failed]
    assert await listed("source=gib") == [done, failed, old]
    assert await listed("state=queued") == []
    page = (await client.get("/runs?state=queued&job=gib_sync", headers=BROWSER)).text
    assert "No results" in page
    assert '<option value="queued" selected>' in page


async def test_the_runs_of_a_job_are_drawn(client: httpx2.AsyncClient, store: Store) -> None:
    first = await _add_run(store, "gib_sync", "done")
    second = await _add_run(store, "gib_sync", "failed")
    history = (await client.get("/runs.json?job=gib_sync")).json()["history"]
    assert [one["id"] for one in history] == [first, second]
    page = (await client.get("/runs?job=gib_sync", headers=BROWSER)).text
    assert "Last 2 runs of gib_sync" in page
    assert f'<a href="/runs/{second}" class="error"' in page
    assert (await client.get("/runs.json")).json()["history"] == []


async def test_everything_with_a_name_or_number_is_found(
    client: httpx2.AsyncClient, store: Store
) -> None:
    await _load(store, "IŞIK")
    run = await _add_run(store, "gib_sync", "done")

    async def found(query: str) -> dict[str, Any]:
        answer: dict[str, Any] = (await client.get("/search.json", params={"q": query})).json()
        return answer

    assert (await found(str(run)))["run"] == run
    assert (await found("99999999"))["run"] is None

    async def paths(query: str, kind: str) -> set[str]:
        return {one["path"] for one in (await found(query))[kind]}

    assert await paths("gib_s", "jobs") == {"/runs?job=gib_sync", "/runs?job=gib_search"}
    assert "/records?dataset=parcels" in await paths("parcels", "datasets")
    taxpayer = {"dataset": "einvoice", "key": "1234567890", "title": "IŞIK"}
    assert taxpayer in (await found("1234567890"))["records"]
    assert "/taxpayers?q=1%C5%9F" in await paths("1ş", "searches")
    assert (await found(""))["records"] == []
    for query in ("", "'; DROP TABLE", "%", "\\", "0"):
        assert (
            await client.get("/search", params={"q": query}, headers=BROWSER)
        ).status_code == 200


async def test_settings_are_shown_with_their_origin_to_operators(
    settings: Settings, store: Store, client: httpx2.AsyncClient
) -> None:
    sections = (await client.get("/settings.json")).json()["sections"]
    rows = {row["key"]: row for section in sections for row in section["settings"]}
    assert rows["serve.port"]["variable"] == "HASAT_SERVE_PORT"
    assert rows["serve.port"]["summary"]
    assert rows["database.url"]["origin"] != "default"
    assert rows["serve.port"]["origin"] == "default"
    shown = str(settings.database.url and settings.database.url.get_secret_value())
    page = (await client.get("/settings", headers=BROWSER)).text
    assert shown not in page
    only = (await client.get("/settings.json?changed=1")).json()["sections"]
    assert all(row["origin"] != "default" for section in only for row in section["settings"])
    narrowed = (await client.get("/settings.json?q=serve.port")).json()["sections"]
    assert [row["key"] for section in narrowed for row in section["settings"]] == ["serve.port"]
    remote = settings.model_copy(
        update={"serve": settings.serve.model_copy(update={"host": "192.0.2.10"})}
    )
    _, token = await create_key(store, "reader", "read", None)
    async with app_client(complete_app(remote, store)) as reader:
        headers = {"Authorization": f"Bearer {token}"}
        assert (await reader.get("/settings.json", headers=headers)).status_code == 403
        assert "/settings" not in (await reader.get("/runs", headers=headers | BROWSER)).text


async def test_scenes_are_replayed_in_the_demo_only(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/demo/replay", data={"scene": "4"}, headers=OWN)
    assert answer.status_code == 404
