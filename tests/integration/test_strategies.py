"""Strategies against a toy upstream: nothing is lost, or removed by mistake, or without a grant."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from hasat.errors import BrokenAnswerError, NothingToDoError
from hasat.feed.guard import Limits
from hasat.feed.holds import get_hold, list_holds
from hasat.feed.raw import MAX_INLINE_BYTES, expire_responses
from hasat.fetch import Outcome as RequestOutcome
from hasat.fetch.outcomes import Response, Verdict, classify_status
from hasat.jobs import Catalogue, Outcome, Run, run_in_foreground
from hasat.jobs.approvals import apply_hold
from hasat.jobs.platform_jobs import rebuild_job
from hasat.settings import Settings
from hasat.store import Store
from hasat.strategies import (
    PerKey,
    UnreadableRecordError,
    WholeList,
    add_keys,
    read_keys,
    record_of,
    remove_keys,
)
from hasat.testing.database import ThrowAwayDatabase
from hasat.testing.jobs import perform
from support.faulty_server import FaultyServer, Handler, ReceivedRequest, Reply, faulty_server
from support.feed_toys import TOYS, head_of, make_table, mirror, state_digest
from support.processes import eventually
from support.strategy_victim import UPSTREAM, strategy_of

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

TESTS = Path(__file__).parents[1]
WIDE = Limits(removed=100, modified=100, added=1000, smaller=100, larger=1000)


@pytest.fixture(autouse=True)
async def toys(store: Store) -> None:
    await make_table(store)


def elements(file: Path) -> Any:
    return json.loads(file.read_bytes())


def toy(element: Any) -> Any:
    if "price" not in element:
        raise UnreadableRecordError("no price", element.get("key"))
    return record_of(element["key"], element)


def price_list(*prices: int) -> list[dict[str, Any]]:
    return [{"key": f"toy{n}", "price": price} for n, price in enumerate(prices)]


def by_key(content: list[dict[str, Any]]) -> dict[str, Any]:
    return {one["key"]: one for one in content}


class Shop:
    """A server with a list of toys and a page for each."""

    def __init__(self, content: Any = ()) -> None:
        self.content = content
        self.fault: Callable[[ReceivedRequest, Reply], Any] | None = None
        self.broken: set[str] = set()

    async def __call__(self, request: ReceivedRequest, reply: Reply) -> None:
        if self.fault and await self.fault(request, reply):
            return
        if request.path == "/list":
            body = self.content if isinstance(self.content, bytes) else None
            await reply.send(200, body or json.dumps(self.content).encode())
            return
        key = request.path.removeprefix("/toys/")
        found = by_key(self.content).get(key)
        if key in self.broken:
            await reply.send(500)
        elif found is None:
            await reply.send(404)
        else:
            await reply.json(200, found)


@asynccontextmanager
async def shop_open(handler: Handler) -> AsyncIterator[FaultyServer]:
    async with faulty_server(handler) as server:
        yield server


def whole_list(server: FaultyServer, **options: Any) -> WholeList:
    values: dict[str, Any] = {"upstream": UPSTREAM, "pauses": (0.0, 0.0), "record": toy}
    return WholeList(lambda _: f"{server.url}/list", elements, **(values | options))


def per_key(server: FaultyServer, **options: Any) -> PerKey:
    return PerKey(
        server.url,
        "/toys/{key}",
        lambda _, body: json.loads(body),
        **({"upstream": UPSTREAM} | options),
    )


async def value(store: Store, query: str) -> Any:
    async with store.connection() as conn:
        row = await (await conn.execute(query)).fetchone()
    return row[0] if row else None


async def sent(store: Store) -> int:
    return int(await value(store, "SELECT count(*) FROM budget.request"))


class Job:
    """A strategy that is run again and again."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        strategy: WholeList | PerKey,
        guard: Limits = WIDE,
    ) -> None:
        self.strategy = strategy
        self._dataset = replace(TOYS, guard=guard)
        self._store = store
        self._settings = settings
        self._runs = 0

    @property
    def _catalogue(self) -> Catalogue:
        rebuilds = {TOYS.name: (self._dataset, self.strategy.rebuild)}
        return Catalogue.of(
            [self.strategy.job(self._dataset), rebuild_job(rebuilds)], self._settings
        )

    async def run(self) -> Outcome:
        self._runs += 1
        job = self.strategy.job(self._dataset)
        return await perform(job, self._store, self._settings, run_id=self._runs)

    async def recorded(self, name: str | None = None, **params: Any) -> Run:
        name = name or self.strategy.job(self._dataset).name
        return await run_in_foreground(self._catalogue, self._store, self._settings, name, params)

    async def approve(self, hold: int) -> Run:
        return await apply_hold(self._store, self._settings, self._catalogue, hold)

    async def rebuild(self) -> Any:
        done = await self.strategy.rebuild(self._store, self._settings, self._dataset)
        return done.datasets[0].how


