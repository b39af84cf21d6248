"""An upstream with one address, over the real budget: every attempt paid for, few retries."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hasat.budget import Budget, Upstream
from hasat.errors import OutOfQuotaError, SettingsError, UnavailableError
from hasat.fetch import Client, ClientOptions, Fetcher, Outcome, Request
from hasat.fetch.purse import Purse
from hasat.sources.football.outcomes import classify, remaining
from hasat.store import Store
from support.faulty import Asked, FaultyServer, Handler, Reply, faulty_server
from support.fetch_toys import ASKER, Ledger

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

QUESTION = Request("/fixtures", timeout=10.0, params={"ids": "1-2"})
DAY = {"requests": "You have reached the request limit for the day."}
MINUTE = {"rateLimit": "Too many requests. Your rate limit is 450 requests per minute."}


def envelope(errors: Any = (), response: Any = ()) -> dict[str, Any]:
    return {"errors": errors or [], "response": list(response)}


async def no_sleep(_: float) -> None:
    await asyncio.sleep(0)


@asynccontextmanager
async def fetching(
    store: Store, handler: Handler, purse: Purse | None = None
) -> AsyncIterator[tuple[FaultyServer, Fetcher]]:
    limits = Upstream("football", day_limit=75_000, minute_limit=6000, opening_seconds=0)
    async with (
        faulty_server(handler) as server,
        Client(ClientOptions("Hasat", {"x-apisports-key": "k"})) as client,
        Budget(store, limits) as budget,
    ):
        given = purse or budget
        yield (
            server,
            Fetcher(
                store, given, client, "football", server.url, classify, remaining, sleep=no_sleep
            ),
        )


async def ledger(store: Store) -> list[tuple[Any, ...]]:
    async with store.connection() as conn:
        cursor = await conn.execute(
            "SELECT lane, job, run, endpoint, outcome, day_left FROM budget.request ORDER BY id"
        )
        return await cursor.fetchall()


async def test_an_answer_and_its_line_in_the_ledger(store: Store) -> None:
    async def handler(_: Asked, reply: Reply) -> None:
        headers = {"x-ratelimit-requests-limit": "75000", "x-ratelimit-requests-remaining": "74999"}
        await reply.json(200, envelope(response=[{"id": 1}]), headers)

    async with fetching(store, handler) as (server, fetcher):
        fetched = await fetcher.fetch(QUESTION, ASKER)
    assert fetched.verdict.outcome is Outcome.OK
    assert json.loads(fetched.body) == envelope(response=[{"id": 1}])
    assert server.asked[0].path == "/fixtures?ids=1-2"
    assert await ledger(store) == [("daily", "test", 7, "/fixtures", "ok", 74_999)]


async def test_the_days_end_is_never_retried_and_stops_the_next_question(store: Store) -> None:
    async def handler(_: Asked, reply: Reply) -> None:
        stale = {"x-ratelimit-requests-limit": "75000", "x-ratelimit-requests-remaining": "7499"}
        await reply.json(200, envelope(DAY), stale)

    async with fetching(store, handler) as (server, fetcher):
        with pytest.raises(OutOfQuotaError, match="used up"):
            await fetcher.fetch(QUESTION, ASKER)
        with pytest.raises(OutOfQuotaError):
            await fetcher.fetch(QUESTION, ASKER)
        assert len(server.asked) == 1


async def test_a_passing_failure_is_asked_again_and_both_are_paid_for(store: Store) -> None:
    async def handler(asked: Asked, reply: Reply) -> None:
        if asked.number == 1:
            reply.reset()
        elif asked.number == 2:
            await reply.json(200, envelope({"bug": "This is on our side."}))
        else:
            await reply.json(200, envelope(response=[1]))

    async with fetching(store, handler) as (_, fetcher):
        fetched = await fetcher.fetch(QUESTION, ASKER)
    assert fetched.verdict.outcome is Outcome.OK
    assert [line[4] for line in await ledger(store)] == ["transient", "transient", "ok"]


async def test_an_outage_does_not_multiply_the_load(store: Store) -> None:
    async def handler(_: Asked, reply: Reply) -> None:
        await reply.send(502)

    async with fetching(store, handler, Ledger()) as (server, fetcher):
        for _ in range(200):
            with pytest.raises(UnavailableError):
                await fetcher.fetch(QUESTION, ASKER)
    assert len(server.asked) <= 200 * 1.05 + 10


async def test_a_minutes_limit_without_headers_waits_for_the_budget(store: Store) -> None:
    async def handler(asked: Asked, reply: Reply) -> None:
        limited = asked.number == 1
        await reply.json(429 if limited else 200, envelope(MINUTE if limited else (), [1]))

    purse = Ledger()
    async with fetching(store, handler, purse) as (_, fetcher):
        fetched = await fetcher.fetch(QUESTION, ASKER)
    assert fetched.verdict.outcome is Outcome.OK
    assert purse.outcomes == ["minute_limited", "ok"]
    assert purse.lines[0].retry_after is None


async def test_a_refused_key_is_a_sentence_and_not_retried(store: Store) -> None:
    async def handler(_: Asked, reply: Reply) -> None:
        await reply.json(200, envelope({"token": "Error/Missing application key."}))

    async with fetching(store, handler) as (server, fetcher):
        with pytest.raises(SettingsError, match="refuses the key"):
            await fetcher.fetch(QUESTION, ASKER)
        assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("errors", "outcome"),
    [
        ({"plan": "Free plans do not have access to this season."}, Outcome.NOT_IN_PLAN),
        ({"page": "The Page field do not exist."}, Outcome.BAD_REQUEST),
    ],
)
async def test_what_asking_again_cannot_change_is_handed_back(
    store: Store, errors: dict[str, str], outcome: Outcome
) -> None:
    async def handler(_: Asked, reply: Reply) -> None:
        await reply.json(200, envelope(errors))

    async with fetching(store, handler) as (server, fetcher):
        assert (await fetcher.fetch(QUESTION, ASKER)).verdict.outcome is outcome
        assert len(server.asked) == 1


async def test_what_cannot_be_read_is_kept(store: Store) -> None:
    async def handler(_: Asked, reply: Reply) -> None:
        await reply.send(200, b"<html>", {"content-type": "text/html"})

    async with fetching(store, handler) as (_, fetcher):
        assert (await fetcher.fetch(QUESTION, ASKER)).verdict.outcome is Outcome.BROKEN
    async with store.connection() as conn:
        kept = await (await conn.execute("SELECT origin, content FROM raw.set_aside")).fetchall()
    # Asked for once more: what is cut off on the way is whole the next time.
    assert kept == [("/fixtures", b"<html>")] * 2


async def test_what_can_be_read_when_it_is_asked_for_again_is_the_answer(store: Store) -> None:
    async def handler(asked: Asked, reply: Reply) -> None:
        if asked.number == 1:
            await reply.send(200, b'{"get": "fix', {"content-type": "application/json"})
        else:
            await reply.json(200, envelope(response=[1]))

    purse = Ledger()
    async with fetching(store, handler, purse) as (_, fetcher):
        assert (await fetcher.fetch(QUESTION, ASKER)).verdict.outcome is Outcome.OK
    assert purse.outcomes == ["broken", "ok"]


async def test_rising_latency_slows_everybody_down(store: Store) -> None:
    async def handler(asked: Asked, reply: Reply) -> None:
        await asyncio.sleep(0.1 if asked.number > 40 else 0.0)
        await reply.json(200, envelope(response=[1]))

    purse = Ledger()
    async with fetching(store, handler, purse) as (_, fetcher):
        for _ in range(40):
            await fetcher.fetch(QUESTION, ASKER)
        for _ in range(16):
            await fetcher.fetch(QUESTION, ASKER)
    assert purse.slowed >= 1


async def test_a_request_that_is_given_up_is_in_the_ledger(store: Store) -> None:
    arrived = asyncio.Event()

    async def handler(_: Asked, __: Reply) -> None:
        arrived.set()
        await asyncio.Event().wait()

    async with fetching(store, handler) as (server, fetcher):
        asking = asyncio.create_task(fetcher.fetch(QUESTION, ASKER))
        await arrived.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await server.until_given_up()
        assert [line[4] for line in await ledger(store)] == ["cancelled"]
