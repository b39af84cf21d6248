"""A source that is not configured degrades nothing."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from fastapi import FastAPI
from pydantic import SecretStr

from hasat.api.app import create_app
from hasat.api.diagnostics import check_database
from hasat.cli.commands.processes import health_checks
from hasat.console.runtime import build_catalogue, source_migrations
from hasat.settings import Settings
from hasat.source import Source
from hasat.source.installed import all_sources
from hasat.sources.football.settings import FootballSettings, League
from hasat.store import MigrationSet, Store
from hasat.testing.http import app_client
from hasat.web.app import add_pages

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]


@pytest.fixture
def migrations() -> Sequence[MigrationSet]:
    return source_migrations()


@pytest.fixture
def football_only(settings: Settings) -> Settings:
    leagues = (League(id=39, season=2026),)
    section = settings.section(FootballSettings).model_copy(
        update={"api_key": SecretStr("k"), "tracked_leagues": leagues}
    )
    return settings.model_copy(update={"sources": ("football",), "football": section})


def app_of(settings: Settings, store: Store, sources: Sequence[Source]) -> FastAPI:
    catalogue = build_catalogue(settings)
    app = create_app(settings, store, catalogue, sources)
    add_pages(app, settings, store, catalogue, sources)
    return app


async def test_a_source_that_is_off_is_not_checked(football_only: Settings, store: Store) -> None:
    async def broken(*_: Any) -> Any:
        raise AssertionError("a source that is not active was asked for its status")

    # Football itself has received no match yet, which is another matter.
    sources = [
        replace(source, status=None)
        if source.name == "football"
        else replace(source, status=broken, metrics=broken)
        for source in all_sources()
    ]
    async with app_client(app_of(football_only, store, sources)) as client:
        health = (await client.get("/health")).json()
        assert health["status"] == "Healthy", health
        status = {
            one["name"]: one for one in (await client.get("/api/v1/status")).json()["sources"]
        }
        assert status["gib"]["notConfigured"].startswith("gib is not one of the active sources")
        assert "notConfigured" not in status["football"]
        metrics = (await client.get("/metrics")).text
        assert 'hasat_source_configured{source="football"} 1.0' in metrics
        assert 'hasat_source_configured{source="gib"} 0.0' in metrics
        cards = {one["name"]: one for one in (await client.get("/overview.json")).json()["sources"]}
        assert (cards["gib"]["state"], cards["football"]["state"]) == ("off", "empty")
        quotas = (await client.get("/api/v1/quota")).json()["upstreams"]
        assert [one["windows"]["upstream"] for one in quotas] == ["football"]
    findings = await check_database(store, football_only, sources)
    messages = {one.check: one.message for one in findings if one.grade == "ok"}
    assert messages["gib"].startswith("Not configured")
    assert messages["tkgm"].startswith("Not configured")
    assert messages["football"].startswith("Configured: 0 records in ")
    enabled = {job.source for job in build_catalogue(football_only) if job.enabled}
    assert enabled & {"gib", "tkgm", "football"} == {"football"}


async def test_notifications_do_not_depend_on_a_source_that_is_off(
    settings: Settings, football_only: Settings, store: Store
) -> None:
    assert (await health_checks(store, settings)())["sync_freshness"]["status"] == "Degraded"
    assert set(await health_checks(store, football_only)()) == {"football_freshness"}
