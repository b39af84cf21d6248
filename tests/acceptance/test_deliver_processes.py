"""Delivering processes on a real PostgreSQL, killed at random moments: nothing is lost.

This file is also the program that the tests start. HASAT_TEST_KILLS makes the campaigns longer.
"""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js.api import ConsumerConfig, StreamConfig

from hasat.deliver import Event, publish_event
from hasat.deliver.dispatcher import Dispatcher
from hasat.deliver.outbox import list_deliveries
from hasat.logs import configure_logging
from hasat.settings import load_settings
from hasat.store import Store, open_store
from hasat.testing.database import ThrowAwayDatabase
from support.feed_toys import TOYS, head_of, make_table, run
from support.nats_server import nats_server
from support.receivers import Behave, Received, answer, receiving, reset, slow

pytestmark = pytest.mark.anyio

KILLS = int(os.environ.get("HASAT_TEST_KILLS", "3"))
PATIENCE_SECONDS = 90.0


async def program() -> None:
    settings = load_settings()
    configure_logging(settings)
    async with open_store(settings) as store:
        deliverer = Dispatcher(store, settings, first_pause_seconds=0.02, lease_seconds=0.7)
        async with deliverer.running():
            await asyncio.Event().wait()


class Processes:
    """Delivering processes; none outlives the test."""

    def __init__(self, environ: dict[str, str], log: Path) -> None:
        self._environ = os.environ | environ
        self._log = log
        self.all: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.all.append(
                subprocess.Popen(
                    [sys.executable, __file__], env=self._environ, stdout=log, stderr=log
                )
            )

    def kill_one(self, dice: random.Random) -> None:
        victim = self.all.pop(dice.randrange(len(self.all)))
        assert victim.poll() is None, self._log.read_text()
        victim.kill()
        victim.wait(30)

    def end(self) -> None:
        for process in self.all:
            process.kill()
            process.wait(30)


@pytest.fixture
def dice() -> random.Random:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    return random.Random(seed)


@asynccontextmanager
async def delivering(
    database: ThrowAwayDatabase, folder: Path, **environ: str
) -> AsyncIterator[Processes]:
    processes = Processes(
        {
            "HASAT_DATABASE_URL": database.url,
            "HASAT_HOME": str(folder),
            "PYTHONPATH": os.pathsep.join(sys.path),
            **environ,
        },
        folder / "said.txt",
    )
    try:
        processes.start()
        processes.start()
        yield processes
    finally:
        processes.end()


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await condition():  # noqa: ASYNC110 - others make it true
            await asyncio.sleep(0.03)


async def subscribed(store: Store) -> bool:
    async with store.connection() as conn:
        cursor = await conn.execute("SELECT EXISTS (SELECT FROM deliver.subscription)")
        return await cursor.fetchone() == (True,)