async def test_a_list_becomes_the_dataset(store: Store, settings: Settings) -> None:
    shop = Shop(price_list(*range(20)))
    async with shop_open(shop) as server:
        job = Job(store, settings, whole_list(server))
        assert (await job.run()).rows_changed == 20
        assert await mirror(store) == by_key(shop.content)
        assert (await job.run()).kind == "nothing"
        shop.content = price_list(9, *range(1, 19))
        outcome = await job.run()
        assert (outcome.detail["modified"], outcome.detail["removed"]) == (1, 1)
        assert await mirror(store) == by_key(shop.content)
        assert (await head_of(store))["digest"] == state_digest(await mirror(store))
        assert await sent(store) == len(server.received) == 3
    assert await value(store, "SELECT count(*) FROM raw.response WHERE applied_at IS NOT NULL") == 2


async def test_faults_are_retried_within_the_budget(store: Store, settings: Settings) -> None:
    async def fault(request: ReceivedRequest, reply: Reply) -> bool:
        if request.number == 1:
            await reply.send(500)
        if request.number == 2:
            await reply.send(429, headers={"retry-after": "0"})
        return request.number <= 2

    shop = Shop(price_list(1, 2))
    shop.fault = fault
    async with shop_open(shop) as server:
        assert (await Job(store, settings, whole_list(server)).run()).kind == "done"
        assert await sent(store) == len(server.received) == 3


async def test_half_a_list_is_held_and_applied_as_it_was_when_approved(
    store: Store, settings: Settings
) -> None:
    shop = Shop(price_list(*range(20)))
    async with shop_open(shop) as server:
        job = Job(store, settings, whole_list(server), Limits())
        await job.recorded()
        before = await head_of(store), await mirror(store)
        complete, shop.content = shop.content, shop.content[:10]
        half = by_key(shop.content)
        held = await job.recorded()
        assert held.outcome == "held"
        assert "removed 50.00 %" in str(held.message)
        assert (await head_of(store), await mirror(store)) == before
        # A rebuild never publishes what the guard held.
        assert await job.rebuild() == "intact"
        [hold] = await list_holds(store, state="waiting")
        assert (hold.id, hold.source, hold.datasets) == (held.id, "toy_shop", ["toys"])
        shop.content = complete
        assert (await job.recorded()).outcome == "nothing"
        requests = len(server.received)
        assert (await job.approve(hold.id)).outcome == "done"
        assert len(server.received) == requests, "an approval applies what the guard has seen"
        assert await mirror(store) == half
        assert (await get_hold(store, hold.id)).state == "approved"
        assert await job.rebuild() == "intact"
        assert (await job.recorded()).outcome == "held", "the list is twice as long again"


async def test_many_unreadable_records_are_held(store: Store, settings: Settings) -> None:
    shop = Shop(price_list(*range(20)))
    async with shop_open(shop) as server:
        job = Job(store, settings, whole_list(server), Limits(unreadable=10))
        await job.run()
        shop.content = [
            *price_list(*range(17)),
            {"key": "toy17"},
            {"key": "toy18"},
            {"key": "toy19"},
        ]
        held = await job.recorded()
        assert "unreadable 15.00 % (limit 10 %)" in str(held.message)
        assert await value(store, "SELECT count(*) FROM raw.set_aside") == 0


