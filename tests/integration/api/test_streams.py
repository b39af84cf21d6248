"""Changes as lines and as events on a real port: nothing is lost when clients or servers stop."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from hasat.api.app import create_app
from hasat.api.routes import feed_pages
from hasat.feed.archive import write_archives
from hasat.feed.notifier import ChangeNotifier
from hasat.http.listener import Listener, bind
from hasat.jobs import Catalogue
from hasat.settings import Settings
from hasat.source import Source
from hasat.store import Store, open_store
from support.feed_toys import TOYS, State, make_table, run

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

SHOP = Source("toy_shop", "toys", datasets=(TOYS,))
CHANGES = "/api/v1/toys/changes"


class Port:
    """A served app: where it is, how to drain it, and what is going on inside."""

    def __init__(self, listener: Listener, url: str, notifier: ChangeNotifier) -> None:
        self.listener = listener
        self.url = url
        self.notifier = notifier

    @asynccontextmanager
    async def events(self, **headers: str) -> AsyncIterator[AsyncIterator[dict[str, str]]]:
        """An open stream of events."""
        async with (
            httpx2.AsyncClient(base_url=self.url, timeout=60) as client,
            client.stream("GET", f"{CHANGES}/stream", headers=headers) as answer,
        ):
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith("text/event-stream")
            yield _events(answer)

    async def waiting(self, number: int) -> None:
        """Wait for a number of waiters."""
        async with asyncio.timeout(30):
            while self.notifier.waiters != number:  # noqa: ASYNC110 - the server's own doing
                await asyncio.sleep(0.01)


async def _events(answer: httpx2.Response) -> AsyncIterator[dict[str, str]]:
    event: dict[str, str] = {}
    async for line in answer.aiter_lines():
        if not line:
            if event:
                yield event
            event = {}
        else:
            name, _, value = line.partition(":")
            event[name or "comment"] = value.strip()


@pytest.fixture
async def port(settings: Settings, store: Store) -> AsyncIterator[Port]:
    await make_table(store)
    await run(store, {"a": {"n": 0}})
    app = create_app(settings, store, Catalogue.of([], settings), [SHOP])
    socket = bind("127.0.0.1", 0)
    listener = Listener(app, socket, on_drain=app.state.notifier.close)
    await listener.start()
    yield Port(listener, f"http://127.0.0.1:{socket.getsockname()[1]}", app.state.notifier)
    listener.drain()
    await listener.wait_closed()


async def _take(events: AsyncIterator[dict[str, str]], number: int) -> list[dict[str, Any]]:
    """Read a number of changes from a stream, each with its id."""
    taken: list[dict[str, Any]] = []
    async with asyncio.timeout(60):
        async for event in events:
            if "data" in event:
                taken.append({**json.loads(event["data"]), "id": event["id"]})
                if len(taken) == number:
                    break
    return taken


async def test_events_come_as_they_are_committed_and_resume_exactly(
    port: Port, store: Store
) -> None:
    await run(store, {"a": {"n": 1}, "b": {"n": 1}})
    async with port.events() as events:
        first = await _take(events, 2)
        await port.waiting(1)
        await run(store, {"a": {"n": 2}, "b": {"n": 1}})
        first += await _take(events, 1)
    assert [change["seq"] for change in first] == [1, 2, 3]
    await port.waiting(0)
    await run(store, {"b": {"n": 1}})
    async with port.events(**{"Last-Event-ID": first[1]["id"]}) as events:
        rest = await _take(events, 2)
    assert [(change["seq"], change["changeType"]) for change in rest] == [
        (3, "modified"),
        (4, "removed"),
    ]


async def test_a_quiet_stream_shows_that_it_lives(
    port: Port, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_pages, "HEARTBEAT_SECONDS", 0.05)
    async with port.events() as events, asyncio.timeout(30):
        beats = [event async for event in _first(events, "comment", 2)]
    # Its id is the place in the feed, so that even a silent follower moves on.
    async with httpx2.AsyncClient(base_url=port.url) as client:
        page = (await client.get(CHANGES)).json()
    assert {beat["id"] for beat in beats} == {page["next"]}


async def test_streams_end_in_order_when_the_server_drains(port: Port) -> None:
    async with port.events() as events:
        await port.waiting(1)
        port.listener.drain()
        # A stream that had to be cut off would end in an error here.
        async with asyncio.timeout(60):
            async for _ in events:
                pass
    await port.waiting(0)


async def test_a_place_that_is_no_longer_kept_ends_a_stream_with_expired(
    port: Port, store: Store, settings: Settings
) -> None:
    async def begin_anew() -> None:
        async with store.connection() as conn:
            await conn.execute("UPDATE feed.head SET epoch = gen_random_uuid()")
            await conn.execute("UPDATE feed.archive SET epoch = (SELECT epoch FROM feed.head)")

    await write_archives(store, settings, TOYS)
    async with port.events() as events:
        await port.waiting(1)
        await begin_anew()
        async with asyncio.timeout(30):
            (last,) = [event async for event in events if event.get("event")]
    assert last["event"] == "expired"
    problem = json.loads(last["data"])
    assert (problem["code"], problem["status"]) == ("feed-expired", 410)
    async with httpx2.AsyncClient(base_url=port.url) as client:
        page = (await client.get(CHANGES)).json()
        gone = {"Last-Event-ID": page["next"].swapcase()}
        assert (await client.get(f"{CHANGES}/stream", headers=gone)).status_code == 400
        await begin_anew()
        refused = await client.get(f"{CHANGES}/stream", headers={"Last-Event-ID": page["next"]})
    assert (refused.status_code, refused.json()["code"]) == (410, "feed-expired")
    assert refused.headers["Cache-Control"] == "no-store"


async def test_readers_that_do_not_read_hold_no_connection(settings: Settings) -> None:
    async with open_store(settings, pool_size=2) as store:
        await make_table(store)
        await run(store, {})
        await run(store, {f"{n:04}": {"text": "x" * 5000} for n in range(3000)})
        app = create_app(settings, store, Catalogue.of([], settings), [SHOP])
        socket = bind("127.0.0.1", 0)
        listener = Listener(app, socket, on_drain=app.state.notifier.close)
        await listener.start()
        slow = []
        for form in ("ndjson", "ndjson", "events", "events"):
            reader, writer = await asyncio.open_connection(*socket.getsockname(), limit=1024)
            writer.write(
                f"GET {CHANGES}?format={form} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
            )
            await reader.readline()
            slow.append(writer)
        url = f"http://127.0.0.1:{socket.getsockname()[1]}"
        async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
            for _ in range(5):
                assert (await client.get(f"{CHANGES}?limit=1")).status_code == 200
        for writer in slow:
            writer.transport.abort()
        listener.drain()
        await listener.wait_closed()


async def test_lines_hold_everything_up_to_the_head(port: Port, store: Store) -> None:
    state: State = {f"{n:05}": {"n": n} for n in range(2500)}
    await run(store, state)
    async with httpx2.AsyncClient(base_url=port.url, timeout=60) as client:
        answer = await client.get(CHANGES, headers={"Accept": "application/x-ndjson"})
        assert answer.headers["content-type"].startswith("application/x-ndjson")
        assert answer.headers["X-Last-Sync-At"]
        *lines, trailer = map(json.loads, answer.text.splitlines())
        assert [line["seq"] for line in lines] == list(range(1, 2502))
        assert (trailer["head"], trailer["upToDate"]) == (2501, True)
        assert trailer["next"] == lines[-1]["cursor"]
        middle = lines[1234]["cursor"]
        again = await client.get(CHANGES, params={"format": "ndjson", "after": middle})
        *rest, _ = map(json.loads, again.text.splitlines())
        assert [line["seq"] for line in rest] == list(range(1236, 2502))
        nothing = await client.get(CHANGES, params={"format": "ndjson", "after": trailer["next"]})
        assert nothing.json()["upToDate"] is True
        few = await client.get(CHANGES, params={"format": "ndjson", "limit": 2})
        *two, cut = map(json.loads, few.text.splitlines())
        assert (len(two), cut["upToDate"], cut["next"]) == (2, False, two[-1]["cursor"])
        bad = await client.get(CHANGES, params={"format": "ndjson", "after": "nonsense"})
        assert bad.status_code == 400


async def _first(
    events: AsyncIterator[dict[str, str]], field: str, number: int
) -> AsyncIterator[dict[str, str]]:
    async for event in events:
        if field in event:
            yield event
            number -= 1
            if not number:
                return
