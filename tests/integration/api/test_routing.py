"""Requests go where the framework's own search of all routes would send them."""

import random
import re

import pytest
from fastapi import FastAPI
from fastapi.routing import RouteContext, iter_route_contexts
from starlette.routing import Match

from hasat.api.app import create_app
from hasat.api.routing import UNMATCHED, RouteTable
from hasat.jobs import Catalogue
from hasat.settings import Settings
from hasat.source.installed import all_sources
from hasat.store import Store
from hasat.web import add_pages

pytestmark = pytest.mark.anyio

METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD")
VALUES = ("1234567890", "changes", "a b", "İ", "x/y", "", "9")


@pytest.fixture
async def app(settings: Settings, store: Store) -> FastAPI:
    catalogue = Catalogue.of([], settings)
    app = create_app(settings, store, catalogue, all_sources())
    add_pages(app, settings, store, catalogue, all_sources())
    return app


def _paths(routes: list[RouteContext], dice: random.Random) -> list[str]:
    """Return a path that each route declares, and the same damaged."""
    found = []
    for route in routes:
        path = re.sub(r"{[^}]*}", lambda _: dice.choice(VALUES), route.path_format or "/")
        cut = path[: dice.randrange(len(path) + 1)]
        found += [path, cut, f"{path}/", f"{path}/{dice.choice(VALUES)}", path.upper()]
    return found


def _first_match(app: FastAPI, path: str, method: str) -> object:
    scope = {"type": "http", "path": path, "method": method, "root_path": "", "headers": []}
    for entry in app.routes:
        if entry.matches(dict(scope))[0] is Match.FULL:
            return entry
    return None


async def test_the_index_finds_what_a_search_of_all_routes_finds(app: FastAPI) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    table: RouteTable = app.state.routes
    routes = [one for one in iter_route_contexts(app.routes) if hasattr(one, "path_regex")]
    assert len(routes) > 100
    for path in dice.sample(_paths(routes, dice), 400):
        method = dice.choice(METHODS)
        matching = [one for one in routes if one.path_regex.match(path)]
        own = [one for one in matching if not one.methods or method in one.methods]
        expected = next((one.path_format for one in (*own, *matching)), None) or UNMATCHED
        assert table.template(path, method) == expected, path
        allowed = {one for route in matching for one in route.methods or ()}
        assert set(table.methods(path)) - {"HEAD"} == allowed - {"HEAD"}, path
        entry = _first_match(app, path, method)
        assert entry is None or entry in table.entries(path), path
        tried = _first_of(table, path, method)
        assert tried is entry, path


def _first_of(table: RouteTable, path: str, method: str) -> object:
    scope = {"type": "http", "path": path, "method": method, "root_path": "", "headers": []}
    entries = table.entries(path)
    return next((one for one in entries if one.matches(dict(scope))[0] is Match.FULL), None)


async def test_few_routes_are_tried(app: FastAPI) -> None:
    table: RouteTable = app.state.routes
    for path in ("/api/v1/einvoice/1234567890", "/api/v1/check/1234567890", "/healthz"):
        assert len(table.entries(path)) < len(app.routes) / 4
