"""Second tries: late, few, at another endpoint, and the loser really stops."""

import asyncio
import random

import pytest

from hasat.fetch import Request, read_endpoints
from hasat.store import Store
from support.faulty import Asked, Handler, Reply
from support.fetch_toys import FEATURE, Field, found, racing, saying

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

USUAL = 0.02


def taking(seconds: float) -> Handler:
    async def handler(_: Asked, reply: Reply) -> None:
        await asyncio.sleep(seconds)
        await reply.json(200, FEATURE)

    return handler


class Trap:
    """Endpoints that answer as usual, but for the next request after the trap is set."""

    def __init__(self) -> None:
        self.set = False
        self.caught = asyncio.Event()
        self.host = ""

    async def __call__(self, asked: Asked, reply: Reply) -> None:
        if self.set:
            self.set = False
            self.host = asked.headers["host"]
            self.caught.set()
            await asyncio.Event().wait()
        await asyncio.sleep(USUAL)
        await reply.json(200, FEATURE)


async def warmed_up(field: Field, questions: int = 120) -> None:
    """Earn tokens and learn what is usual; a loaded machine's own hiccups may use some up."""
    for _ in range(questions):
        await field.ask()
    while field.racer._hedges.saved < 1.0:
        await field.ask()
    await field.pool.written()


async def test_a_slow_answer_is_overtaken_and_its_connection_closed(store: Store) -> None:
    trap = Trap()
    async with racing(store, [trap] * 3, hedge_share=0.1) as field:
        await warmed_up(field, 40)
        before, lines = sum(field.asked()), len(field.ledger.lines)
        given_up = {server.url: len(server.given_up) for server in field.servers}
        trap.set = True
        assert await field.ask() == FEATURE
        (slow,) = [server for server in field.servers if server.url.endswith(trap.host)]
        await slow.until_given_up(given_up[slow.url] + 1)
        await field.pool.written()
        assert sum(field.asked()) == before + 2
        assert sorted(map(str, field.ledger.outcomes[lines:])) == ["cancelled", "ok"]
    reports = {report.url: report for report in await read_endpoints(store, "tkgm")}
    assert reports[slow.url].cancelled >= 1
    assert sum(report.hedges_won for report in reports.values()) >= 1
    assert reports[slow.url].rest_until is None


async def test_second_tries_stay_within_their_share(store: Store) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)

    async def erratic(_: Asked, reply: Reply) -> None:
        await asyncio.sleep(rng.choice([0.001, 0.03]))
        await reply.json(200, FEATURE)

    async with racing(store, [erratic] * 4, hedge_share=0.02) as field:
        for _ in range(50):
            await asyncio.gather(*(field.ask() for _ in range(3)))
    assert sum(field.asked()) - 150 <= 150 * 0.02


async def test_without_a_share_there_is_no_second_try(store: Store) -> None:
    async with racing(store, [taking(0.001), taking(0.2), taking(0.001)], hedge_share=0.0) as field:
        for _ in range(15):
            await field.ask()
    assert sum(field.asked()) == 15


async def test_a_costly_question_has_no_second_try(store: Store) -> None:
    batch = Request("/batch", timeout=20.0, method="POST", points=20, hedge=False)
    async with racing(store, [taking(USUAL)] * 3, hedge_share=0.2) as field:
        await warmed_up(field, 20)
        before = sum(field.asked())
        for server in field.servers:
            server.handler = taking(0.5)
        await field.ask(batch)
        assert sum(field.asked()) == before + 1


async def test_bad_endpoints_are_left_alone_after_three_requests(store: Store) -> None:
    """A slow one and one that fails fast; failing fast is never rewarded."""
    handlers = [taking(0.5), saying(403), saying(500), found, found, found]
    async with racing(store, handlers) as field:
        for _ in range(60):
            await asyncio.gather(*(field.ask() for _ in range(4)))
    slow, refusing, failing, *good = field.asked()
    assert max(slow, refusing, failing) <= 3
    assert sum(good) >= 234


async def test_a_dead_endpoint_is_left_alone(store: Store) -> None:
    async with racing(store, [found] * 5) as field:
        dead = field.servers[0]

        async def hang_up(_: Asked, reply: Reply) -> None:
            reply.reset()

        dead.handler = hang_up
        for _ in range(60):
            assert await field.ask() == FEATURE
        assert len(dead.asked) <= 3


async def test_a_caller_that_gives_up_takes_its_requests_with_it(store: Store) -> None:
    trap = Trap()
    trap.set = True
    async with racing(store, [trap]) as field:
        asking = asyncio.create_task(field.ask())
        await trap.caught.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await field.servers[0].until_given_up()
        assert await field.ask() == FEATURE
    assert field.ledger.outcomes == ["cancelled", "ok"]
