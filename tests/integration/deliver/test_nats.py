"""NATS JetStream: every change exactly once and in order, whatever process publishes or stops."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.api import StreamConfig

from hasat.deliver.dispatcher import Dispatcher
from hasat.deliver.jetstream import NATS_ERRORS
from hasat.errors import UnavailableError
from hasat.feed.cursor import Cursor
from hasat.settings import Settings, load_settings
from hasat.store import Store
from hasat.testing.database import ThrowAwayDatabase
from support.feed_toys import State, head_of, make_table, run
from support.nats_server import nats_server
from support.nats_streams import STREAM, messages, publish, seqs, sink_of
from support.processes import free_port

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with nats_server(tmp_path_factory.mktemp("nats")) as address:
        yield address


@pytest.fixture
async def client(address: str) -> AsyncIterator[Client]:
    client = await nats.connect(address)
    yield client
    jetstream = client.jetstream()
    for stream in await jetstream.streams_info():
        await jetstream.delete_stream(str(stream.config.name))
    await client.close()


@pytest.fixture
def settings(database: ThrowAwayDatabase, tmp_path: Path, address: str) -> Settings:
    return load_settings(
        environ={
            "HASAT_HOME": str(tmp_path),
            "HASAT_DATABASE_URL": database.url,
            "HASAT_NATS_URL": address,
        }
    )


async def filled(store: Store, versions: int, *, first: int = 0) -> State:
    state: State = {}
    for n in range(first, first + versions + 1):
        state = {"a": {"v": n}, "b": {"v": -n}}
        await run(store, state)
    return state


async def many(store: Store, records: int, value: int) -> None:
    await run(store, {})
    await run(store, {str(n): {"v": value} for n in range(records)})


async def test_every_change_is_a_message(store: Store, settings: Settings, client: Client) -> None:
    await make_table(store)
    await run(store, {"a": {"v": 1}, "ğ": {"v": 1}})
    await run(store, {"a": {"v": 2}, "c": {"v": 1}})
    await publish(store, settings)
    head = await head_of(store)
    start, *changes = await messages(client)
    assert start["subject"] == "hasat.toys.control"
    assert (start["control"], start["seq"], start["epoch"]) == ("start", 0, str(head["epoch"]))
    assert start["cursor"] == start["headers"]["Hasat-Cursor"]
    assert seqs(changes) == [1, 2, 3]
    assert {one["key"]: (one["subject"], one["body"]) for one in changes} == {
        "a": ("hasat.toys.modified", {"v": 2}),
        "c": ("hasat.toys.added", {"v": 1}),
        "ğ": ("hasat.toys.removed", None),
    }
    for one in changes:
        assert one["headers"]["Nats-Msg-Id"] == f"{head['epoch']}:{one['seq']}"
        cursor = Cursor.parse(one["headers"]["Hasat-Cursor"])
        assert (cursor.dataset, cursor.epoch, cursor.seq) == ("toys", head["epoch"], one["seq"])


async def test_it_goes_on_exactly_though_nothing_was_noted(
    store: Store, settings: Settings, client: Client
) -> None:
    """As after a kill between the acknowledgement and the note, long after NATS forgot the ids."""
    await client.jetstream().add_stream(
        StreamConfig(name=STREAM, subjects=["hasat.toys.>"], duplicate_window=0.1)
    )
    await make_table(store)
    await many(store, 500, 1)
    await publish(store, settings)
    async with store.connection() as conn:
        await conn.execute("UPDATE deliver.position SET seq = 3")
    await many(store, 500, 2)
    await publish(store, settings)
    head = await head_of(store)
    assert seqs(await messages(client)) == list(range(1, head["seq"] + 1))


async def test_a_stream_that_lost_its_end_or_all_of_it_is_filled_again(
    store: Store, settings: Settings, client: Client
) -> None:
    await make_table(store)
    await filled(store, 5)
    await publish(store, settings)
    jetstream = client.jetstream()
    assert seqs(await messages(client)) == list(range(1, 11))
    for lost in (11, 10):
        await jetstream.delete_msg(STREAM, lost)
    await filled(store, 1, first=10)
    # NATS still remembers their ids and would drop them in silence; here that is noticed.
    with pytest.raises(NatsError, match="takes a message for a duplicate"):
        await publish(store, settings)
    await jetstream.purge_stream(STREAM)
    await publish(store, settings)
    gap, *found = await messages(client)
    assert (gap["control"], gap["seq"], seqs(found)) == ("gap", 10, [11, 12, 13, 14])
    await jetstream.delete_stream(STREAM)
    await filled(store, 1, first=20)
    await publish(store, settings)
    gap, *found = await messages(client)
    assert (gap["control"], gap["seq"], seqs(found)) == ("gap", 14, [15, 16, 17, 18])


async def test_a_publisher_that_overslept_its_lease_can_do_no_harm(
    store: Store, settings: Settings, client: Client
) -> None:
    await make_table(store)
    await filled(store, 3)
    slow, quick = sink_of(store, settings), sink_of(store, settings)
    async with slow.connected(), quick.connected():
        await slow.publish_pending()
        await filled(store, 2, first=3)
        # While another holds the lease, nothing is done.
        await quick.publish_pending()
        assert len(seqs(await messages(client))) == 6
        async with store.connection() as conn:
            await conn.execute("DELETE FROM deliver.lease")
        await quick.publish_pending()
        await filled(store, 2, first=5)
        async with store.connection() as conn:
            await conn.execute("DELETE FROM deliver.lease")
        with pytest.raises(NATS_ERRORS):
            # It still believes that the stream ends where it left it.
            await slow.publish_pending()
    async with store.connection() as conn:
        await conn.execute("DELETE FROM deliver.lease")
    await publish(store, settings)
    head = await head_of(store)
    assert seqs(await messages(client)) == list(range(1, head["seq"] + 1))


async def test_a_new_epoch_and_a_gap_are_told(
    store: Store, settings: Settings, client: Client
) -> None:
    await make_table(store)
    await filled(store, 2)
    await publish(store, settings)
    async with store.connection() as conn:
        await conn.execute("UPDATE feed.head SET epoch = gen_random_uuid(), floor = seq")
    await filled(store, 1, first=10)
    await publish(store, settings)
    await filled(store, 2, first=20)
    async with store.connection() as conn:
        await conn.execute("DELETE FROM feed.change WHERE seq <= 10")
        await conn.execute("UPDATE feed.head SET floor = 10")
    await publish(store, settings)
    found = await messages(client)
    head = await head_of(store)
    published = [
        (one.get("control", one["epoch"] == str(head["epoch"])), one["seq"]) for one in found
    ]
    assert published == [
        ("start", 0),
        *[(False, n) for n in range(1, 5)],
        ("epoch", 4),
        *[(True, n) for n in range(5, 9)],
        ("gap", 10),
        *[(True, n) for n in range(11, head["seq"] + 1)],
    ]


async def test_what_is_too_large_for_nats_is_told_without_its_body(
    store: Store, settings: Settings, client: Client
) -> None:
    await make_table(store)
    await run(store, {"a": {"v": 1}})
    await run(store, {"a": {"v": "x" * 70_000}, "b": {"v": "y" * 60_000}})
    await publish(store, settings)
    _, large, fits = await messages(client)
    assert (large["key"], large["body"], large["omitted"]) == ("a", None, True)
    assert (fits["key"], len(fits["body"]["v"])) == ("b", 60_000)


async def test_a_stream_that_cannot_be_made_and_a_server_that_is_away_are_told_plainly(
    store: Store, settings: Settings, client: Client
) -> None:
    await make_table(store)
    await run(store, {"a": {"v": 1}})
    await client.jetstream().add_stream(StreamConfig(name="OTHER", subjects=["hasat.>"]))
    with pytest.raises(UnavailableError, match="refuses to create the stream HASAT_toys"):
        await publish(store, settings)
    away = load_settings(
        environ={
            "HASAT_HOME": str(settings.home),
            "HASAT_NATS_URL": f"nats://127.0.0.1:{free_port()}",
        }
    )
    with pytest.raises(UnavailableError, match="NATS cannot be reached"):
        await publish(store, away)


async def test_the_loop_follows_and_outlives_the_server(
    store: Store, database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    port = free_port()
    settings = load_settings(
        environ={
            "HASAT_HOME": str(tmp_path),
            "HASAT_DATABASE_URL": database.url,
            "HASAT_NATS_URL": f"nats://127.0.0.1:{port}",
        }
    )
    await make_table(store)
    async with Dispatcher(store, settings).running():
        for n in range(2):
            await filled(store, 2, first=10 * n)
            with nats_server(tmp_path / "nats", port) as address:
                client = await nats.connect(address)
                await _caught_up(store)
                head = await head_of(store)
                assert seqs(await messages(client)) == list(range(1, head["seq"] + 1))
                await client.close()


async def _caught_up(store: Store) -> None:
    for _ in range(3000):
        async with store.connection() as conn:
            cursor = await conn.execute(
                "SELECT FROM feed.head JOIN deliver.position USING (dataset, epoch, seq)"
            )
            if await cursor.fetchone() is not None:
                return
        await asyncio.sleep(0.02)
    raise AssertionError("the stream never caught up")
