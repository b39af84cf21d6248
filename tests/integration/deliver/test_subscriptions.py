"""A webhook receives what happened while it was configured: nothing older, nothing less."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hasat.deliver import Event, publish_event
from hasat.deliver.dispatcher import Dispatcher
from hasat.deliver.outbox import list_deliveries, replay
from hasat.settings import Settings, load_settings
from hasat.store import Store
from hasat.testing.database import ThrowAwayDatabase
from support.feed_toys import make_table, run
from support.receivers import Receiver, answer, receiving

pytestmark = pytest.mark.anyio


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await condition():  # noqa: ASYNC110 - others make it true
            await asyncio.sleep(0.02)


async def has_received(receiver: Receiver) -> bool:
    return bool(receiver.received)


class Workers:
    """Delivering loops with different settings over one database."""

    def __init__(self, store: Store, url: str, home: Path) -> None:
        self._store = store
        self._environ = {
            "HASAT_HOME": str(home),
            "HASAT_DATABASE_URL": url,
            "HASAT_WEBHOOKS_PRIVATE_NETWORKS": "127.0.0.0/8",
            "Webhooks__Enabled": "true",
        }

    def __call__(self, *receivers: Receiver, notify_on: str = "DatasetChanged") -> Any:
        endpoints = [
            {"name": f"e{one.port}", "url": one.url, "notify_on": [notify_on]} for one in receivers
        ]
        settings: Settings = load_settings(
            environ=self._environ | {"HASAT_WEBHOOKS_ENDPOINTS": json.dumps(endpoints)}
        )
        return Dispatcher(self._store, settings, first_pause_seconds=0.01).running()

    async def idle(self) -> None:
        """Until everything that happened was handed out and sent."""
        await eventually(self._is_idle)

    async def _is_idle(self) -> bool:
        async with self._store.connection() as conn:
            cursor = await conn.execute(
                """SELECT NOT EXISTS (SELECT FROM deliver.event WHERE NOT handed_out)
                      AND NOT EXISTS (SELECT FROM deliver.delivery WHERE state = 'waiting')
                      AND NOT EXISTS (SELECT FROM feed.head AS h
                                       LEFT JOIN deliver.seen_version AS s USING (dataset)
                                      WHERE h.version IS NOT NULL
                                        AND s.version IS DISTINCT FROM h.version)"""
            )
            return await cursor.fetchone() == (True,)

    async def subscribed(self, count: int = 1) -> None:
        """Wait for a number of subscribed endpoints."""

        async def subscribed() -> bool:
            return await self._subscribed() == count

        await eventually(subscribed)

    async def _subscribed(self) -> int:
        async with self._store.connection() as conn:
            cursor = await conn.execute(
                "SELECT count(DISTINCT endpoint) FROM deliver.subscription WHERE ended_at IS NULL"
            )
            row = await cursor.fetchone()
        assert row is not None
        return int(row[0])


@pytest.fixture
async def workers(store: Store, database: ThrowAwayDatabase, tmp_path: Path) -> Workers:
    await make_table(store)
    return Workers(store, database.url, tmp_path)


def heads(receiver: Receiver) -> list[int]:
    return [one.json["payload"]["head"] for one in receiver.received]


def added(receiver: Receiver) -> list[int]:
    return [one.json["payload"]["added"] for one in receiver.received]


async def change(store: Store, n: int) -> None:
    await run(store, {"a": {"v": n}})


async def test_the_first_version_of_a_fresh_database_is_announced(
    store: Store, workers: Workers, receiver: Receiver
) -> None:
    async with workers(receiver):
        await workers.subscribed()
        await run(store, {"a": {"v": 1}, "b": {"v": 1}})
        await workers.idle()
        await change(store, 2)
        await workers.idle()
    assert added(receiver) == [2, 0]
    assert heads(receiver) == [0, 2]


async def test_what_was_committed_before_a_webhook_was_configured_is_not_sent(
    store: Store, workers: Workers, receiver: Receiver
) -> None:
    await change(store, 1)
    await change(store, 2)
    async with store.connection() as conn:
        await publish_event(conn, Event("DatasetChanged", "Info", "older than the endpoint"))
    async with workers(receiver):
        await workers.subscribed()
        await change(store, 3)
        await workers.idle()
    assert heads(receiver) == [2]


@pytest.mark.parametrize("announced", [True, False])
async def test_nothing_committed_between_two_starts_is_lost(
    store: Store, workers: Workers, receiver: Receiver, announced: bool
) -> None:
    """Without a first announcement, no position of the dataset was stored yet."""
    async with workers(receiver):
        await workers.subscribed()
        if announced:
            await change(store, 0)
            await workers.idle()
    await change(store, 1)
    await change(store, 2)
    async with workers(receiver), workers(receiver):
        await workers.idle()
    assert heads(receiver) == ([0, 1, 2] if announced else [0, 1])


async def test_an_endpoint_that_is_added_later_receives_only_what_is_new(
    store: Store, workers: Workers, receiver: Receiver
) -> None:
    with receiving() as later:
        async with workers(receiver):
            await workers.subscribed()
            await change(store, 1)
            await workers.idle()
        await change(store, 2)
        async with workers(receiver, later):
            await workers.subscribed(2)
            await change(store, 3)
            await workers.idle()
    assert heads(receiver) == [0, 1, 2]
    assert heads(later) == [2]


async def test_a_kind_of_event_that_is_added_later_counts_from_then(
    store: Store, workers: Workers, receiver: Receiver
) -> None:
    async with workers(receiver):
        await workers.subscribed()
    async with store.connection() as conn:
        await publish_event(conn, Event("SyncCompleted", "Info", "before"))
    async with workers(receiver, notify_on="SyncCompleted"):
        await workers.idle()
        async with store.connection() as conn:
            await publish_event(conn, Event("SyncCompleted", "Info", "after"))
        await workers.idle()
    assert [one.json["summary"] for one in receiver.received] == ["after"]


async def test_an_endpoint_that_returns_receives_nothing_of_the_time_in_between(
    store: Store, workers: Workers, receiver: Receiver
) -> None:
    receiver.behave = lambda *_: answer(503)
    async with workers(receiver):
        await workers.subscribed()
        await change(store, 1)
        await eventually(partial(has_received, receiver))
    async with workers():
        await workers.subscribed(0)
        await change(store, 2)
    received, receiver.behave = len(receiver.received), lambda *_: answer(200)
    async with workers(receiver):
        await workers.subscribed()
        await change(store, 3)
        await workers.idle()
        assert heads(receiver)[received:] == [2]
        # What was on its way when the endpoint was removed is a dead letter, and can be sent.
        [dead] = await list_deliveries(store, state="dead")
        assert "removed from the settings" in str(dead.last_error)
        await replay(store, [dead.id])
        await workers.idle()
    assert heads(receiver)[received:] == [2, 0]


async def test_processes_with_different_settings_take_nothing_from_each_other(
    store: Store, workers: Workers, receiver: Receiver
) -> None:
    with receiving() as other:
        async with workers(receiver):
            await workers.subscribed()
            # The second process does not know the first one's endpoint, nor the first the second's.
            async with workers(other):
                await workers.subscribed(2)
                for n in range(5):
                    await change(store, n)
                await workers.idle()
    assert heads(receiver) == [0, 1, 2, 3, 4]
    assert heads(other) == [0, 1, 2, 3, 4]


async def test_an_event_in_the_moment_between_two_settings_is_sent_later(
    store: Store, workers: Workers, receiver: Receiver
) -> None:
    async with workers(receiver):
        await workers.subscribed()
        async with workers():
            # Handed out while the endpoint counts as removed, by whichever process comes first.
            await change(store, 1)
            await eventually(partial(has_received, receiver))
    assert heads(receiver) == [0]


async def test_several_processes_that_start_together_announce_each_version_once(
    store: Store, workers: Workers, receiver: Receiver
) -> None:
    async with workers(receiver):
        await workers.subscribed()
    for n in range(4):
        await change(store, n)
    async with workers(receiver), workers(receiver), workers(receiver):
        await change(store, 4)
        await workers.idle()
    assert heads(receiver) == [0, 1, 2, 3, 4]
    assert len({one.id for one in receiver.received}) == 5
