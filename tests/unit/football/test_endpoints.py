"""The declarations of endpoints: what follows from them works for every one."""

import json
from pathlib import Path
from typing import Any

import pytest

from hasat.sim import Simulation
from hasat.sources.football.endpoints import ENDPOINTS, OPTIONAL, Endpoint, find_endpoint
from hasat.sources.football.endpoints.reference import markdown
from hasat.sources.football.ingest.elements import extract
from hasat.sources.football.ingest.scopes import column_of, scopes_containing
from hasat.sources.football.simulator.optional import simulate_rows
from hasat.sources.football.simulator.server import FOOTBALL, SimulatedApi

WITH_EXAMPLE = [endpoint for endpoint in OPTIONAL if endpoint.example is not None]
PARAMETERS = {
    "api": {},
    "season": {"league": "39", "season": "2026"},
    "team": {"team": "33"},
    "player": {"player": "7"},
    "fixture": {"fixture": "390001"},
    "country": {"country": "Türkiye"},
    "league": {"league": "39"},
}


def rows_of(endpoint: Endpoint) -> tuple[dict[str, str], list[Any]]:
    """Return a request for one unit of an endpoint, and the rows of its response."""
    assert endpoint.plan is not None
    parameters = {**PARAMETERS[endpoint.plan.unit], **endpoint.fixed}
    world = SimulatedApi(Simulation(FOOTBALL, seed=1)).world
    return parameters, simulate_rows(world, endpoint, parameters)


def test_names_are_unique() -> None:
    names = [endpoint.name for endpoint in ENDPOINTS]
    assert len(set(names)) == len(names)
    options = [endpoint.option_name for endpoint in OPTIONAL]
    assert len(set(options)) == len(options)


@pytest.mark.parametrize("endpoint", WITH_EXAMPLE, ids=lambda one: one.name)
def test_records_are_read_with_unique_keys_inside_their_scope(endpoint: Endpoint) -> None:
    parameters, rows = rows_of(endpoint)
    found = extract(endpoint.path, parameters, rows)
    assert not found.unreadable
    keys = [element.key for element in found.elements]
    assert len(keys) == len(set(keys)) >= len(rows)
    assert {element.dataset for element in found.elements} == {endpoint.dataset.name}
    # Whatever a complete response covers contains the records that it has.
    for scope in found.scopes:
        for element in found.elements:
            assert scope in set(scopes_containing(element))
    assert bool(found.scopes) == (endpoint.rule_for(parameters) is not None)


@pytest.mark.parametrize("endpoint", WITH_EXAMPLE, ids=lambda one: one.name)
def test_pages_and_filters_never_remove(endpoint: Endpoint) -> None:
    parameters, rows = rows_of(endpoint)
    for name in endpoint.filters:
        assert not extract(endpoint.path, {**parameters, name: "x"}, rows).scopes
    if endpoint.plan is not None and endpoint.plan.pages > 1:
        assert endpoint.rule_for(parameters) is None


@pytest.mark.parametrize("endpoint", WITH_EXAMPLE, ids=lambda one: one.name)
@pytest.mark.parametrize("damage", [None, 7, "x", [], {}, [[]], {"id": None}, {"player": 3}])
def test_damaged_elements_are_quarantined(endpoint: Endpoint, damage: Any) -> None:
    parameters, rows = rows_of(endpoint)
    found = extract(endpoint.path, parameters, [damage, *rows])
    whole = extract(endpoint.path, parameters, rows)
    keys = {element.key for element in found.elements}
    assert {element.key for element in whole.elements} <= keys
    # What was not understood takes the scope away: it may have been one of the records.
    assert found.unreadable or len(found.elements) > len(whole.elements) or damage in ([], {})
    if found.unreadable:
        assert not found.scopes


def test_half_time_statistics_are_another_dataset() -> None:
    body = [{"team": {"id": 33}, "statistics": []}]
    whole = extract("fixtures/statistics", {"fixture": "7"}, body)
    halves = extract("fixtures/statistics", {"fixture": "7", "half": "true"}, body)
    assert [one.dataset for one in whole.elements] == ["fixture_statistics"]
    assert [one.dataset for one in halves.elements] == ["half_time_statistics"]
    assert not halves.blocks


def test_rules_name_columns() -> None:
    for endpoint in ENDPOINTS:
        for rule in endpoint.rules:
            for name in rule.columns.values():
                assert column_of(endpoint.dataset.name, name)


def test_unknown_endpoint_has_no_records() -> None:
    assert find_endpoint("no/such", {}) is None
    assert extract("no/such", {}, json.loads('[{"id": 1}]')).elements == []


def test_the_reference_has_every_endpoint() -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "football-endpoints.md"
    assert page.read_text("utf-8") == markdown(), "scripts/docs brings it up to date"
    for endpoint in ENDPOINTS:
        assert f"`/{endpoint.name}`" in markdown()
