"""The frame of the simulated upstreams, tried with a small upstream of its own over real HTTP."""

import random
from collections.abc import AsyncIterator

import httpx2
import pytest
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from hasat.errors import UsageError
from hasat.sim import Simulation, Simulator, simulate
from hasat.sim.simulation import Faults

pytestmark = pytest.mark.anyio


def _dice(simulation: Simulation) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        loaded = simulation.faults.strikes("loaded")
        throw = 6 if loaded else simulation.random.randint(1, 6)
        answer = JSONResponse({"throw": throw, "at": simulation.clock().isoformat()})
        await answer(scope, receive, send)

    return app


DICE = Simulator("dice", "throws dice", _dice, {"loaded": "always a six"})


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with (
        simulate(Simulation(DICE, seed=7)) as address,
        httpx2.AsyncClient(base_url=address) as client,
    ):
        yield client


async def _throws(client: httpx2.AsyncClient, count: int) -> list[int]:
    return [(await client.get("/throw")).json()["throw"] for _ in range(count)]


async def test_the_same_seed_gives_the_same_world(client: httpx2.AsyncClient) -> None:
    first = await _throws(client, 12)
    async with (
        simulate(Simulation(DICE, seed=7)) as address,
        httpx2.AsyncClient(base_url=address) as again,
    ):
        assert await _throws(again, 12) == first
    async with (
        simulate(Simulation(DICE, seed=8)) as address,
        httpx2.AsyncClient(base_url=address) as other,
    ):
        assert await _throws(other, 12) != first


async def test_the_clock_is_turned_over_http(client: httpx2.AsyncClient) -> None:
    await client.post("/_sim/clock", json={"now": "2030-05-01T12:00:00+03:00", "speed": 0})
    await client.post("/_sim/clock", json={"advance": 90})
    assert (await client.get("/throw")).json()["at"] == "2030-05-01T09:01:30+00:00"


async def test_faults_are_switched_by_name_counted_and_end(client: httpx2.AsyncClient) -> None:
    await client.put("/_sim/faults/loaded", json={"times": 3})
    assert await _throws(client, 3) == [6, 6, 6]
    assert (await client.get("/_sim")).json()["faults"]["on"] == []
    await client.put("/_sim/faults/error", json={"status": 503})
    assert (await client.get("/throw")).status_code == 503
    await client.delete("/_sim/faults/error")
    assert (await client.get("/throw")).status_code == 200


async def test_a_reset_cuts_the_connection_in_the_middle(client: httpx2.AsyncClient) -> None:
    await client.put("/_sim/faults/reset", json={"times": 1})
    with pytest.raises(httpx2.RemoteProtocolError):
        await client.get("/throw")
    assert (await client.get("/throw")).status_code == 200


async def test_an_unknown_fault_is_refused_with_the_known_ones(client: httpx2.AsyncClient) -> None:
    answer = await client.put("/_sim/faults/loded")
    assert answer.status_code == 400
    assert "loaded" in answer.json()["error"]


async def test_requests_are_counted_but_not_the_controls(client: httpx2.AsyncClient) -> None:
    await _throws(client, 4)
    assert (await client.get("/_sim")).json()["requests"] == {"GET /throw": 4}


def test_a_fault_hits_about_its_share_of_the_requests() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    faults = Faults({}, random.Random(seed))
    faults.switch_on("slow", share=0.25)
    hits = sum(faults.strikes("slow") is not None for _ in range(20_000))
    assert 4_400 < hits < 5_600


def test_a_share_outside_of_zero_to_one_is_refused() -> None:
    with pytest.raises(UsageError, match="share"):
        Faults({}, random.Random(0)).switch_on("slow", share=0)