async def test_a_version_is_announced_by_the_next_process_if_all_are_killed_before(
    store: Store, database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    await make_table(store)
    with receiving() as receiver:
        async with delivering(
            database,
            tmp_path,
            HASAT_WEBHOOKS_PRIVATE_NETWORKS="127.0.0.0/8",
            Webhooks__Enabled="true",
            Webhooks__Http__Enabled="true",
            Webhooks__Http__Url=receiver.url,
            Webhooks__Http__NotifyOn__0="DatasetChanged",
        ) as processes:
            await eventually(partial(subscribed, store))
            for process in processes.all:
                process.send_signal(signal.SIGSTOP)
            await run(store, {"a": {"v": 1}})
            await run(store, {"a": {"v": 2}})
            processes.end()
            assert receiver.received == []
            processes.all.clear()
            processes.start()
            processes.start()

            async def both() -> bool:
                return len(receiver.received) >= 2

            await eventually(both)
    assert [one.json["payload"]["head"] for one in receiver.received] == [0, 1]


async def test_every_event_arrives_in_order_whoever_is_killed(
    store: Store, database: ThrowAwayDatabase, tmp_path: Path, dice: random.Random
) -> None:
    announced = 0

    async def tell_more() -> None:
        nonlocal announced
        for _ in range(10):
            async with store.connection() as conn:
                event = Event("SyncCompleted", "Info", "x", {"n": announced})
                await publish_event(conn, event)
                if dice.random() < 0.2:
                    await conn.rollback()
                    continue
            announced += 1

    faults: Counter[str] = Counter()

    def behave(_: int, got: Received) -> Behave:
        # At most three for one message: the pauses between its tries grow quickly.
        if faults[got.id] < 3 and dice.random() < 0.4:
            faults[got.id] += 1
            return dice.choice([answer(500), reset])
        return dice.choice([answer(200), slow(0.1)])

    with receiving() as receiver:
        receiver.behave = behave
        async with delivering(
            database,
            tmp_path,
            HASAT_WEBHOOKS_PRIVATE_NETWORKS="127.0.0.0/8",
            HASAT_WEBHOOKS_MAX_ATTEMPTS="1000",
            Webhooks__Enabled="true",
            Webhooks__Http__Enabled="true",
            Webhooks__Http__Url=receiver.url,
            Webhooks__Http__TimeoutSeconds="1",
        ) as processes:
            await eventually(partial(subscribed, store))
            for _ in range(KILLS):
                await tell_more()
                seen = len(receiver.received)

                async def at_work(seen: int = seen) -> bool:
                    return len(receiver.received) > seen

                await eventually(at_work)
                await asyncio.sleep(dice.random() * 0.3)
                processes.kill_one(dice)
                processes.start()

            async def all_arrived() -> bool:
                states = [one.state for one in await list_deliveries(store, limit=100_000)]
                return states == ["delivered"] * announced

            await eventually(all_arrived)
    order = [got.json["payload"]["n"] for got in receiver.received]
    assert order == sorted(order)
    assert set(order) == set(range(announced))
    # A receiver recognises duplicates by their id.
    assert len({got.id for got in receiver.received}) == announced


@pytest.fixture
def nats_address(tmp_path: Path) -> Iterator[str]:
    with nats_server(tmp_path / "nats") as address:
        yield address


async def test_a_stream_has_every_change_once_whoever_is_killed(
    store: Store,
    database: ThrowAwayDatabase,
    tmp_path: Path,
    dice: random.Random,
    nats_address: str,
) -> None:
    client = await nats.connect(nats_address)
    jetstream = client.jetstream()
    # NATS forgets ids almost at once: nothing rests on that it drops doubles.
    await jetstream.add_stream(
        StreamConfig(name="HASAT_toys", subjects=["hasat.toys.>"], duplicate_window=0.1)
    )
    await make_table(store)
    await run(store, {})

    async def published() -> int:
        return int((await jetstream.stream_info("HASAT_toys")).state.last_seq)

    async with delivering(database, tmp_path, HASAT_NATS_URL=nats_address) as processes:
        for n in range(KILLS):
            seen = await published()
            await run(store, {str(dice.randrange(1000)): {"v": n} for _ in range(500)})

            async def at_work(seen: int = seen) -> bool:
                return await published() > seen

            await eventually(at_work)
            await asyncio.sleep(dice.random() * 0.2)
            processes.kill_one(dice)
            processes.start()
        head = await head_of(store)

        async def caught_up() -> bool:
            async with store.connection() as conn:
                cursor = await conn.execute("SELECT seq FROM deliver.position")
                return (await cursor.fetchone()) == (head["seq"],)

        await eventually(caught_up)
    found = await _contents(jetstream, await published())
    await client.close()
    changes = [one["seq"] for one in found if "control" not in one]
    assert changes == list(range(1, head["seq"] + 1))
    assert [one["control"] for one in found if "control" in one] == ["start"]
    assert {one["dataset"] for one in found} == {TOYS.name}


async def _contents(jetstream: Any, count: int) -> list[dict[str, Any]]:
    subscription = await jetstream.subscribe(
        "hasat.toys.>", stream="HASAT_toys", ordered_consumer=True, config=ConsumerConfig()
    )
    found = [json.loads((await subscription.next_msg(30)).data) for _ in range(count)]
    await subscription.unsubscribe()
    return found


if __name__ == "__main__":
    asyncio.run(program())
