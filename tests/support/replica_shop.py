"""A Hasat with toys on a real port, and weather that spoils what it answers."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hasat.api.app import create_app
from hasat.feed.archive import write_archives
from hasat.http.listener import Listener, bind
from hasat.jobs import Catalogue
from hasat.settings import Settings
from hasat.source import Source
from hasat.store import Store
from hasat.store.queries import load_query
from support.feed_toys import TOYS, State, make_table, run


@dataclass
class Received:
    """One request that arrived."""

    path: str
    query: str
    headers: dict[str, str]


@dataclass
class Weather:
    """What happens to answers whose path ends with a word, once per entry."""

    app: ASGIApp
    received: list[Received] = field(default_factory=list)
    spoilers: dict[str, list[Callable[[Scope, Receive, Send], Any]]] = field(default_factory=dict)

    def spoil(self, ending: str, spoiler: Callable[[Scope, Receive, Send], Any]) -> None:
        self.spoilers.setdefault(ending, []).append(spoiler)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.received.append(Received(scope["path"], scope["query_string"].decode(), headers))
        for ending, waiting in self.spoilers.items():
            if waiting and scope["path"].endswith(ending):
                await waiting.pop(0)(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def refuse(
        self, ending: str, status: int, *, times: int = 1, headers: dict[str, str] | None = None
    ) -> None:
        """Answer with a status instead."""

        async def refusal(scope: Scope, receive: Receive, send: Send) -> None:
            await Response("out of order", status, headers)(scope, receive, send)

        for _ in range(times):
            self.spoil(ending, refusal)

    def change(self, ending: str, alter: Callable[[bytes], bytes]) -> None:
        """Alter the bytes of an answer; its length stays as announced if theirs does."""

        async def altered(scope: Scope, receive: Receive, send: Send) -> None:
            async def sending(message: Message) -> None:
                if message["type"] == "http.response.body":
                    message = {**message, "body": alter(message.get("body", b""))}
                await send(message)

            # Compressed bytes could not be altered.
            plain = [pair for pair in scope["headers"] if pair[0] != b"accept-encoding"]
            await self.app({**scope, "headers": plain}, receive, sending)

        self.spoil(ending, altered)

    def cut(self, ending: str, after: int) -> None:
        """Break the connection after that number of bytes of the response."""

        async def cutting(scope: Scope, receive: Receive, send: Send) -> None:
            left = after

            async def sending(message: Message) -> None:
                nonlocal left
                if message["type"] == "http.response.start":
                    await send(message)
                elif left:
                    body = message.get("body", b"")[:left]
                    left -= len(body)
                    # Never the end of it: the server hangs up on an answer that is left open.
                    await send({**message, "body": body, "more_body": True})

            await self.app(scope, receive, sending)

        self.spoil(ending, cutting)


class Shop:
    """The server, its truth, and the weather around it."""

    def __init__(self, store: Store, settings: Settings, weather: Weather, address: str) -> None:
        self.store = store
        self.settings = settings
        self.weather = weather
        self.address = address
        self.truth: State = {}

    async def sell(self, state: State, *, archive: bool = True, **options: Any) -> None:
        """A run that saw this state; with an archive of it, as after every sync."""
        self.truth = dict(state)
        await run(self.store, state, **options)
        if archive:
            await self.archive()

    async def archive(self) -> None:
        await write_archives(self.store, self.settings, TOYS)

    async def time_passes(self, days: int = 10) -> None:
        """Everything that was committed so far is older than it was."""
        async with self.store.connection() as conn:
            for table in ("version", "version_dataset", "head", "archive"):
                query = f"UPDATE feed.{table} SET committed_at = committed_at - %s * interval '1 d'"
                await conn.execute(query, [days])

    async def restore(self) -> None:
        """Change the feed as a restore does."""
        async with self.store.connection() as conn:
            await conn.execute(load_query("hasat.store", "new_epoch"))

    def received(self, ending: str) -> list[Received]:
        return [one for one in self.weather.received if one.path.endswith(ending)]


@asynccontextmanager
async def open_shop(store: Store, settings: Settings) -> AsyncIterator[Shop]:
    await make_table(store)
    source = Source("toy_shop", "toys", datasets=(TOYS,))
    app = create_app(settings, store, Catalogue.of([], settings), [source])
    weather = Weather(app)
    listening = bind("127.0.0.1", 0)
    listener = Listener(weather, listening)
    await listener.start()
    try:
        yield Shop(store, settings, weather, f"http://127.0.0.1:{listening.getsockname()[1]}")
    finally:
        listener.drain()
        await listener.wait_closed()
