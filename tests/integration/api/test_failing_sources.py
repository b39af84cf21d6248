"""A part of a source that fails is reported, and stops neither the server nor other sources."""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import pytest

from hasat.api.app import create_app
from hasat.api.diagnostics import check_database, check_machine
from hasat.console.runtime import build_catalogue, source_migrations
from hasat.demo import demo_parts
from hasat.settings import Settings
from hasat.source import Dataset, Source, ToolContext, lazy
from hasat.source.installed import all_simulators, all_sources, installed_sources
from hasat.store import MigrationSet, Store
from hasat.testing.http import app_client
from hasat.upstreams import declared_upstreams
from hasat.web import add_pages
from support.installed import installed

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

PATHS = ("/health", "/metrics", "/api/v1/status", "/api/v1/quota", "/", "/doctor", "/search?q=a")


@pytest.fixture
def migrations() -> Sequence[MigrationSet]:
    return source_migrations()


MISSING = lazy("bronze_of_nobody:PART")


def leave(*_: Any) -> NoReturn:
    raise SystemExit(3)


def fail(*_: Any) -> NoReturn:
    raise KeyError("bronze")


async def fail_later(*_: Any) -> NoReturn:
    raise KeyError("bronze")


async def report_nonsense(*_: Any) -> Any:
    return {"checks": {"bells": "fine"}, "remarks": 5}


async def serve(settings: Settings, store: Store) -> None:
    """Request what every source has a part in."""
    catalogue = build_catalogue(settings)
    app = create_app(settings, store, catalogue, all_sources())
    add_pages(app, settings, store, catalogue, all_sources())
    async with app_client(app) as client:
        for path in PATHS:
            response = await client.get(path, headers={"Accept": "text/html"})
            assert response.status_code == 200, f"{path}: {response.text}"


async def findings(settings: Settings, store: Store) -> dict[str, str]:
    """Return what the doctor finds, by its message."""
    found = [*check_machine(settings), *await check_database(store, settings, all_sources())]
    return {one.message: one.grade for one in found}


@pytest.mark.parametrize("load", [MISSING, leave])
async def test_a_part_that_cannot_be_loaded_is_left_out(
    load: Callable[..., Any], settings: Settings, store: Store
) -> None:
    broken = Source(
        *("bells", "Bells"),
        routers=load,
        pages=load,
        tools=lambda _: load(),
        simulator=load,
        demo=load,
        commands=load,
    )
    with installed(bells=broken):
        await serve(settings, store)
        pytest.importorskip("mcp", reason="the extra mcp is not installed")
        from hasat.mcp.server import ToolServers

        context = ToolContext(store, settings, build_catalogue(settings))
        assert await ToolServers(context, all_sources()).reading.list_tools()
        assert "bells" not in {*all_simulators(), *demo_parts()}
        found = await findings(settings, store)
        for part in ("routes", "pages", "tools", "simulator", "demo", "commands"):
            text = f"The {part} of the source bells cannot be loaded: "
            assert [grade for one, grade in found.items() if text in one] == ["failure"], part


@pytest.mark.parametrize("status", [fail_later, report_nonsense])
async def test_status_and_metrics_that_fail_are_a_finding(
    status: Any, settings: Settings, store: Store
) -> None:
    with installed(bells=Source("bells", "Bells", status=status, metrics=fail_later)):
        await serve(settings, store)
        found = await findings(settings, store)
        text = "The status of the source bells fails: "
        assert [grade for one, grade in found.items() if text in one] == ["warning"]


@pytest.mark.parametrize("name", ["lacks", "upstreams"])
async def test_functions_of_the_settings_that_fail_switch_the_source_off(
    name: str, settings: Settings, store: Store
) -> None:
    part: Any = {name: fail}
    with installed(bells=Source("bells", "Bells", **part)):
        await serve(settings, store)
        assert declared_upstreams(settings)
        found = await findings(settings, store)
        text = "The source bells fails with these settings: KeyError: 'bronze'"
        assert found[text] == "failure"


def test_declarations_that_cannot_be_evaluated_make_a_broken_source() -> None:
    strategies: Any = {"bells": 7}
    broken = Source(
        "bells", "Bells", datasets=(Dataset("bells", "bells", "Bells"),), strategies=strategies
    )
    with installed(bells=broken):
        assert "bells" not in {source.name for source in all_sources()}
        [one] = installed_sources().broken
        assert (one.name, "AttributeError" in one.reason) == ("bells", True)
