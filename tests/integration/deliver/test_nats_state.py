"""What consumers see after messages were lost, and operators while NATS rejects changes."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.api import ConsumerConfig, DiscardPolicy, RetentionPolicy, StreamConfig

from hasat.api.app import create_app
from hasat.api.diagnostics import Finding, check_database
from hasat.api.keys import create_key
from hasat.deliver.dispatcher import Dispatcher
from hasat.deliver.jetstream_state import MAX_LAG_SECONDS, StreamState, load_stream_states
from hasat.errors import UnavailableError
from hasat.feed.cursor import Cursor
from hasat.feed.dataset import Dataset
from hasat.jobs import Catalogue
from hasat.settings import Settings, load_settings
from hasat.store import Store
from hasat.testing.database import ThrowAwayDatabase
from hasat.testing.http import app_client
from support.feed_toys import TOYS, head_of, make_table, run
from support.nats_server import nats_server
from support.nats_streams import STREAM, messages, publish, seqs, sink_of
from support.processes import free_port

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

SUBJECTS = ["hasat.toys.>"]


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
    return configured(database, tmp_path, address)


def configured(database: ThrowAwayDatabase, home: Path, address: str | None) -> Settings:
    environ = {"HASAT_HOME": str(home), "HASAT_DATABASE_URL": database.url}
    if address is not None:
        environ["HASAT_NATS_URL"] = address
    return load_settings(environ=environ)


async def change(store: Store, value: int) -> None:
    """Two changes, once there is something to change."""
    await run(store, {"a": {"v": value}, "b": {"v": -value}})


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110 - the condition is in another process
            await asyncio.sleep(0.02)


async def state_of(store: Store, settings: Settings, dataset: Dataset = TOYS) -> StreamState:
    (state,) = [s for s in await load_stream_states(store, settings) if s.dataset == dataset.name]
    return state


async def read(client: Client, count: int, durable: str = "reader") -> list[dict[str, Any]]:
    """The next messages of a durable consumer, which is created if it is missing."""
    subscription = await client.jetstream().pull_subscribe(
        "hasat.toys.>", durable, stream=STREAM, config=ConsumerConfig(ack_wait=60)
    )
    found: list[dict[str, Any]] = []
    while len(found) < count:
        for message in await subscription.fetch(count - len(found), timeout=30):
            assert message.data is not None
            found.append(json.loads(message.data))
            await message.ack_sync(timeout=30)
    await subscription.unsubscribe()
    return found


def described(found: list[dict[str, Any]]) -> list[tuple[str | None, int]]:
    return [(one.get("control"), one["seq"]) for one in found]


async def delete(client: Client) -> None:
    await client.jetstream().delete_stream(STREAM)


async def purge(client: Client) -> None:
    await client.jetstream().purge_stream(STREAM)


async def recreate(client: Client) -> None:
    await client.jetstream().delete_stream(STREAM)
    await client.jetstream().add_stream(StreamConfig(name=STREAM, subjects=SUBJECTS))


async def expire(client: Client) -> None:
    """Let every message age out, then keep the next ones."""
    jetstream = client.jetstream()
    await jetstream.update_stream(
        StreamConfig(name=STREAM, subjects=SUBJECTS, max_age=0.1, duplicate_window=0.1)
    )

    async def is_empty() -> bool:
        return bool((await jetstream.stream_info(STREAM)).state.messages == 0)

    await until(is_empty)
    await jetstream.update_stream(
        StreamConfig(name=STREAM, subjects=SUBJECTS, max_age=3600, duplicate_window=0.1)
    )


@pytest.mark.parametrize("lose", [delete, purge, recreate, expire])
@pytest.mark.parametrize("restarted", [False, True])
async def test_a_lagging_consumer_sees_the_gap_before_the_next_change(
    store: Store,
    settings: Settings,
    client: Client,
    lose: Callable[[Client], Awaitable[None]],
    restarted: bool,
) -> None:
    await make_table(store)
    await change(store, 0)
    await change(store, 1)
    sink = sink_of(store, settings)
    async with sink.connected():
        await sink.publish_pending()
        await change(store, 2)
        await sink.publish_pending()
        assert described(await read(client, 2)) == [("start", 0), (None, 1)]
        await lose(client)
        await change(store, 3)
        if not restarted:
            try:
                await sink.publish_pending()
            except NatsError:
                # The sink expected the stream where it had left it.
                await sink.publish_pending()
    if restarted:
        async with store.connection() as conn:
            await conn.execute("DELETE FROM deliver.lease")
        await publish(store, settings)
    # It missed 2 to 4.
    gap, *changes = await read(client, 3)
    head = await head_of(store)
    assert described([gap, *changes]) == [("gap", 4), (None, 5), (None, 6)]
    assert gap["epoch"] == str(head["epoch"])
    assert gap["archive"] == "/api/v1/toys/archives/latest"
    assert Cursor.parse(gap["cursor"]) == Cursor("toys", head["epoch"], 4)
    async with store.connection() as conn:
        await conn.execute("DELETE FROM deliver.lease")
    await change(store, 4)
    await publish(store, settings)
    assert described(await read(client, 2)) == [(None, 7), (None, 8)]


async def test_the_gap_names_the_floor_if_the_feed_does_not_reach_back(
    store: Store, settings: Settings, client: Client
) -> None:
    await make_table(store)
    await change(store, 0)
    await change(store, 1)
    await publish(store, settings)
    await delete(client)
    await change(store, 2)
    await change(store, 3)
    async with store.connection() as conn:
        await conn.execute("DELETE FROM feed.change WHERE seq <= 4")
        await conn.execute("UPDATE feed.head SET floor = 4")
    await publish(store, settings)
    assert described(await messages(client)) == [("gap", 4), (None, 5), (None, 6)]


async def test_an_empty_stream_that_removes_what_consumers_have_has_no_gap(
    store: Store, settings: Settings, client: Client
) -> None:
    await client.jetstream().add_stream(
        StreamConfig(name=STREAM, subjects=SUBJECTS, retention=RetentionPolicy.WORK_QUEUE)
    )
    await make_table(store)
    await change(store, 0)
    await change(store, 1)
    await publish(store, settings)
    assert described(await read(client, 3)) == [("start", 0), (None, 1), (None, 2)]
    await change(store, 2)
    await publish(store, settings)
    assert described(await read(client, 2)) == [(None, 3), (None, 4)]


async def test_a_rebuilt_database_marks_a_stream_that_was_used_before(
    store: Store, settings: Settings, client: Client
) -> None:
    await make_table(store)
    await change(store, 0)
    await change(store, 1)
    await publish(store, settings)
    await purge(client)
    async with store.connection() as conn:
        await conn.execute("DELETE FROM deliver.position")
        await conn.execute("UPDATE feed.head SET epoch = gen_random_uuid()")
    await publish(store, settings)
    assert described(await messages(client)) == [("gap", 0), (None, 1), (None, 2)]


async def operators_view(store: Store, settings: Settings) -> tuple[dict[str, Any], str, Finding]:
    """The check in /health, the metrics and the finding of the doctor."""
    app = create_app(settings, store, Catalogue.of([], settings), [])
    async with app_client(app) as http:
        health = (await http.get("/health")).json()["checks"]["nats"]
        metrics = (await http.get("/metrics")).text
    (finding,) = [f for f in await check_database(store, settings, []) if f.check == "nats"]
    return health, metrics, finding


async def test_a_full_stream_is_visible_and_loses_nothing(
    store: Store, settings: Settings, client: Client
) -> None:
    jetstream = client.jetstream()
    full = StreamConfig(name=STREAM, subjects=SUBJECTS, max_bytes=8_000, discard=DiscardPolicy.NEW)
    await jetstream.add_stream(full)
    await make_table(store)
    await run(store, {})
    async with Dispatcher(store, settings).running():
        await run(store, {str(n): {"v": "x" * 400} for n in range(60)})

        async def is_failing() -> bool:
            return (await state_of(store, settings)).error is not None

        await until(is_failing)
        health, metrics, finding = await operators_view(store, settings)
        assert health["status"] == "Degraded"
        assert "maximum bytes exceeded" in health["description"]
        assert 'hasat_nats_failing{dataset="toys"} 1.0' in metrics
        assert finding.grade == "warning"
        assert "maximum bytes exceeded" in finding.message

        async def is_counted() -> bool:
            # What fitted into the stream is not behind.
            kept = seqs(await messages(client))
            return len(kept) > 0 and (await state_of(store, settings)).lag == 60 - len(kept)

        await until(is_counted)
        lag = (await state_of(store, settings)).lag
        _, metrics, _ = await operators_view(store, settings)
        assert f'hasat_nats_lag_changes{{dataset="toys"}} {lag}.0' in metrics

        await jetstream.update_stream(
            StreamConfig(name=STREAM, subjects=SUBJECTS, max_bytes=-1, discard=DiscardPolicy.NEW)
        )

        async def has_recovered() -> bool:
            state = await state_of(store, settings)
            return (state.lag, state.error) == (0, None)

        await until(has_recovered)
    assert seqs(await messages(client)) == list(range(1, 61))
    health, metrics, finding = await operators_view(store, settings)
    assert health == {"status": "Healthy", "description": None}
    for name in ("hasat_nats_lag_changes", "hasat_nats_lag_seconds", "hasat_nats_failing"):
        assert f'{name}{{dataset="toys"}} 0.0' in metrics
    assert finding.grade == "ok"


async def test_a_full_stream_does_not_stop_other_datasets(
    store: Store, settings: Settings, client: Client
) -> None:
    others = Dataset("zebras", "toy_shop", "sorted after toys")
    await client.jetstream().add_stream(
        StreamConfig(name=STREAM, subjects=SUBJECTS, max_bytes=500, discard=DiscardPolicy.NEW)
    )
    for dataset in (TOYS, others):
        await make_table(store, dataset)
        await run(store, {}, dataset=dataset)
        await run(store, {str(n): {"v": n} for n in range(20)}, dataset=dataset)
    with pytest.raises(NatsError, match="maximum bytes exceeded"):
        await publish(store, settings)
    assert seqs(await messages(client, "HASAT_zebras")) == list(range(1, 21))
    assert (await state_of(store, settings)).error is not None
    assert (await state_of(store, settings, others)).error is None


async def test_a_server_that_is_away_is_reported_for_every_dataset_behind(
    store: Store, database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    port = free_port()
    settings = configured(database, tmp_path, f"nats://127.0.0.1:{port}")
    await make_table(store)
    await change(store, 0)
    with pytest.raises(UnavailableError, match="NATS cannot be reached"):
        await publish(store, settings)
    first = await state_of(store, settings)
    assert first.error is not None
    assert "NATS cannot be reached" in first.error
    with pytest.raises(UnavailableError, match="NATS cannot be reached"):
        await publish(store, settings)
    assert (await state_of(store, settings)).failing_since == first.failing_since
    # Another process publishes: it is not the stream that fails.
    async with store.connection() as conn:
        await conn.execute("DELETE FROM deliver.sink_failure")
        await conn.execute(
            "INSERT INTO deliver.lease VALUES"
            " ('nats', gen_random_uuid(), clock_timestamp() + interval '1 hour')"
        )
    with pytest.raises(UnavailableError, match="NATS cannot be reached"):
        await publish(store, settings)
    assert (await state_of(store, settings)).error is None


async def test_a_stream_is_degraded_after_minutes_behind_in_any_process(
    store: Store, database: ThrowAwayDatabase, tmp_path: Path, settings: Settings, client: Client
) -> None:
    await make_table(store)
    await change(store, 0)
    await change(store, 1)
    await publish(store, settings)
    await change(store, 2)
    state = await state_of(store, settings)
    assert (state.lag, state.error, state.is_degraded) == (2, None, False)
    async with store.connection() as conn:
        await conn.execute(
            "UPDATE feed.change SET changed_at = changed_at - make_interval(secs => %s)",
            [MAX_LAG_SECONDS],
        )
    health, _, finding = await operators_view(store, settings)
    assert health["status"] == "Degraded"
    assert "The stream of toys is 2 changes behind" in health["description"]
    assert finding.grade == "warning"
    # A process that does not know of NATS learns of it from a worker that publishes.
    elsewhere = configured(database, tmp_path, None)
    assert await load_stream_states(store, elsewhere) == []
    async with Dispatcher(store, settings).running():

        async def is_known() -> bool:
            return bool(await load_stream_states(store, elsewhere))

        await until(is_known)
    assert (await state_of(store, elsewhere)).dataset == "toys"


async def test_strangers_are_not_told_where_nats_is(
    store: Store, database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    settings = configured(database, tmp_path, f"nats://127.0.0.1:{free_port()}")
    serve = settings.serve.model_copy(update={"host": "192.0.2.10"})
    settings = settings.model_copy(update={"serve": serve})
    _, operator = await create_key(store, "operator", "operate")
    await make_table(store)
    await change(store, 0)
    with pytest.raises(UnavailableError):
        await publish(store, settings)
    app = create_app(settings, store, Catalogue.of([], settings), [])
    async with app_client(app) as http:
        public = (await http.get("/health")).json()["checks"]["nats"]
        full = (await http.get("/health", headers={"X-API-Key": operator})).json()["checks"]["nats"]
    assert public["status"] == full["status"] == "Degraded"
    assert "cannot be reached" not in public["description"]
    assert public["description"].startswith("The stream of toys is 0 changes behind")
