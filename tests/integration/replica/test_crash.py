"""Replicas killed in the middle of their work; HASAT_CAMPAIGN says how many times."""

import asyncio
import json
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal

from hasat.errors import NotFoundError
from hasat.replica import Replica, State, open_target
from hasat.settings import Settings
from hasat.store import Store
from hasat.testing.database import throw_away_database
from support import replica_victim
from support.feed_toys import head_of
from support.replica_shop import Shop, open_shop

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

DEATHS = int(os.environ.get("HASAT_CAMPAIGN", "10"))


@pytest.fixture
async def shop(store: Store, settings: Settings) -> AsyncIterator[Shop]:
    async with open_shop(store, settings) as shop:
        yield shop


@pytest.fixture(params=["sqlite", "postgresql"])
def target(
    request: pytest.FixtureRequest, background: BlockingPortal, server_url: str, tmp_path: Path
) -> Any:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'toys.db'}"
        return
    with background.wrap_async_context_manager(throw_away_database(server_url, None)) as database:
        yield database.url


async def test_whenever_it_is_killed_its_records_are_those_of_its_place_in_the_feed(
    shop: Shop, target: str
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    truth: dict[str, Any] = {f"toy {n}": {"n": n} for n in range(40)}
    await shop.sell(truth)
    known = {await _place(shop)}
    victims = await asyncio.create_subprocess_exec(
        *(sys.executable, replica_victim.__file__),
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert victims.stdin is not None
    assert victims.stdout is not None
    killed = 0
    loads = True
    for _ in range(2 * DEATHS):
        # Loading sends more statements than following.
        moment = dice.randrange(1, 20 if loads else 13)
        victims.stdin.write(json.dumps([shop.address, target, moment]).encode() + b"\n")
        code = int(await victims.stdout.readline())
        assert code in {0, -signal.SIGKILL}
        killed += code == -signal.SIGKILL
        state = await asyncio.to_thread(_checked, target)
        # Whole versions fit on a page, so it is always at the end of one, or not loaded yet.
        if state is not None and state.cursor is not None:
            assert (state.epoch, state.seq, state.digest) in known
        if killed == DEATHS:
            break
        truth[f"toy {dice.randrange(60)}"] = {"n": dice.random()}
        truth.pop(f"toy {dice.randrange(60)}", None)
        loads = dice.random() < 0.3
        if loads:
            await shop.restore()
            await shop.sell(truth)
        elif dice.random() < 0.7:
            await shop.sell(truth, archive=False)
        known.add(await _place(shop))
    victims.stdin.close()
    assert await victims.wait() == 0
    assert killed
    async with Replica("toys", shop.address, target) as replica:
        await replica.catch_up()
        await replica.verify()
        state = replica.state
    assert state is not None
    assert (state.epoch, state.seq, state.digest) == await _place(shop)


async def _place(shop: Shop) -> tuple[str, int, str]:
    head = await head_of(shop.store)
    return str(head["epoch"]), head["seq"], head["digest"].hex()


def _checked(target: str) -> State | None:
    """Return the position of the target, once its rows are checked against it."""
    with closing(open_target(target, "toys")) as opened:
        try:
            state = opened.state()
        except NotFoundError:
            return None
        assert opened.recompute() == (state.records, state.digest)
        return state