async def test_a_bad_record_is_quarantined_and_not_removed(
    store: Store, settings: Settings
) -> None:
    shop = Shop(price_list(*range(20)))
    async with shop_open(shop) as server:
        job = Job(store, settings, whole_list(server))
        await job.run()
        shop.content = [{"key": "toy0"}, *price_list(*range(19))[1:]]
        outcome = await job.run()
        assert (outcome.detail["unreadable"], outcome.detail["removed"]) == (1, 1)
        assert (await mirror(store))["toy0"] == {"key": "toy0", "price": 0}
        assert await value(store, "SELECT key FROM raw.set_aside") == "toy0"
        # Without a key it is unknown which record it is: none is removed.
        shop.content = [{"name": "?"}, *price_list(*range(18))[1:]]
        outcome = await job.run()
        assert (outcome.detail["unreadable"], outcome.detail["removed"]) == (1, 0)
        expected = await mirror(store)
        assert len(expected) == 19
        assert await job.rebuild() == "intact"
        async with store.connection() as conn:
            await conn.execute("DELETE FROM core.toys WHERE key IN ('toy0', 'toy1')")
        assert await job.rebuild() == "repaired"
        assert await mirror(store) == expected


@pytest.mark.parametrize("body", [{"x": "\0"}, {"x": "\ud800"}, {"x": float("nan")}])
async def test_what_postgresql_cannot_store_does_not_stop_the_run(
    store: Store, settings: Settings, body: dict[str, Any]
) -> None:
    def parse(_: Path) -> Any:
        return [("bad", body), *((f"toy{n}", {"price": n}) for n in range(20))]

    async with shop_open(Shop(b"-")) as server:
        strategy = WholeList(f"{server.url}/list", parse, upstream=UPSTREAM)
        outcome = await Job(store, settings, strategy).run()
    assert outcome.detail["unreadable"] == 1
    assert len(await mirror(store)) == 20


async def test_an_unreadable_file_fails_the_run_and_is_fetched_again(
    store: Store, settings: Settings
) -> None:
    async def tagged(request: ReceivedRequest, reply: Reply) -> None:
        # The tag stays the same although the content does not.
        if request.headers.get("if-none-match") == '"same"':
            await reply.send(304)
        else:
            content = b"<html>" if request.number == 1 else json.dumps(price_list(1, 2)).encode()
            await reply.send(200, content, {"etag": '"same"'})

    async with shop_open(tagged) as server:
        job = Job(store, settings, whole_list(server))
        with pytest.raises(BrokenAnswerError, match="The list of toys cannot be read"):
            await job.run()
        assert await mirror(store) == {}
        assert (await job.run()).kind == "done"
        assert (await job.run()).kind == "nothing"
        assert [one.headers.get("if-none-match") for one in server.received] == [
            None,
            None,
            '"same"',
        ]


