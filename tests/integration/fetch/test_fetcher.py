"""An upstream with one address and the real budget: a grant for every attempt, few retries."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hasat.budget import Budget, Upstream
from hasat.errors import OutOfQuotaError, SettingsError, UnavailableError
from hasat.fetch import Client, ClientOptions, Fetcher, Outcome, Request
from hasat.sources.football.outcomes import classify, remaining
from hasat.store import Store
from support.endpoint_pool import CONTEXT, FakeBudget
from support.faulty_server import FaultyServer, Handler, ReceivedRequest, Reply, faulty_server

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

REQUEST = Request("/fixtures", timeout=10.0, params={"ids": "1-2"})
DAY = {"requests": "You have reached the request limit for the day."}
MINUTE = {"rateLimit": "Too many requests. Your rate limit is 450 requests per minute."}


def envelope(errors: Any = (), response: Any = ()) -> dict[str, Any]:
    return {"errors": errors or [], "response": list(response)}


async def no_sleep(_: float) -> None:
    await asyncio.sleep(0)


@asynccontextmanager
async def fetching(
    store: Store, handler: Handler, fake: FakeBudget | None = None
) -> AsyncIterator[tuple[FaultyServer, Fetcher]]:
    limits = Upstream("football", day_limit=75_000, minute_limit=6000, opening_seconds=0)
    async with (
        faulty_server(handler) as server,
        Client(ClientOptions("Hasat", {"x-apisports-key": "k"})) as client,
        Budget(store, limits) as budget,
    ):
        yield (
            server,
            Fetcher(
                store,
                fake or budget,
                client,
                "football",
                server.url,
                classify,
                remaining,
                sleep=no_sleep,
            ),
        )


async def ledger(store: Store) -> list[tuple[Any, ...]]:
    async with store.connection() as conn:
        cursor = await conn.execute(
            "SELECT lane, job, run, endpoint, outcome, day_left FROM budget.request ORDER BY id"
        )
        return await cursor.fetchall()


async def test_a_response_is_recorded_in_the_ledger(store: Store) -> None:
    async def handler(_: ReceivedRequest, reply: Reply) -> None:
        headers = {"x-ratelimit-requests-limit": "75000", "x-ratelimit-requests-remaining": "74999"}
        await reply.json(200, envelope(response=[{"id": 1}]), headers)

    async with fetching(store, handler) as (server, fetcher):
        result = await fetcher.fetch(REQUEST, CONTEXT)
    assert result.verdict.outcome is Outcome.OK
    assert json.loads(result.body) == envelope(response=[{"id": 1}])
    assert server.received[0].path == "/fixtures?ids=1-2"
    assert await ledger(store) == [("daily", "test", 7, "/fixtures", "ok", 74_999)]


async def test_an_exhausted_day_is_not_retried_and_stops_the_next_request(store: Store) -> None:
    async def handler(_: ReceivedRequest, reply: Reply) -> None:
        stale = {"x-ratelimit-requests-limit": "75000", "x-ratelimit-requests-remaining": "7499"}
        await reply.json(200, envelope(DAY), stale)

    async with fetching(store, handler) as (server, fetcher):
        with pytest.raises(OutOfQuotaError, match="used up"):
            await fetcher.fetch(REQUEST, CONTEXT)
        with pytest.raises(OutOfQuotaError):
            await fetcher.fetch(REQUEST, CONTEXT)
        assert len(server.received) == 1


async def test_a_transient_failure_is_retried_and_both_attempts_are_counted(store: Store) -> None:
    async def handler(request: ReceivedRequest, reply: Reply) -> None:
        if request.number == 1:
            reply.reset()
        elif request.number == 2:
            await reply.json(200, envelope({"bug": "This is on our side."}))
        else:
            await reply.json(200, envelope(response=[1]))

    async with fetching(store, handler) as (_, fetcher):
        result = await fetcher.fetch(REQUEST, CONTEXT)
    assert result.verdict.outcome is Outcome.OK
    assert [line[4] for line in await ledger(store)] == ["transient", "transient", "ok"]


async def test_an_outage_does_not_multiply_the_load(store: Store) -> None:
    async def handler(_: ReceivedRequest, reply: Reply) -> None:
        await reply.send(502)

    async with fetching(store, handler, FakeBudget()) as (server, fetcher):
        for _ in range(200):
            with pytest.raises(UnavailableError):
                await fetcher.fetch(REQUEST, CONTEXT)
    assert len(server.received) <= 200 * 1.05 + 10


async def test_a_minute_limit_without_headers_waits_for_the_budget(store: Store) -> None:
    async def handler(request: ReceivedRequest, reply: Reply) -> None:
        limited = request.number == 1
        await reply.json(429 if limited else 200, envelope(MINUTE if limited else (), [1]))

    budget = FakeBudget()
    async with fetching(store, handler, budget) as (_, fetcher):
        result = await fetcher.fetch(REQUEST, CONTEXT)
    assert result.verdict.outcome is Outcome.OK
    assert budget.outcomes == ["minute_limited", "ok"]
    assert budget.requests[0].retry_after is None


async def test_a_rejected_key_is_reported_and_not_retried(store: Store) -> None:
    async def handler(_: ReceivedRequest, reply: Reply) -> None:
        await reply.json(200, envelope({"token": "Error/Missing application key."}))

    async with fetching(store, handler) as (server, fetcher):
        with pytest.raises(SettingsError, match="rejects the API key"):
            await fetcher.fetch(REQUEST, CONTEXT)
        assert len(server.received) == 1


@pytest.mark.parametrize(
    ("errors", "outcome"),
    [
        ({"plan": "Free plans do not have access to this season."}, Outcome.NOT_IN_PLAN),
        ({"page": "The Page field do not exist."}, Outcome.BAD_REQUEST),
    ],
)
async def test_definitive_outcomes_are_returned_without_a_retry(
    store: Store, errors: dict[str, str], outcome: Outcome
) -> None:
    async def handler(_: ReceivedRequest, reply: Reply) -> None:
        await reply.json(200, envelope(errors))

    async with fetching(store, handler) as (server, fetcher):
        assert (await fetcher.fetch(REQUEST, CONTEXT)).verdict.outcome is outcome
        assert len(server.received) == 1


async def test_a_broken_response_is_quarantined(store: Store) -> None:
    async def handler(_: ReceivedRequest, reply: Reply) -> None:
        await reply.send(200, b"<html>", {"content-type": "text/html"})

    async with fetching(store, handler) as (_, fetcher):
        assert (await fetcher.fetch(REQUEST, CONTEXT)).verdict.outcome is Outcome.BROKEN
    async with store.connection() as conn:
        kept = await (await conn.execute("SELECT origin, content FROM raw.set_aside")).fetchall()
    # ReceivedRequest for once more: what is cut off on the way is whole the next time.
    assert kept == [("/fixtures", b"<html>")] * 2


async def test_a_readable_retry_of_a_broken_response_is_returned(store: Store) -> None:
    async def handler(request: ReceivedRequest, reply: Reply) -> None:
        if request.number == 1:
            await reply.send(200, b'{"get": "fix', {"content-type": "application/json"})
        else:
            await reply.json(200, envelope(response=[1]))

    budget = FakeBudget()
    async with fetching(store, handler, budget) as (_, fetcher):
        assert (await fetcher.fetch(REQUEST, CONTEXT)).verdict.outcome is Outcome.OK
    assert budget.outcomes == ["broken", "ok"]


async def test_rising_latency_slows_all_processes(store: Store) -> None:
    async def handler(request: ReceivedRequest, reply: Reply) -> None:
        await asyncio.sleep(0.1 if request.number > 40 else 0.0)
        await reply.json(200, envelope(response=[1]))

    budget = FakeBudget()
    async with fetching(store, handler, budget) as (_, fetcher):
        for _ in range(40):
            await fetcher.fetch(REQUEST, CONTEXT)
        for _ in range(16):
            await fetcher.fetch(REQUEST, CONTEXT)
    assert budget.slowed >= 1


async def test_a_cancelled_request_is_in_the_ledger(store: Store) -> None:
    arrived = asyncio.Event()

    async def handler(_: ReceivedRequest, __: Reply) -> None:
        arrived.set()
        await asyncio.Event().wait()

    async with fetching(store, handler) as (server, fetcher):
        asking = asyncio.create_task(fetcher.fetch(REQUEST, CONTEXT))
        await arrived.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await server.wait_until_abandoned()
        assert [line[4] for line in await ledger(store)] == ["cancelled"]
