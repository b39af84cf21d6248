"""A real HTTP server on loopback that answers as a test wants, and sees who hung up."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

_LINGER_NOTHING = b"\x01\x00\x00\x00\x00\x00\x00\x00"


@dataclass(frozen=True)
class Asked:
    """One request as it arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    number: int


class Reply:
    """The way back to one caller."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer

    async def send(
        self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> None:
        """A whole answer."""
        lines = {"content-length": str(len(body)), "content-type": "application/json"}
        await self.head(status, lines | dict(headers or {}))
        await self.write(body)

    async def json(
        self, status: int, content: Any, headers: Mapping[str, str] | None = None
    ) -> None:
        await self.send(status, json.dumps(content, ensure_ascii=False).encode(), headers)

    async def head(self, status: int, headers: Mapping[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} Said", *(f"{k}: {v}" for k, v in headers.items())]
        await self.write(("\r\n".join(lines) + "\r\n\r\n").encode())

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        """Cut the connection the hard way."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOTHING)
        self.writer.transport.abort()


Handler = Callable[[Asked, Reply], Awaitable[None]]


@dataclass
class FaultyServer:
    """What it was asked, and which requests were given up by their caller before the answer."""

    url: str
    handler: Handler
    asked: list[Asked] = field(default_factory=list)
    given_up: list[Asked] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    at_once: int = 0
    most_at_once: int = 0

    async def until_given_up(self, requests: int = 1) -> None:
        """Wait until so many callers have hung up."""
        async with asyncio.timeout(60), self.changed:
            await self.changed.wait_for(lambda: len(self.given_up) >= requests)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while not writer.is_closing() and (asked := await self._next(reader)):
                self.asked.append(asked)
                self.at_once += 1
                self.most_at_once = max(self.most_at_once, self.at_once)
                try:
                    await self._answered(asked, reader, writer)
                finally:
                    self.at_once -= 1
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _answered(
        self, asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        answering = asyncio.ensure_future(self.handler(asked, Reply(writer)))
        # A caller sends nothing while it waits: if this ends first, it has hung up.
        hanging_up = asyncio.ensure_future(reader.read(1))
        both = {answering, hanging_up}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                self.given_up.append(asked)
                writer.close()
                async with self.changed:
                    self.changed.notify_all()
        finally:
            for task in both:
                task.cancel()
            for outcome in await asyncio.gather(*both, return_exceptions=True):
                if isinstance(outcome, AssertionError):
                    raise outcome

    async def _next(self, reader: asyncio.StreamReader) -> Asked | None:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ", 2)
        pairs = (line.split(":", 1) for line in lines if ":" in line)
        headers = {name.strip().lower(): value.strip() for name, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        return Asked(method, path, headers, body, len(self.asked) + 1)


@asynccontextmanager
async def faulty_server(handler: Handler) -> AsyncIterator[FaultyServer]:
    server = FaultyServer("", handler)
    callers: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        callers.add(task)
        try:
            await server.serve(reader, writer)
        finally:
            callers.discard(task)

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listening.close()
        for caller in list(callers):
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
