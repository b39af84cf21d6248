"""An HTTP server on loopback whose responses a test controls, and which sees hang-ups."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

_NO_LINGER = b"\x01\x00\x00\x00\x00\x00\x00\x00"


@dataclass(frozen=True)
class ReceivedRequest:
    """One request as it was received."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    number: int


class Reply:
    """The response to one client."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer

    async def send(
        self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a complete response."""
        lines = {"content-length": str(len(body)), "content-type": "application/json"}
        await self.head(status, lines | dict(headers or {}))
        await self.write(body)

    async def json(
        self, status: int, content: Any, headers: Mapping[str, str] | None = None
    ) -> None:
        await self.send(status, json.dumps(content, ensure_ascii=False).encode(), headers)

    async def head(self, status: int, headers: Mapping[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} Status", *(f"{k}: {v}" for k, v in headers.items())]
        await self.write(("\r\n".join(lines) + "\r\n\r\n").encode())

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        """Reset the connection."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self.writer.transport.abort()


Handler = Callable[[ReceivedRequest, Reply], Awaitable[None]]


@dataclass
class FaultyServer:
    """A server with the requests it received, and those that the client abandoned."""

    url: str
    handler: Handler
    received: list[ReceivedRequest] = field(default_factory=list)
    abandoned: list[ReceivedRequest] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    concurrent: int = 0
    max_concurrent: int = 0

    async def wait_until_abandoned(self, requests: int = 1) -> None:
        """Wait until this many clients have hung up."""
        async with asyncio.timeout(60), self.changed:
            await self.changed.wait_for(lambda: len(self.abandoned) >= requests)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while not writer.is_closing() and (request := await self._next(reader)):
                self.received.append(request)
                self.concurrent += 1
                self.max_concurrent = max(self.max_concurrent, self.concurrent)
                try:
                    await self._respond(request, reader, writer)
                finally:
                    self.concurrent -= 1
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _respond(
        self, request: ReceivedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        responding = asyncio.ensure_future(self.handler(request, Reply(writer)))
        # A client sends nothing while it waits: if this ends first, it has hung up.
        hanging_up = asyncio.ensure_future(reader.read(1))
        both = {responding, hanging_up}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not responding.done():
                self.abandoned.append(request)
                writer.close()
                async with self.changed:
                    self.changed.notify_all()
        finally:
            for task in both:
                task.cancel()
            for outcome in await asyncio.gather(*both, return_exceptions=True):
                if isinstance(outcome, AssertionError):
                    raise outcome

    async def _next(self, reader: asyncio.StreamReader) -> ReceivedRequest | None:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ", 2)
        pairs = (line.split(":", 1) for line in lines if ":" in line)
        headers = {name.strip().lower(): value.strip() for name, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        return ReceivedRequest(method, path, headers, body, len(self.received) + 1)


@asynccontextmanager
async def faulty_server(handler: Handler) -> AsyncIterator[FaultyServer]:
    server = FaultyServer("", handler)
    clients: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        clients.add(task)
        try:
            await server.serve(reader, writer)
        finally:
            clients.discard(task)

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listening.close()
        for client in list(clients):
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
