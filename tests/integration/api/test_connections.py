"""Clients that are silent, slow or unclear cost the server a moment, never its other clients."""

import asyncio
import errno
import json
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from structlog.testing import capture_logs
from uvicorn.server import ServerState

from hasat.http.connections import (
    ConnectionLimits,
    OccasionalWarning,
    default_max_connections,
    on_loop_error,
)
from hasat.http.listener import Listener, bind

pytestmark = pytest.mark.anyio

Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]
SHORT = 0.3
NEVER = 600.0


class Server:
    """A small app on a real port."""

    def __init__(self) -> None:
        self.port = 0
        self.endless = asyncio.Event()
        self.left = asyncio.Event()
        routes = [
            Route("/healthz", self._healthz),
            Route("/take", self._take, methods=["POST"]),
            Route("/early", self._early, methods=["POST"]),
            Route("/endless", self._endless),
            Route("/names", self._names, methods=["POST"]),
        ]
        self.app = Starlette(routes=routes)

    async def open(self, data: bytes = b"") -> Line:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        await writer.drain()
        return reader, writer

    async def ask(self, data: bytes) -> bytes:
        """Send bytes as they are; return all that comes back until the server closes."""
        return await rest_of(await self.open(data))

    async def is_well(self) -> bool:
        answer = await self.ask(b"GET /healthz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        return answer.startswith(b"HTTP/1.1 200 ")

    async def _healthz(self, request: Request) -> Response:
        return PlainTextResponse("ok")

    async def _take(self, request: Request) -> Response:
        return PlainTextResponse(str(len(await request.body())))

    async def _early(self, request: Request) -> Response:
        return PlainTextResponse("not read")

    async def _names(self, request: Request) -> Response:
        await request.body()
        return PlainTextResponse(",".join(request.headers))

    async def _endless(self, request: Request) -> Response:
        async def parts() -> AsyncIterator[bytes]:
            self.endless.set()
            try:
                while True:
                    yield b"x" * 100_000
                    await asyncio.sleep(0)
            finally:
                self.left.set()

        return StreamingResponse(parts())


@asynccontextmanager
async def serving(
    *, most: int = 50, header: float = NEVER, body: float = NEVER, send: float = NEVER
) -> AsyncIterator[Server]:
    server = Server()
    listening = bind("127.0.0.1", 0)
    server.port = listening.getsockname()[1]
    listener = Listener(server.app, listening, limits=ConnectionLimits(most, header, body, send))
    await listener.start()
    try:
        yield server
    finally:
        listener.stop_now()
        await listener.wait_closed()


async def rest_of(line: Line) -> bytes:
    reader, writer = line
    try:
        async with asyncio.timeout(30):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def status_of(answer: bytes) -> int:
    head, _, body = answer.partition(b"\r\n\r\n")
    status = int(head.split()[1])
    assert b"connection: close" in head.lower()
    assert json.loads(body)["status"] == status
    return status


async def test_a_silent_connection_is_closed() -> None:
    async with serving(header=SHORT) as server:
        assert await server.ask(b"") == b""


@pytest.mark.parametrize(
    "sent", [b"G", b"GET /healthz HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: h\r\nA: "]
)
async def test_half_a_header_is_answered_with_408(sent: bytes) -> None:
    async with serving(header=SHORT) as server:
        assert status_of(await server.ask(sent)) == 408


async def test_a_byte_now_and_then_does_not_extend_the_time() -> None:
    async with serving(header=SHORT) as server:
        reader, writer = await server.open(b"GET /healthz HTTP/1.1\r\nHost: h\r\nA: ")

        async def drip() -> None:
            while True:
                writer.write(b"a")
                await asyncio.sleep(0.02)

        dripping = asyncio.create_task(drip())
        async with asyncio.timeout(30):
            answer = await reader.readuntil(b"\r\n")
        dripping.cancel()
        writer.close()
        assert answer.startswith(b"HTTP/1.1 408 ")


async def test_the_second_request_of_a_connection_has_the_same_time() -> None:
    async with serving(header=SHORT) as server:
        reader, writer = await server.open(b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
        async with asyncio.timeout(30):
            await reader.readuntil(b"\r\n\r\nok")
        writer.write(b"GET /healthz HTTP/1.1\r\nHo")
        assert status_of(await rest_of((reader, writer))) == 408


@pytest.mark.parametrize(
    "framing", [b"Content-Length: 10\r\n\r\nabc", b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"]
)
async def test_half_a_body_is_answered_with_408(framing: bytes) -> None:
    async with serving(body=SHORT) as server:
        answer = await server.ask(b"POST /take HTTP/1.1\r\nHost: h\r\n" + framing)
        assert status_of(answer) == 408


async def test_a_body_that_nobody_reads_has_an_end_too() -> None:
    async with serving(body=SHORT) as server:
        answer = await server.ask(
            b"POST /early HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc"
        )
        assert answer.startswith(b"HTTP/1.1 200 ")


async def test_who_takes_in_nothing_of_a_response_is_left() -> None:
    async with serving(send=SHORT) as server:
        _, writer = await server.open(b"GET /endless HTTP/1.1\r\nHost: h\r\n\r\n")
        async with asyncio.timeout(30):
            await server.endless.wait()
            await server.left.wait()
        writer.close()


async def test_silent_connections_give_way_to_one_that_asks() -> None:
    async with serving(most=20) as server:
        silent = [await server.open() for _ in range(300)]
        with capture_logs() as logs:
            assert await server.is_well()
        assert sum(one["event"] == "connections.full" for one in logs) <= 1
        for _, writer in silent:
            writer.close()


@pytest.mark.parametrize(
    "sent", [b"GET / HT", b"POST /take HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n"]
)
async def test_half_sent_requests_give_way_too(sent: bytes) -> None:
    async with serving(most=20) as server:
        slow = [await server.open(sent) for _ in range(100)]
        assert await server.is_well()
        for _, writer in slow:
            writer.close()


async def test_running_requests_are_not_cut_off_for_a_new_connection() -> None:
    async with serving(most=1) as server:
        reader, writer = await server.open(b"GET /endless HTTP/1.1\r\nHost: h\r\n\r\n")
        async with asyncio.timeout(30):
            await reader.readuntil(b"xxx")
        assert status_of(await server.ask(b"")) == 503
        async with asyncio.timeout(30):
            assert len(await reader.readexactly(1_000_000)) == 1_000_000
        writer.close()


@pytest.mark.parametrize(
    "header",
    [
        b"Content-Length: 3\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: chunked\r\nContent-Length: 3",
        b"content-length: 0\r\nTRANSFER-ENCODING: chunked",
        b"Content-Length: 3\r\nTransfer-Encoding:\r\n chunked",
        b"Content-Length: 3\r\nTransfer-Encoding: identity",
        b"Content-Length: 3\r\nTransfer-Encoding: chunked, identity",
        b"Content-Length: 3\r\nContent-Length: 4",
        b"Content-Length: 3, 4",
        b"Content-Length: +3",
        b"Content-Length: 3 3",
        b"Transfer-Encoding : chunked",
    ],
)
async def test_a_body_of_unclear_length_is_refused_and_what_follows_is_not_read(
    header: bytes,
) -> None:
    smuggled = b"\r\n\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: h\r\n\r\n"
    async with serving() as server:
        answer = await server.ask(b"POST /take HTTP/1.1\r\nHost: h\r\n" + header + smuggled)
        assert status_of(answer) in {400, 501}
        assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("header", [b"", b"Host: a\r\nHost: b\r\n"])
async def test_a_request_needs_exactly_one_host(header: bytes) -> None:
    async with serving() as server:
        assert status_of(await server.ask(b"GET /healthz HTTP/1.1\r\n" + header + b"\r\n")) == 400


async def test_what_follows_a_chunked_body_does_not_become_a_header() -> None:
    head = b"POST /names HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
    body = b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nAuthorization: x\r\n\r\n"
    async with serving() as server:
        answer = await server.ask(head + body)
    assert answer.endswith(b"\r\n\r\nhost,connection,transfer-encoding")


@pytest.mark.parametrize("tail", [b"0\r\nA: ", b"3;ext="])
async def test_what_follows_a_chunked_body_has_a_limit_too(tail: bytes) -> None:
    head = b"POST /take HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with serving() as server:
        answer = await server.ask(head + tail + b"a" * 3_000_000)
        # The response is lost when it meets what the client still sends.
        assert answer == b"" or status_of(answer) == 431


async def test_requests_sent_ahead_are_answered_in_order_up_to_a_malformed_one() -> None:
    one = b"POST /take HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n"
    sent = b"".join(one % size + b"x" * size for size in (1, 20_000, 3))
    async with serving() as server:
        answer = await server.ask(sent + b"POST /take HTTP/1.1\r\nHost : h\r\n\r\n")
    bodies = [part.partition(b"\r\n\r\n")[2] for part in answer.split(b"HTTP/1.1 200 OK")[1:]]
    assert bodies == [b"1", b"20000", b"3"]


async def test_a_request_to_upgrade_is_answered_in_http() -> None:
    upgrade = b"GET /healthz HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    last = b"GET /healthz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
    async with serving() as server:
        answer = await server.ask(upgrade + last)
    assert answer.count(b"HTTP/1.1 200 ") == 2


async def test_both_lengths_together_are_a_400() -> None:
    both = b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    async with serving() as server:
        assert status_of(await server.ask(b"POST /take HTTP/1.1\r\nHost: h\r\n" + both)) == 400
        old = b"POST /take HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
        assert status_of(await server.ask(old)) == 400


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /healthz HTTP/1.1\r\nHost: h\r\nA: " + b"a" * 20_000 + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: h\r\n" + b"a: b\r\n" * 9_000 + b"\r\n",
        b"GET /healthz?" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: h\r\n\r\n",
    ],
)
async def test_a_header_that_is_too_large_is_refused_also_when_it_comes_at_once(
    sent: bytes,
) -> None:
    async with serving() as server:
        assert status_of(await server.ask(sent)) == 431


async def test_nonsense_after_the_response_began_leaves_no_traceback() -> None:
    async with serving() as server:
        reader, writer = await server.open(
            b"POST /early HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        async with asyncio.timeout(30):
            await reader.readuntil(b"not read")
        failures: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: failures.append(context))
        writer.write(b"nonsense\r\n")
        assert await rest_of((reader, writer)) == b""
        assert failures == []


async def test_a_warning_that_repeats_is_written_once_a_minute() -> None:
    now = 0.0
    warn = OccasionalWarning("connections.full", monotonic=lambda: now)
    with capture_logs() as logs:
        for _ in range(1000):
            warn()
        now = 61.0
        warn()
    assert [one["times"] for one in logs] == [1, 1000]


async def test_running_out_of_files_is_one_line_a_minute() -> None:
    handle = on_loop_error(ServerState())
    error = OSError(errno.EMFILE, "Too many open files")
    with capture_logs() as logs:
        for _ in range(1000):
            handle(asyncio.get_running_loop(), {"exception": error, "socket": None})
    assert len(logs) <= 1
    assert all(one["event"] == "connections.out_of_files" for one in logs)


@pytest.mark.parametrize(
    ("files", "connections"),
    [(20, 8), (128, 48), (1024, 720), (10**9, 10_000), (resource.RLIM_INFINITY, 10_000)],
)
def test_the_number_of_connections_follows_the_limit_of_files(
    monkeypatch: pytest.MonkeyPatch, files: int, connections: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert default_max_connections() == connections
