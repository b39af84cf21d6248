"""Watch lists: which changes they collect, and what their channels receive."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hasat.deliver.dispatcher import Dispatcher
from hasat.deliver.outbox import list_deliveries
from hasat.deliver.watchlists.fanout import fan_out
from hasat.deliver.watchlists.lists import (
    LOCAL,
    WatchList,
    WatchListSpec,
    add_keys,
    create_watchlist,
    delete_watchlist,
    get_watchlist,
    remove_keys,
    replace_watchlist,
)
from hasat.feed.columns import Column
from hasat.feed.dataset import Dataset
from hasat.settings import Settings, load_settings
from hasat.store import Store
from hasat.testing.database import ThrowAwayDatabase
from support.feed_toys import make_table, run
from support.receivers import Receiver, answer, receiving

pytestmark = pytest.mark.anyio

TOYS = Dataset(
    "toys", "toy_shop", "toys, for tests", columns=(Column("city"), Column("price", "integer"))
)
DATASETS = {TOYS.name: TOYS}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def settings(database: ThrowAwayDatabase, tmp_path: Path) -> Settings:
    return load_settings(
        environ={
            "HASAT_HOME": str(tmp_path),
            "HASAT_DATABASE_URL": database.url,
            "HASAT_WEBHOOKS_PRIVATE_NETWORKS": "127.0.0.0/8",
        }
    )


@pytest.fixture
async def shop(store: Store) -> Store:
    """A store with two toys."""
    await make_table(store, TOYS)
    await run(store, {"a": {"city": "Ankara"}, "b": {"city": "Bursa"}}, dataset=TOYS)
    return store


async def watch(store: Store, settings: Settings, url: str, **spec: Any) -> WatchList:
    channels = [{"type": "webhook", "url": url, "secret": "whsec_c2VjcmV0"}]
    declared = WatchListSpec.model_validate(
        {"dataset": "toys", "channels": channels, "mode": "immediate", **spec}
    )
    return await create_watchlist(store, settings, TOYS, "mine", LOCAL, declared)


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110 - others make it true
            await asyncio.sleep(0.02)


async def deliver_all(store: Store, settings: Settings) -> None:
    """Deliver until nothing is collected and nothing waits."""

    async def done() -> bool:
        found = await get_watchlist(store, "mine", LOCAL)
        return not (found.lag or found.collected or found.waiting)

    dispatcher = Dispatcher(store, settings, datasets=[TOYS], first_pause_seconds=0.01)
    async with dispatcher.running():
        await eventually(done)


def changes(receiver: Receiver) -> list[dict[str, Any]]:
    return [change for got in receiver.received for change in got.json.get("changes", ())]


async def test_a_list_of_keys_gets_its_changes_with_what_was_before(
    shop: Store, settings: Settings, receiver: Receiver
) -> None:
    await watch(shop, settings, receiver.url, keys=["a", "c"])
    await run(shop, {"a": {"city": "İzmir"}, "b": {"city": "Adana"}, "c": {"city": "Çorum"}})
    await run(shop, {"b": {"city": "Adana"}, "c": {"city": "Çorum"}})
    await deliver_all(shop, settings)
    assert [one.json["type"] for one in receiver.received] == ["watchlist.changed"] * len(
        receiver.received
    )
    found = changes(receiver)
    assert [(one["key"], one["changeType"]) for one in found] == [
        ("a", "modified"),
        ("c", "added"),
        ("a", "removed"),
    ]
    first = found[0]
    assert (first["before"], first["body"]) == ({"city": "Ankara"}, {"city": "İzmir"})
    assert first["changedFields"] == ["city"]
    assert receiver.received[0].json["watchlist"] == "mine"
    assert receiver.received[0].json["dataset"] == "toys"


async def test_a_filter_matches_before_and_after_a_change(
    shop: Store, settings: Settings, receiver: Receiver
) -> None:
    await watch(shop, settings, receiver.url, filter={"city": "Ankara", "price.gte": 5})
    states: list[dict[str, Any]] = [
        {"a": {"city": "Ankara", "price": 7}, "b": {"city": "Bursa", "price": 9}},
        {"a": {"city": "Bursa", "price": 7}, "b": {"city": "Bursa", "price": 9}},
        {"a": {"city": "Bursa", "price": 8}, "b": {"city": "Ankara", "price": 1}},
        {"a": {"city": "Bursa", "price": 8}},
    ]
    for state in states:
        await run(shop, state, dataset=TOYS)
    await deliver_all(shop, settings)
    # It came, it left; what stays outside, or fulfils one condition alone, is none of the list's.
    assert [(one["key"], one["body"]["city"]) for one in changes(receiver)] == [
        ("a", "Ankara"),
        ("a", "Bursa"),
    ]


async def test_keys_count_from_when_they_were_added_until_they_are_removed(
    shop: Store, settings: Settings, receiver: Receiver
) -> None:
    found = await watch(shop, settings, receiver.url, keys=["a"])
    await run(shop, {"a": {"v": 1}, "b": {"v": 1}})
    assert await add_keys(shop, TOYS, found, ["b", "a"]) == 1
    await run(shop, {"a": {"v": 2}, "b": {"v": 2}})
    await deliver_all(shop, settings)
    assert await remove_keys(shop, found, ["a", "x"]) == 1
    await run(shop, {"a": {"v": 3}, "b": {"v": 3}})
    await deliver_all(shop, settings)
    assert [(one["key"], one["body"]["v"]) for one in changes(receiver)] == [
        ("a", 1),
        ("a", 2),
        ("b", 2),
        ("b", 3),
    ]


async def test_a_digest_is_one_message_when_it_is_due(
    shop: Store, settings: Settings, receiver: Receiver
) -> None:
    await watch(shop, settings, receiver.url, keys=["a"], mode="daily")
    for v in range(3):
        await run(shop, {"a": {"v": v}})
        while await fan_out(shop, DATASETS, "Europe/Istanbul"):
            pass
    found = await get_watchlist(shop, "mine", LOCAL)
    assert (found.collected, found.waiting) == (3, 0)
    assert found.digest_at is not None
    assert found.digest_at > await shop.now()
    async with shop.connection() as conn:
        await conn.execute("UPDATE deliver.watchlist SET digest_at = now() - interval '1 s'")
    await deliver_all(shop, settings)
    assert [len(one.json["changes"]) for one in receiver.received] == [3]
    found = await get_watchlist(shop, "mine", LOCAL)
    assert found.digest_at is not None
    assert found.digest_at > await shop.now()


async def test_many_changes_are_split_into_messages_in_order(
    shop: Store, settings: Settings, receiver: Receiver
) -> None:
    await watch(shop, settings, receiver.url, filter={"key.prefix": "k"})
    big = {"text": "x" * 30_000}
    state: dict[str, Any] = {f"k{n:04}": big if n % 10 == 0 else {"n": n} for n in range(450)}
    await run(shop, state)
    await deliver_all(shop, settings)
    assert [one["key"] for one in changes(receiver)] == sorted(state)
    assert max(len(one.json["changes"]) for one in receiver.received) <= 100
    assert max(len(one.body) for one in receiver.received) < 600_000
    assert len({one.id for one in receiver.received}) == len(receiver.received)


async def test_a_list_that_lags_beyond_the_retention_says_so(
    shop: Store, settings: Settings, receiver: Receiver
) -> None:
    await watch(shop, settings, receiver.url, keys=["a"])
    await run(shop, {"a": {"v": 1}})
    async with shop.connection() as conn:
        await conn.execute("UPDATE feed.head SET floor = seq")
        await conn.execute("DELETE FROM feed.change")
    await run(shop, {"a": {"v": 2}})
    await deliver_all(shop, settings)
    lost, later = [one.json for one in receiver.received]
    assert (lost["type"], lost["gap"]["reason"]) == ("watchlist.gap", "expired")
    assert (later["type"], later["changes"][0]["body"]) == ("watchlist.changed", {"v": 2})
    found = await get_watchlist(shop, "mine", LOCAL)
    assert found.gap is not None
    assert found.gap["reason"] == "expired"


async def test_a_deleted_list_sends_nothing_more_and_a_changed_one_sends_to_its_new_address(
    shop: Store, settings: Settings, receiver: Receiver
) -> None:
    receiver.behave = lambda *_: answer(503)
    found = await watch(shop, settings, receiver.url, keys=["a"])
    await run(shop, {"a": {"v": 1}})
    dispatcher = Dispatcher(shop, settings, datasets=[TOYS], first_pause_seconds=0.01)

    async def tried() -> bool:
        return len(receiver.received) > 1

    with receiving() as other:
        async with dispatcher.running():
            await eventually(tried)
            [channel] = found.channels
            spec = WatchListSpec.model_validate(
                {
                    "dataset": "toys",
                    "keys": ["a"],
                    "channels": [{"id": channel.id, "type": "webhook", "url": other.url}],
                }
            )
            changed = await replace_watchlist(shop, settings, TOYS, found, spec)

            async def moved() -> bool:
                return bool(other.received)

            await eventually(moved)
        assert other.received[0].id == receiver.received[0].id
        # The secret was left out, so it stays.
        assert "webhook-signature" in other.received[0].headers
        await run(shop, {"a": {"v": 2}})
        while await fan_out(shop, DATASETS, "UTC"):
            pass
        await delete_watchlist(shop, changed)
        [newest, oldest] = await list_deliveries(shop)
        assert (newest.state, oldest.state) == ("dead", "delivered")
        assert newest.last_error == "The watch list was deleted."
        await run(shop, {"a": {"v": 3}})
        assert not await fan_out(shop, DATASETS, "UTC")


async def test_lists_collect_what_a_simple_model_collects(
    shop: Store, settings: Settings, receiver: Receiver
) -> None:
    """Random changes, keys and positions; a loop over the changes says what is expected."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    found = await watch(shop, settings, receiver.url, keys=["k0"])
    watched, expected, state = {"k0"}, [], {}
    for step in range(30):
        before = dict(state)
        for _ in range(dice.randrange(6)):
            key = f"k{dice.randrange(8)}"
            if dice.random() < 0.3:
                state.pop(key, None)
            else:
                state[key] = {"v": step}
        await run(shop, state)
        changed = sorted(key for key in before | state if before.get(key) != state.get(key))
        expected += [(key, state.get(key)) for key in changed if key in watched]
        key = f"k{dice.randrange(8)}"
        match dice.randrange(3):
            case 0:
                watched.add(key)
                await add_keys(shop, TOYS, found, [key])
            case 1:
                while await fan_out(shop, DATASETS, "UTC"):
                    pass
                watched.discard(key)
                await remove_keys(shop, found, [key])
            case _:
                await fan_out(shop, DATASETS, "UTC")
    await deliver_all(shop, settings)
    assert [(one["key"], one["body"]) for one in changes(receiver)] == expected
