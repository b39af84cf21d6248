"""What only a real port shows: raw targets, early refusals, streams that callers leave."""

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fastapi import APIRouter
from pydantic import BaseModel, SecretStr
from starlette.responses import StreamingResponse
from structlog.testing import capture_logs

from hasat.api.app import create_app
from hasat.http.listener import Listener, bind
from hasat.http.routes import declare_responses
from hasat.jobs import Catalogue
from hasat.settings import HmacClient, Settings
from hasat.source import Source
from hasat.store import Store

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]


class Ticks:
    """A stream that says when it was left."""

    def __init__(self) -> None:
        self.left = asyncio.Event()
        self.running = 0
        self.router = APIRouter()
        self.router.get("/ticks", summary="Ticks", responses=declare_responses("x"))(self.stream)
        self.router.post("/take", summary="Take", responses=declare_responses(1))(self.take)
        self.router.get("/cut", summary="Ends in a fault", responses=declare_responses("x"))(
            self.cut
        )

    async def stream(self) -> StreamingResponse:
        async def ticks() -> AsyncIterator[bytes]:
            self.running += 1
            try:
                while True:
                    yield b"tick\n"
                    await asyncio.sleep(0.01)
            finally:
                self.running -= 1
                self.left.set()

        return StreamingResponse(ticks(), media_type="text/plain")

    async def cut(self) -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            yield b"first"
            raise RuntimeError("a fault")

        return StreamingResponse(parts(), media_type="text/plain")

    async def take(self, body: "Taken") -> int:
        return len(body.text)


class Taken(BaseModel):
    text: str


class Wire:
    """Sends bytes as they are and reads one answer."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def open(self, *lines: str, body: bytes = b"") -> asyncio.StreamReader:
        reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writer.write("\r\n".join((*lines, "", "")).encode() + body)
        return reader

    async def ask(self, *lines: str, body: bytes = b"") -> tuple[int, dict[str, str], bytes]:
        reader = await self.open(*lines, "Connection: close", body=body)
        async with asyncio.timeout(30):
            raw = await reader.read()
        self.leave()
        head, _, rest = raw.partition(b"\r\n\r\n")
        first, *others = head.decode().split("\r\n")
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in others)}
        return int(first.split()[1]), headers, rest

    def leave(self) -> None:
        self._writer.close()


@pytest.fixture
def ticks() -> Ticks:
    return Ticks()


@pytest.fixture
async def wire(settings: Settings, store: Store, ticks: Ticks) -> AsyncIterator[Wire]:
    client = HmacClient(access_key="AK1", secret_key=SecretStr("a secret"), name="accounting")
    clients = settings.authentication.model_copy(update={"clients": (client,)})
    settings = settings.model_copy(update={"authentication": clients})
    source = Source("ticks", "Ticks", routers=lambda: (ticks.router,))
    app = create_app(settings, store, Catalogue.of((), settings), (source,))
    socket = bind("127.0.0.1", 0)
    listener = Listener(app, socket)
    await listener.start()
    yield Wire(socket.getsockname()[1])
    listener.drain()
    await listener.wait_closed()


def problem(body: bytes) -> Any:
    return json.loads(body)["code"]


@pytest.mark.parametrize(
    "target",
    ["/api/v1/x", "/api/v1/x?b=2&a=%C4%B0", "/api/v1/%2e%2e//x;y=1?q=a+b&&", "/api/v1/x?y?z"],
)
async def test_a_signature_covers_the_target_byte_by_byte(wire: Wire, target: str) -> None:
    timestamp = str(int(time.time()))
    text = f"GET\n{target}\n{timestamp}".encode()
    signature = hmac.new(b"a secret", text, hashlib.sha256).hexdigest()
    signed = (f"X-Timestamp: {timestamp}", f"X-Signature: {signature}", "X-Access-Key: AK1")
    status, headers, _ = await wire.ask(f"GET {target} HTTP/1.1", "Host: localhost", *signed)
    assert status == 404  # let in, and nothing there
    assert headers["ratelimit-limit"] == "600"
    status, _, body = await wire.ask(f"GET {target}& HTTP/1.1", "Host: localhost", *signed)
    assert (status, problem(body)) == (401, "signature-wrong")


async def test_a_name_of_another_is_refused_on_the_wire(wire: Wire) -> None:
    for host in ("Host: evil.example", "Host: 10.0.0.1:8787", "Host: "):
        status, headers, body = await wire.ask("GET /api/v1/status HTTP/1.1", host)
        assert (status, problem(body)) == (403, "host-not-allowed")
        assert headers["x-frame-options"] == "DENY"
    status, _, body = await wire.ask("GET /healthz HTTP/1.0")
    assert (status, problem(body)) == (403, "host-not-allowed")


async def test_a_huge_body_is_refused_before_it_is_sent(wire: Wire) -> None:
    status, _, body = await wire.ask(
        "POST /api/v1/take HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        "Content-Length: 5000000000",
    )
    assert (status, problem(body)) == (413, "body-too-large")


async def test_a_body_that_grows_too_large_is_refused_and_the_caller_hears_it(wire: Wire) -> None:
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    status, _, body = await wire.ask(
        "POST /api/v1/take HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        "Transfer-Encoding: chunked",
        body=chunk * 32 + b"0\r\n\r\n",
    )
    assert (status, problem(body)) == (413, "body-too-large")


async def test_head_ends_at_once_also_on_a_stream(wire: Wire, ticks: Ticks) -> None:
    status, headers, body = await wire.ask("HEAD /api/v1/ticks HTTP/1.1", "Host: localhost")
    assert (status, body) == (200, b"")
    assert headers["content-type"].startswith("text/plain")
    counted = b'hasat_http_requests_total{method="HEAD",route="/api/v1/ticks",status="200"} 1.0'
    async with asyncio.timeout(30):
        while counted not in (await wire.ask("GET /metrics HTTP/1.1", "Host: localhost"))[2]:
            pass
    assert ticks.running == 0


async def test_a_stream_arrives_bit_by_bit_and_ends_when_its_caller_leaves(
    wire: Wire, ticks: Ticks
) -> None:
    reader = await wire.open("GET /api/v1/ticks HTTP/1.1", "Host: localhost")
    async with asyncio.timeout(30):
        await reader.readuntil(b"tick\n")
        await reader.readuntil(b"tick\n")
        assert not ticks.left.is_set()
        wire.leave()
        await ticks.left.wait()


async def test_a_stream_that_fails_is_seen_to_be_incomplete(wire: Wire) -> None:
    with capture_logs():
        reader = await wire.open("GET /api/v1/cut HTTP/1.1", "Host: localhost")
        async with asyncio.timeout(30):
            raw = await reader.read()
    wire.leave()
    assert raw.endswith(b"first\r\n")
    assert not raw.endswith(b"0\r\n\r\n")
