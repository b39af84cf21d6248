"""`hasat quota`, GET /api/v1/quota and the metrics say the same."""

import json
import re
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from typer.testing import CliRunner

from hasat.api.app import create_app
from hasat.budget import Budget
from hasat.cli import app as commands
from hasat.jobs import Catalogue, platform_jobs
from hasat.settings import Settings
from hasat.sources.football.settings import FootballSettings, football_upstream
from hasat.sources.tkgm.settings import tkgm_upstream
from hasat.store import Store
from hasat.testing.database import ThrowAwayDatabase
from hasat.testing.http import undocumented_operations

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]


@pytest.fixture
def app(settings: Settings, store: Store) -> FastAPI:
    return create_app(settings, store, Catalogue.of(platform_jobs(), settings), ())


async def test_an_unused_budget_is_shown_as_configured(client: httpx2.AsyncClient) -> None:
    upstreams = (await client.get("/api/v1/quota")).json()["upstreams"]
    assert [one["windows"]["upstream"] for one in upstreams] == ["football", "gib", "tkgm"]
    windows = upstreams[0]["windows"]
    assert (windows["dayLimit"], windows["remaining"], windows["minuteLimit"]) == (
        75000,
        75000,
        280,
    )
    assert upstreams[0]["forecast"]["kind"] == "unused"
    assert upstreams[1]["windows"]["dayLimit"] == 500
    assert upstreams[2]["forecast"] is None


async def test_what_was_spent_is_in_the_answer_and_in_the_metrics(
    client: httpx2.AsyncClient, settings: Settings, store: Store
) -> None:
    async with Budget(store, football_upstream(settings)) as budget:
        for _ in range(3):
            grant = await budget.acquire("finalise", job="stale_live_refresh")
            await grant.settle("ok", latency=0.1)
    async with Budget(store, tkgm_upstream(settings)) as points:
        await points.acquire("backfill", job="scan", cost=20, endpoint="w1")
    answer = (await client.get("/api/v1/quota")).json()["upstreams"]
    assert answer[0]["windows"]["spent"] == 3
    assert answer[0]["spenders"] == [
        {"job": "stale_live_refresh", "lane": "finalise", "spent": 3, "grants": 3, "refusals": 0}
    ]
    assert answer[2]["endpoints"][0]["spent"] == 20
    metrics = (await client.get("/metrics")).text
    for line in (
        'hasat_quota_remaining{upstream="football",window="day"} 74997.0',
        'hasat_quota_remaining{upstream="tkgm",window="day of w1"} 1980.0',
        'hasat_quota_grants_total{lane="finalise",upstream="football"} 3.0',
        'hasat_quota_foreign_use{upstream="football"} 0.0',
    ):
        assert line in metrics


async def test_the_route_describes_itself(settings: Settings, store: Store) -> None:
    catalogue = Catalogue.of(platform_jobs(), settings)
    missing = undocumented_operations(create_app(settings, store, catalogue, ()))
    assert not [one for one in missing if "quota" in one]


def _quota(database: ThrowAwayDatabase, home: Any, *arguments: str) -> Any:
    environ = {"HASAT_HOME": str(home), "HASAT_DATABASE_URL": database.url}
    return CliRunner().invoke(commands, ["quota", *arguments], env=environ)


def test_the_command_prints_text_and_json(database: ThrowAwayDatabase, tmp_path: Any) -> None:
    result = _quota(database, tmp_path)
    assert result.exit_code == 0, result.output
    assert re.search(r"0 of 75,000 spent, 75,000 left, target 90%", result.stdout)
    assert re.search(r"forecast: 67,500 of the target of 90% unused at 24:00 UTC", result.stdout)
    document = json.loads(_quota(database, tmp_path, "football", "--json").stdout)
    assert [one["windows"]["upstream"] for one in document["upstreams"]] == ["football"]
    assert _quota(database, tmp_path, "nowhere").exit_code == 1


async def test_a_closed_day_is_shown_and_can_be_reopened(
    client: httpx2.AsyncClient, settings: Settings, store: Store
) -> None:
    assert (await client.post("/api/v1/quota/nobody/reopen")).status_code == 404
    limits = settings.section(FootballSettings).rate_limiter.model_copy(
        update={"opening_minutes": 0}
    )
    section = settings.section(FootballSettings).model_copy(update={"rate_limiter": limits})
    always_open = settings.model_copy(update={"football": section})
    async with Budget(store, football_upstream(always_open)) as budget:
        grant = await budget.acquire("finalise", job="stale_live_refresh")
        await grant.settle("day_exhausted")
    windows = (await client.get("/api/v1/quota")).json()["upstreams"][0]["windows"]
    assert (windows["remaining"], windows["exhaustedAt"] is None) == (0, False)
    answer = await client.post("/api/v1/quota/football/reopen")
    assert answer.json() == {"reopened": True}
    windows = (await client.get("/api/v1/quota")).json()["upstreams"][0]["windows"]
    assert windows["remaining"] == 74_999
    assert (await client.post("/api/v1/quota/football/reopen")).json() == {"reopened": False}
