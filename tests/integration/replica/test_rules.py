"""K1 to K7, the rules for consumers, kept by followers of both protocols."""

import asyncio
import random
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hasat.clock import local_time, parse_local_time
from hasat.feed.encoding import canonical
from hasat.feed.reconcile import Reconcile, Record
from hasat.settings import Settings
from hasat.store import Store
from support.feed_toys import TOYS, State, state_digest
from support.followers import FOLLOWERS, Follower, TimeFollower
from support.replica_shop import Shop, open_shop

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]


@pytest.fixture
async def shop(store: Store, settings: Settings) -> AsyncIterator[Shop]:
    async with open_shop(store, settings) as shop:
        yield shop


@pytest.fixture(params=sorted(FOLLOWERS))
def follower(request: pytest.FixtureRequest, shop: Shop, tmp_path: Path) -> Any:
    follower = FOLLOWERS[request.param](shop.address, "toys", tmp_path / "follower.json")
    yield follower
    follower.client.close()


def toys(number: int, **extra: Any) -> State:
    return {f"toy {n}": {"n": n, **extra} for n in range(number)}


async def _poll(follower: Follower) -> int:
    return await asyncio.to_thread(follower.poll)


def _equal(follower: Follower, shop: Shop) -> bool:
    assert follower.records == shop.truth
    assert follower.digest == state_digest(shop.truth).hex()
    assert follower.complete
    return True


async def test_k1_begin_with_the_archive(shop: Shop, follower: Follower) -> None:
    await shop.sell(toys(20))
    await shop.sell(toys(22), archive=False)
    # Without it there is only what changed: the first filling is no change.
    changes = await asyncio.to_thread(lambda: follower.client.get("changes").json()["changes"])
    assert len(changes) == 2
    # With it there is everything, also what was committed after the archive was written.
    assert await _poll(follower) == 2
    assert _equal(follower, shop)


async def test_k2_the_place_that_was_handed_out_is_where_to_go_on(
    shop: Shop, follower: Follower
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    truth = toys(15)
    await shop.sell(truth)
    for _ in range(8):
        await _poll(follower)
        truth[f"toy {dice.randrange(20)}"] = {"n": dice.random()}
        truth.pop(f"toy {dice.randrange(20)}", None)
        await shop.sell(truth, archive=False)
    await _poll(follower)
    assert _equal(follower, shop)


async def test_k3_an_empty_answer_is_normal_and_moves_nothing_out_of_sight(
    shop: Shop, follower: Follower
) -> None:
    await shop.sell(toys(5))
    await _poll(follower)
    for _ in range(3):
        # A run that found nothing is a run too.
        await shop.sell(toys(5), archive=False)
        assert await _poll(follower) == 0
    await shop.sell(toys(6), archive=False)
    assert await _poll(follower) == 1
    assert _equal(follower, shop)


async def test_k4_gone_means_begin_again(shop: Shop, follower: Follower) -> None:
    await shop.sell(toys(5))
    await _poll(follower)
    for number in (7, 6):
        await shop.time_passes(days=10)
        if isinstance(follower, TimeFollower) and follower.place:
            follower.place = local_time(parse_local_time(follower.place) - timedelta(days=10))
        await shop.sell(toys(number), archive=False, retention_days=1)
    # Kept longer from now on: what is deleted stays deleted, and is not passed over in silence.
    await shop.sell(toys(8), retention_days=365)
    assert await _poll(follower) == 0
    assert _equal(follower, shop)
    assert len(follower.seen) == 1


async def test_k5_any_interval_will_do_also_in_the_middle_of_a_run(
    shop: Shop, follower: Follower
) -> None:
    await shop.sell(toys(10))
    await _poll(follower)
    shop.truth = toys(12, colour="red")
    async with Reconcile.begin(shop.store, [TOYS]) as work:
        await work.stage(TOYS, [Record(key, canonical(body)) for key, body in shop.truth.items()])
        assert await _poll(follower) == 0
        await work.diff(TOYS)
        assert await _poll(follower) == 0
        await work.write(run=None, retention_days=30)
        for _ in range(5):
            assert await _poll(follower) == 0
    assert await _poll(follower) == 12
    assert _equal(follower, shop)


async def test_k6_all_pages_in_any_size_also_while_more_is_committed(
    shop: Shop, follower: Follower
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    truth = toys(10)
    await shop.sell(truth)
    await _poll(follower)
    follower.page_size = dice.randrange(1, 9)
    polling = None
    for _ in range(12):
        for _ in range(dice.randrange(20)):
            truth[f"toy {dice.randrange(60)}"] = {"n": dice.random()}
        for _ in range(dice.randrange(5)):
            truth.pop(f"toy {dice.randrange(60)}", None)
        if polling is None or polling.done():
            polling = asyncio.create_task(_poll(follower))
        await shop.sell(truth, archive=False)
    assert polling is not None
    await polling
    await _poll(follower)
    assert _equal(follower, shop)


async def test_k7_asking_twice_is_safe(shop: Shop, follower: Follower) -> None:
    await shop.sell(toys(10))
    await _poll(follower)
    place = follower.place
    await shop.sell({**toys(9), "toy 3": {"n": "x"}, "toy 11": {}}, archive=False)
    shop.weather.cut("/changes", 30)
    # The network breaks in the middle of an answer: nothing was kept of it.
    with pytest.raises(Exception, match=r"peer closed|incomplete|disconnected"):
        await _poll(follower)
    again = type(follower)(shop.address, "toys", follower.file)
    assert again.place == place
    assert await _poll(again) == 3
    assert _equal(again, shop)
    # The same question, asked again: the same answer, and applying it again changes nothing.
    again.place, again.seen = place, again.seen[:1]
    assert await _poll(again) == 3
    assert _equal(again, shop)
    again.client.close()
