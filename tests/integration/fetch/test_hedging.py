"""Hedges: late, few, sent to another endpoint, and the loser is cancelled."""

import asyncio
import random

import pytest

from hasat.fetch import Request, read_endpoints
from hasat.store import Store
from support.endpoint_pool import FEATURE, PoolUnderTest, found, open_pool, respond_with
from support.faulty_server import Handler, ReceivedRequest, Reply

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

USUAL = 0.02


def taking(seconds: float) -> Handler:
    async def handler(_: ReceivedRequest, reply: Reply) -> None:
        await asyncio.sleep(seconds)
        await reply.json(200, FEATURE)

    return handler


class Trap:
    """Endpoints that answer as usual, but for the next request after the trap is set."""

    def __init__(self) -> None:
        self.set = False
        self.caught = asyncio.Event()
        self.host = ""

    async def __call__(self, request: ReceivedRequest, reply: Reply) -> None:
        if self.set:
            self.set = False
            self.host = request.headers["host"]
            self.caught.set()
            await asyncio.Event().wait()
        await asyncio.sleep(USUAL)
        await reply.json(200, FEATURE)


async def warmed_up(pool: PoolUnderTest, questions: int = 120) -> None:
    """Earn tokens and learn what is usual; a loaded machine's own hiccups may use some up."""
    for _ in range(questions):
        await pool.fetch()
    while pool.fetcher._hedges.saved < 1.0:
        await pool.fetch()
    await pool.pool.written()


async def test_a_slow_request_is_hedged_and_its_connection_closed(store: Store) -> None:
    trap = Trap()
    async with open_pool(store, [trap] * 3, hedge_share=0.1) as pool:
        await warmed_up(pool, 40)
        before, lines = sum(pool.received()), len(pool.budget.requests)
        abandoned = {server.url: len(server.abandoned) for server in pool.servers}
        trap.set = True
        assert await pool.fetch() == FEATURE
        (slow,) = [server for server in pool.servers if server.url.endswith(trap.host)]
        await slow.wait_until_abandoned(abandoned[slow.url] + 1)
        await pool.pool.written()
        assert sum(pool.received()) == before + 2
        assert sorted(map(str, pool.budget.outcomes[lines:])) == ["cancelled", "ok"]
    reports = {report.url: report for report in await read_endpoints(store, "tkgm")}
    assert reports[slow.url].cancelled >= 1
    assert sum(report.hedges_won for report in reports.values()) >= 1
    assert reports[slow.url].rest_until is None


async def test_hedges_stay_within_their_share(store: Store) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)

    async def erratic(_: ReceivedRequest, reply: Reply) -> None:
        await asyncio.sleep(rng.choice([0.001, 0.03]))
        await reply.json(200, FEATURE)

    async with open_pool(store, [erratic] * 4, hedge_share=0.02) as pool:
        for _ in range(50):
            await asyncio.gather(*(pool.fetch() for _ in range(3)))
    assert sum(pool.received()) - 150 <= 150 * 0.02


async def test_without_a_share_there_are_no_hedges(store: Store) -> None:
    async with open_pool(
        store, [taking(0.001), taking(0.2), taking(0.001)], hedge_share=0.0
    ) as pool:
        for _ in range(15):
            await pool.fetch()
    assert sum(pool.received()) == 15


async def test_a_costly_request_is_not_hedged(store: Store) -> None:
    batch = Request("/batch", timeout=20.0, method="POST", points=20, hedge=False)
    async with open_pool(store, [taking(USUAL)] * 3, hedge_share=0.2) as pool:
        await warmed_up(pool, 20)
        before = sum(pool.received())
        for server in pool.servers:
            server.handler = taking(0.5)
        await pool.fetch(batch)
        assert sum(pool.received()) == before + 1


async def test_failing_endpoints_are_avoided_after_three_requests(store: Store) -> None:
    """A slow one and one that fails fast; failing fast is never rewarded."""
    handlers = [taking(0.5), respond_with(403), respond_with(500), found, found, found]
    async with open_pool(store, handlers) as pool:
        for _ in range(60):
            await asyncio.gather(*(pool.fetch() for _ in range(4)))
    slow, refusing, failing, *good = pool.received()
    assert max(slow, refusing, failing) <= 3
    assert sum(good) >= 234


async def test_a_dead_endpoint_is_avoided(store: Store) -> None:
    async with open_pool(store, [found] * 5) as pool:
        dead = pool.servers[0]

        async def hang_up(_: ReceivedRequest, reply: Reply) -> None:
            reply.reset()

        dead.handler = hang_up
        for _ in range(60):
            assert await pool.fetch() == FEATURE
        assert len(dead.received) <= 3


async def test_cancelling_a_fetch_cancels_its_requests(store: Store) -> None:
    trap = Trap()
    trap.set = True
    async with open_pool(store, [trap]) as pool:
        asking = asyncio.create_task(pool.fetch())
        await trap.caught.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await pool.servers[0].wait_until_abandoned()
        assert await pool.fetch() == FEATURE
    assert pool.budget.outcomes == ["cancelled", "ok"]
