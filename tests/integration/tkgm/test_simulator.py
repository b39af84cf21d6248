"""The simulated registry responds like the real one, within the limits of its endpoints."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest
import shapely

from hasat.sim import Simulation, simulate
from hasat.sim.clock import SettableClock
from hasat.sources.tkgm.geometry import geodesic_area
from hasat.sources.tkgm.registry.wire import (
    Parcel,
    is_daily_limit,
    is_not_found,
    parse_message,
    parse_object,
    parse_parcel,
    parse_places,
)
from hasat.sources.tkgm.simulator.server import API, KEY, TKGM

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]
HEADERS = {"X-API-Key": KEY}


@asynccontextmanager
async def simulator(**options: Any) -> AsyncIterator[tuple[Simulation, httpx2.AsyncClient]]:
    clock = SettableClock(datetime(2026, 11, 16, 9, tzinfo=UTC), speed=0)
    simulation = Simulation(TKGM, seed=3, clock=clock, options={"parcels": 60, **options})
    async with (
        simulate(simulation) as address,
        httpx2.AsyncClient(base_url=address, timeout=10) as client,
    ):
        yield simulation, client


def read_parcel(body: bytes) -> Parcel:
    return parse_parcel(parse_object(body))


async def point_in_parcel(client: httpx2.AsyncClient) -> tuple[float, float]:
    """Return a point in some parcel."""
    [area] = parse_places((await client.get(f"{API}/idariYapi/mahalleListe/521")).content)
    assert area.boundary is not None
    west, south, east, north = area.boundary.bounds
    for step in range(400):
        lat = round(south + (north - south) * ((step * 7 % 20) + 0.5) / 20, 6)
        lon = round(west + (east - west) * (step // 20 + 0.5) / 20, 6)
        if (await client.get(f"{API}/parsel/{lat}/{lon}")).status_code == 200:
            return lat, lon
    raise AssertionError("no parcel was found")


async def test_the_same_parcel_by_point_and_by_number() -> None:
    async with simulator() as (_, client):
        lat, lon = await point_in_parcel(client)
        by_point = read_parcel((await client.get(f"{API}/parsel/{lat}/{lon}/")).content)
        mahalle, ada, parsel = by_point.key
        response = await client.get(f"{API}/parsel/{mahalle}/{ada}/{parsel}")
        by_number = read_parcel(response.content)
    assert by_number.key == by_point.key
    assert by_number.area == by_point.area
    assert by_number.properties["alan"] != by_point.properties["alan"]
    assert by_point.geometry is not None
    assert by_point.area == pytest.approx(geodesic_area(by_point.geometry), rel=0.5)
    assert by_point.geometry.intersects(shapely.Point(lon, lat).buffer(2e-5))


async def test_no_parcel_has_the_message_of_the_registry() -> None:
    async with simulator() as (_, client):
        response = await client.get("/e1/parsel/-12.5/-30.25", headers=HEADERS)
    assert response.status_code == 404
    assert is_not_found(parse_message(response.content) or "")


async def test_an_endpoint_requires_the_key_and_at_most_twenty_points() -> None:
    async with simulator() as (_, client):
        assert (await client.get("/e1/parsel/1/1")).status_code == 401
        assert (await client.get("/e9/parsel/1/1", headers=HEADERS)).status_code == 404
        many = {"coordinates": [{"lat": 1, "lon": 1}] * 21}
        assert (await client.post("/e1/batch", json=many, headers=HEADERS)).status_code == 400


async def test_a_batch_has_a_result_per_point() -> None:
    async with simulator() as (simulation, client):
        lat, lon = await point_in_parcel(client)
        body = {"coordinates": [{"lat": lat, "lon": lon}, {"lat": 1, "lon": 1}]}
        batch = (await client.post("/e2/batch", json=body, headers=HEADERS)).json()
        assert [one["status"] for one in batch["results"]] == ["found", "empty"]
        assert batch["stats"] == {"found": 1, "empty": 1, "error": 0, "total": 2}
        simulation.faults.switch_on("partial")
        body["coordinates"].append({"lat": 2, "lon": 2})
        batch = (await client.post("/e2/batch", json=body, headers=HEADERS)).json()
        assert batch["results"][2] == {"status": "error", "coord": {"lat": 2, "lon": 2}}


async def test_each_endpoint_has_a_day_that_ends_at_midnight_in_istanbul() -> None:
    async with simulator(daily=3, endpoints=2) as (simulation, client):

        async def get(endpoint: int) -> httpx2.Response:
            return await client.get(f"/e{endpoint}/parsel/1/1", headers=HEADERS)

        assert [(await get(1)).status_code for _ in range(4)] == [404, 404, 404, 403]
        refusal = await get(1)
        assert is_daily_limit(parse_message(refusal.content) or "")
        assert (await get(2)).status_code == 404
        simulation.clock.set_time(datetime(2026, 11, 16, 21, tzinfo=UTC))
        assert (await get(1)).status_code == 404


@pytest.mark.parametrize(
    ("fault", "status"), [("forbidden", 403), ("busy", 429), ("broken", 503), ("day-limit", 403)]
)
async def test_a_fault_of_one_endpoint_does_not_affect_others(fault: str, status: int) -> None:
    async with simulator() as (simulation, client):
        simulation.faults.switch_on(fault, endpoint=2)
        assert (await client.get("/e2/parsel/1/1", headers=HEADERS)).status_code == status
        assert (await client.get("/e1/parsel/1/1", headers=HEADERS)).status_code == 404
