"""A response is sent byte for byte as uvicorn sends it."""

import asyncio
import logging
import random
from typing import Any

import pytest
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from hasat.http.cycle import Cycle

pytestmark = pytest.mark.anyio

HEADERS = (
    (b"X-Frame-Options", b"DENY"),
    (b"content-length", b"5"),
    (b"Content-Length", b"4"),
    (b"transfer-encoding", b"chunked"),
    (b"Transfer-Encoding", b"gzip"),
    (b"connection", b"keep-alive, Close"),
    (b"Connection", b"upgrade"),
    (b"etag", b'W/"1"'),
    (b"not a name", b"1"),
    (b"x", b"not\r\na value"),
)
FATES = ("keep_alive", "chunked_encoding", "response_started", "response_complete", "disconnected")


class Written(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.sent: list[Any] = []

    def write(self, data: Any) -> None:
        self.sent.append(bytes(data))

    def close(self) -> None:
        self.sent.append("closed")


async def send(kind: type[RequestResponseCycle], options: dict[str, Any], messages: Any) -> Any:
    transport = Written()
    cycle = kind(
        scope={"type": "http", "method": options["method"]},  # type: ignore[typeddict-item]
        transport=transport,
        flow=FlowControl(transport),
        logger=logging.getLogger("uvicorn.error"),
        access_logger=logging.getLogger("uvicorn.access"),
        access_log=False,
        default_headers=[(b"date", b"Thu, 19 Nov 2026 21:43:10 GMT")],
        message_event=asyncio.Event(),
        expect_100_continue=False,
        keep_alive=options["keep_alive"],
        on_response=lambda: transport.sent.append("complete"),
    )
    cycle.disconnected = options["disconnected"]
    for message in messages:
        try:
            await cycle.send(message)
        except RuntimeError as error:
            transport.sent.append(str(error))
    return transport.sent, [getattr(cycle, fate) for fate in FATES]


async def test_responses_are_those_of_uvicorn() -> None:
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    dice = random.Random(seed)
    for _ in range(2000):
        options = {
            "method": dice.choice(["GET", "GET", "HEAD"]),
            "keep_alive": dice.random() < 0.8,
            "disconnected": dice.random() < 0.05,
        }
        start: dict[str, Any] = {
            "type": "http.response.start",
            "status": dice.choice([200, 204, 304, 404]),
        }
        if dice.random() < 0.95:
            start["headers"] = dice.sample(HEADERS, dice.randrange(4))
        messages = [start, {"type": "http.response.body", "body": b"12345"}]
        if dice.random() < 0.3:
            messages.insert(1, {"type": "http.response.body", "body": b"", "more_body": True})
        if dice.random() < 0.1:
            messages.insert(dice.randrange(len(messages)), dice.choice(messages))
        assert await send(Cycle, options, messages) == await send(
            RequestResponseCycle, options, messages
        )