async def test_a_large_list_is_a_file_that_expires(store: Store, settings: Settings) -> None:
    filler = "x" * (MAX_INLINE_BYTES // 10)
    shop = Shop([{"key": f"toy{n}", "price": n, "filler": filler} for n in range(11)])
    async with shop_open(shop) as server:
        job = Job(store, settings, whole_list(server))
        await job.run()
        shop.content[0]["price"] = 5
        await job.run()
        files = list((settings.home / "raw" / "toy_shop").iterdir())
        assert len(files) == 2
        async with store.connection() as conn:
            await conn.execute(
                "UPDATE raw.response SET last_received_at = now() - interval '31 days'"
            )
        assert await expire_responses(store, settings, "toys", 30) == 1
        assert len(list((settings.home / "raw" / "toy_shop").iterdir())) == 1
        async with store.connection() as conn:
            await conn.execute("DELETE FROM core.toys WHERE key = 'toy3'")
        assert await job.rebuild() == "repaired"
        assert await mirror(store) == by_key(shop.content)


async def test_a_rebuild_needs_responses(store: Store, settings: Settings) -> None:
    async with shop_open(Shop()) as server:
        for strategy in (whole_list(server), per_key(server)):
            with pytest.raises(NothingToDoError, match="no stored responses of toys"):
                await Job(store, settings, strategy).rebuild()


@pytest.mark.parametrize("damaged", [False, True], ids=["changed", "new_epoch"])
async def test_a_rebuild_that_loses_records_is_held_and_approved(
    store: Store, settings: Settings, damaged: bool
) -> None:
    shop = Shop(price_list(*range(20)))
    async with shop_open(shop) as server:
        job = Job(store, settings, whole_list(server), Limits())
        await job.run()
        if damaged:
            async with store.connection() as conn:
                await conn.execute("DELETE FROM core.toys WHERE key = 'toy19'")
        before = await head_of(store), await mirror(store)
        job.strategy = whole_list(server, record=lambda one: toy(one if one["price"] < 5 else {}))
        held = await job.recorded("rebuild_dataset", dataset="toys")
        assert held.outcome == "held"
        assert "toys: removed 75.00 %" in (held.message or "")
        assert (await head_of(store), await mirror(store)) == before
        # The same finding again is the same hold.
        again = await job.recorded("rebuild_dataset", dataset="toys")
        [hold] = await list_holds(store)
        assert hold.runs == [held.id, again.id]
        # Another finding is not what was approved.
        narrow = whole_list(server, record=lambda one: toy(one if one["price"] < 3 else {}))
        wanted, job.strategy = job.strategy, narrow
        assert (await job.approve(held.id)).outcome == "held"
        assert (await head_of(store), await mirror(store)) == before
        job.strategy = wanted
        retried = await job.recorded("rebuild_dataset", dataset="toys")
        applied = await job.approve(retried.id)
        assert applied.outcome == "done"
        assert applied.detail["datasets"][0]["how"] == ("new_epoch" if damaged else "changed")
        assert await mirror(store) == by_key(shop.content[:5])
        assert (await head_of(store))["digest"] == state_digest(await mirror(store))
        assert [one.state for one in await list_holds(store)].count("waiting") == 0


async def test_a_list_of_another_size_is_held(store: Store, settings: Settings) -> None:
    guard = Limits(removed=100, modified=100, added=1000)
    names = [{"key": f"toy{n}", "price": n, "name": "x" * 50} for n in range(20)]
    shop = Shop(names)
    async with shop_open(shop) as server:
        job = Job(store, settings, whole_list(server), guard)
        await job.recorded()
        shop.content = price_list(*range(20))
        smaller = await job.recorded()
        assert "fewer bytes" in str(smaller.message)
        assert (await job.approve(smaller.id)).outcome == "done"
        shop.content = names
        assert "more bytes" in str((await job.recorded()).message)


async def test_keys_are_requested_oldest_first_within_the_budget(
    store: Store, settings: Settings
) -> None:
    shop = Shop(price_list(*range(7)))
    async with shop_open(shop) as server:
        strategy = per_key(
            server, upstream=replace(UPSTREAM, day_limit=3), max_age=timedelta(0), max_requests=7
        )
        job = Job(store, settings, strategy)
        await add_keys(store, TOYS, [f"toy{n}" for n in range(7)])
        outcome = await job.run()
        assert (outcome.kind, outcome.rows_changed) == ("out_of_quota", 3)
        assert sorted(await mirror(store)) == ["toy0", "toy1", "toy2"]
        job.strategy = replace(strategy, upstream=replace(UPSTREAM, day_limit=6))
        assert (await job.run()).kind == "out_of_quota"
        job.strategy = replace(strategy, upstream=replace(UPSTREAM, day_limit=8))
        await job.run()
        paths = [int(one.path.removeprefix("/toys/toy")) for one in server.received]
        assert paths == [0, 1, 2, 3, 4, 5, 6, 0]
        assert await sent(store) == 8
    assert await mirror(store) == by_key(shop.content)


@pytest.mark.parametrize("key", [".", "..", "a/../b", "ğ ?%#&/"])
async def test_a_key_is_one_part_of_the_path(key: str, store: Store, settings: Settings) -> None:
    async with shop_open(Shop(price_list(1))) as server:
        job = Job(store, settings, per_key(server, keys=lambda _: [key]))
        assert (await job.run()).detail == {"empty": 1}
        [request] = server.received
        assert unquote(request.path) == f"/toys/{key}"


async def test_fresh_keys_are_not_requested_again(store: Store, settings: Settings) -> None:
    shop = Shop(price_list(1, 2))
    async with shop_open(shop) as server:
        job = Job(store, settings, per_key(server, keys=lambda _: ["toy0", "toy1"]))
        assert (await job.run()).detail == {"ok": 2}
        assert (await job.run()).kind == "nothing"
        assert len(server.received) == 2
        assert await remove_keys(store, TOYS, ["toy1", "toy9"]) == 1
        assert [one.key for one in await read_keys(store, TOYS)] == ["toy0"]
    assert len(await mirror(store)) == 2


async def test_an_exhausted_day_ends_the_run_and_the_next_one_continues(
    store: Store, settings: Settings
) -> None:
    def classify(response: Response) -> Verdict:
        if response.status == 429:
            return Verdict(RequestOutcome.DAY_EXHAUSTED, "the day is over")
        return classify_status(response)

    async def fault(request: ReceivedRequest, reply: Reply) -> bool:
        if request.number == 2:
            await reply.send(429)
        return request.number == 2

    shop = Shop(price_list(1, 2, 3))
    shop.fault = fault
    async with shop_open(shop) as server:
        job = Job(store, settings, per_key(server, classify=classify))
        await add_keys(store, TOYS, ["toy0", "toy1", "toy2"])
        assert (await job.run()).kind == "out_of_quota"
        assert (await job.run()).kind == "out_of_quota"
        assert len(server.received) == 2
        async with store.connection() as conn:
            await conn.execute("UPDATE budget.day SET exhausted_at = NULL")
        assert (await job.run()).detail == {"ok": 2}
        assert await mirror(store) == by_key(shop.content)


async def test_a_key_that_ceased_to_exist_is_removed(store: Store, settings: Settings) -> None:
    shop = Shop(price_list(*range(4)))
    async with shop_open(shop) as server:
        job = Job(store, settings, per_key(server, max_age=timedelta(0)))
        await add_keys(store, TOYS, [f"toy{n}" for n in range(5)])
        await job.run()
        shop.content = shop.content[1:]
        outcome = await job.run()
        assert outcome.detail == {"ok": 3, "empty": 2}
        assert await mirror(store) == by_key(shop.content)
        assert await job.rebuild() == "intact"
        # It may come back.
        shop.content = price_list(*range(4))
        await job.run()
        assert await mirror(store) == by_key(shop.content)


async def test_many_missing_records_are_held(store: Store, settings: Settings) -> None:
    shop = Shop(price_list(*range(10)))
    async with shop_open(shop) as server:
        strategy = per_key(server, max_age=timedelta(0))
        job = Job(store, settings, strategy, Limits())
        await add_keys(store, TOYS, [f"toy{n}" for n in range(10)])
        await job.run()
        complete, shop.content = shop.content, [{"key": "toy0", "price": 77}]
        held = await job.recorded()
        assert (held.outcome, held.detail["outcomes"]) == ("held", {"ok": 1, "empty": 9})
        assert len(await mirror(store)) == 10
        assert await job.rebuild() == "intact"
        requests = len(server.received)
        assert (await job.approve(held.id)).rows_changed == 9
        assert await mirror(store) == by_key(shop.content)
        assert len(server.received) == requests
        assert (await get_hold(store, held.id)).state == "approved"
        shop.content = complete
        assert (await job.recorded()).outcome == "done"
        assert await mirror(store) == by_key(complete)


async def test_records_that_came_back_are_not_removed_by_an_approval(
    store: Store, settings: Settings
) -> None:
    shop = Shop(price_list(*range(10)))
    async with shop_open(shop) as server:
        strategy = per_key(server, max_age=timedelta(0))
        job = Job(store, settings, strategy, Limits())
        await add_keys(store, TOYS, [f"toy{n}" for n in range(10)])
        await job.run()
        complete, shop.content = shop.content, []
        held = await job.recorded()
        shop.content = complete
        await job.recorded()
        shop.content = price_list(*range(7))
        assert (await job.recorded()).outcome == "held"
        [newest, old] = await list_holds(store)
        assert (old.id, old.state, newest.state) == (held.id, "superseded", "waiting")
        # One of them is found again, and another one is missing, which is not part of the hold.
        async with store.connection() as conn:
            await conn.execute("UPDATE feed.watched_key SET outcome = 'ok' WHERE key = 'toy7'")
            await conn.execute("UPDATE feed.watched_key SET outcome = 'empty' WHERE key = 'toy0'")
        assert (await job.approve(newest.id)).rows_changed == 2
        assert await mirror(store) == by_key(complete[:8])
        assert (await get_hold(store, newest.id)).state == "approved"


async def test_a_failing_or_unreadable_key_does_not_block_the_others(
    store: Store, settings: Settings
) -> None:
    def parse(key: str, body: bytes) -> Any:
        content = json.loads(body)
        if content["price"] == 1:
            raise ValueError("no such price")
        return content

    shop = Shop(price_list(*range(4)))
    shop.broken = {"toy0"}
    async with shop_open(shop) as server:
        strategy = replace(per_key(server), parse=parse)
        await add_keys(store, TOYS, [f"toy{n}" for n in range(4)])
        outcome = await Job(store, settings, strategy).run()
        assert outcome.detail == {"transient": 1, "broken": 1, "ok": 2}
        assert sorted(await mirror(store)) == ["toy2", "toy3"]
        assert await sent(store) == len(server.received)
    keys = {one.key: one.outcome for one in await read_keys(store, TOYS)}
    assert keys == {"toy0": "transient", "toy1": "broken", "toy2": "ok", "toy3": "ok"}
    assert await value(store, "SELECT key FROM raw.set_aside") == "toy1"


@pytest.mark.parametrize("form", ["list", "keys"])
async def test_a_run_that_is_killed_is_continued(
    store: Store, settings: Settings, database: ThrowAwayDatabase, form: str
) -> None:
    stuck = asyncio.Event()
    content = json.dumps(price_list(*range(20))).encode()

    async def handler(request: ReceivedRequest, reply: Reply) -> None:
        key = request.path.removeprefix("/toys/")
        if request.path != "/list" and request.number != 3:
            await reply.json(200, by_key(json.loads(content))[key])
        elif request.headers.get("range"):
            start = int(request.headers["range"].removeprefix("bytes=").removesuffix("-"))
            span = f"bytes {start}-{len(content) - 1}/{len(content)}"
            await reply.send(206, content[start:], {"etag": '"x"', "content-range": span})
        else:
            await reply.head(200, {"content-length": str(len(content)), "etag": '"x"'})
            await reply.write(content[:100])
            stuck.set()
            await asyncio.Event().wait()

    async with shop_open(handler) as server:
        job = Job(store, settings, strategy_of(form, server.url))
        await add_keys(store, TOYS, [f"toy{n}" for n in range(4)])
        words = [database.url, str(settings.home), form, server.url]
        victim = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "support.strategy_victim", *words, cwd=TESTS
        )
        async with asyncio.timeout(60):
            await stuck.wait()
        if form == "list":
            part = settings.home / "toy_shop" / "lists" / "toys.part"
            await asyncio.to_thread(
                eventually, lambda: part.exists() and part.stat().st_size == 100, "100 bytes arrive"
            )
        victim.kill()
        await victim.wait()
        assert len(await mirror(store)) == (0 if form == "list" else 2)
        assert (await job.run()).kind == "done"
        if form == "list":
            assert server.received[1].headers["range"] == "bytes=100-"
            assert len(await mirror(store)) == 20
        else:
            paths = [one.path for one in server.received]
            assert paths == [f"/toys/toy{n}" for n in (0, 1, 2, 2, 3)]
        assert await sent(store) == len(server.received)
