"""Requests to a misbehaving server: limited in time and size, verbatim, never stuck."""

import asyncio
import gzip
import json
import time
import zlib
from collections.abc import Awaitable, Callable

import pytest

from hasat.fetch import Client, ClientOptions, Outcome, Request
from hasat.fetch.client import NoResponseError
from hasat.fetch.outcomes import Response, Verdict
from support.faulty_server import ReceivedRequest, Reply, faulty_server

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

RULES = ClientOptions("Hasat test", {"X-API-Key": "secret"}, max_bytes=100_000)


async def sent(
    handler: Callable[[ReceivedRequest, Reply], Awaitable[None]],
    request: Request | None = None,
    rules: ClientOptions = RULES,
) -> Response:
    async with faulty_server(handler) as server, Client(rules) as client:
        return await client.send(f"{server.url}/x", request or Request("/x", timeout=10.0))


async def refusal(
    handler: Callable[[ReceivedRequest, Reply], Awaitable[None]], request: Request | None = None
) -> Verdict:
    with pytest.raises(NoResponseError) as caught:
        await sent(handler, request)
    return caught.value.verdict


async def test_a_response_is_returned_verbatim() -> None:
    body = '{"Message": "Parsel Bulunamadı: Enlem = 41,0369"}'.encode()

    async def handler(_: ReceivedRequest, reply: Reply) -> None:
        await reply.send(404, body, {"X-Left": "12"})

    answer = await sent(handler)
    assert (answer.status, answer.body) == (404, body)
    assert answer.headers["x-left"] == "12"


async def test_only_the_configured_headers_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    seen: list[ReceivedRequest] = []

    async def handler(request: ReceivedRequest, reply: Reply) -> None:
        seen.append(request)
        await reply.json(200, {})

    request = Request("/x", timeout=10.0, method="POST", json={"coordinates": ["ş"]})
    await sent(handler, request)
    (request,) = seen
    assert request.method == "POST"
    assert json.loads(request.body) == {"coordinates": ["ş"]}
    named = set(request.headers) - {"host", "content-length"}
    assert named == {"user-agent", "accept", "accept-encoding", "x-api-key", "content-type"}
    assert request.headers["user-agent"] == "Hasat test"
    assert request.headers["x-api-key"] == "secret"


async def test_gzip_is_decompressed() -> None:
    async def handler(_: ReceivedRequest, reply: Reply) -> None:
        await reply.send(200, gzip.compress(b'{"a": 1}'), {"content-encoding": "gzip"})

    assert (await sent(handler)).body == b'{"a": 1}'


async def test_a_gzip_bomb_is_not_decompressed_beyond_the_limit() -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    piece = packer.compress(bytes(1 << 20))
    bomb = piece + b"".join(packer.compress(bytes(1 << 20)) for _ in range(200)) + packer.flush()

    async def handler(_: ReceivedRequest, reply: Reply) -> None:
        await reply.send(200, bomb, {"content-encoding": "gzip"})

    verdict = await refusal(handler)
    assert verdict.outcome is Outcome.BROKEN
    assert "larger than 100000 bytes" in verdict.reason


async def test_invalid_gzip_is_broken() -> None:
    async def handler(_: ReceivedRequest, reply: Reply) -> None:
        await reply.send(200, b"not gzip at all", {"content-encoding": "gzip"})

    assert (await refusal(handler)).outcome is Outcome.BROKEN


async def test_an_endless_body_is_cut_at_the_limit() -> None:
    async def handler(_: ReceivedRequest, reply: Reply) -> None:
        await reply.head(200, {"transfer-encoding": "chunked"})
        while True:
            await reply.write(b"1000\r\n" + bytes(4096) + b"\r\n")

    assert (await refusal(handler)).outcome is Outcome.BROKEN


async def test_a_body_that_trickles_ends_with_the_time_out() -> None:
    async def handler(_: ReceivedRequest, reply: Reply) -> None:
        await reply.head(200, {"content-length": "100000"})
        while True:
            await reply.write(b" ")
            await asyncio.sleep(0.02)

    verdict = await refusal(handler, Request("/x", timeout=0.3))
    assert verdict.outcome is Outcome.TRANSIENT
    assert "0.3 s" in verdict.reason


async def test_silence_ends_with_the_time_out() -> None:
    async def handler(_: ReceivedRequest, __: Reply) -> None:
        await asyncio.Event().wait()

    assert (await refusal(handler, Request("/x", timeout=0.2))).outcome is Outcome.TRANSIENT


async def test_a_reset_is_transient() -> None:
    async def handler(_: ReceivedRequest, reply: Reply) -> None:
        reply.reset()

    assert (await refusal(handler)).outcome is Outcome.TRANSIENT


async def test_a_truncated_response_is_transient() -> None:
    async def handler(_: ReceivedRequest, reply: Reply) -> None:
        await reply.head(200, {"content-length": "1000"})
        await reply.write(b'{"a":')
        reply.writer.close()

    assert (await refusal(handler)).outcome is Outcome.TRANSIENT


async def test_a_refused_connection_is_transient() -> None:
    async with faulty_server(lambda *_: asyncio.sleep(0)) as server:
        dead = server.url
    async with Client(RULES) as client:
        with pytest.raises(NoResponseError) as caught:
            await client.send(f"{dead}/x", Request("/x", timeout=5.0))
    assert caught.value.verdict.outcome is Outcome.TRANSIENT


async def test_a_redirect_is_not_followed_with_the_key() -> None:
    seen: list[str] = []

    async def handler(request: ReceivedRequest, reply: Reply) -> None:
        seen.append(request.path)
        await reply.send(302, b"", {"location": "/elsewhere"})

    assert (await sent(handler)).status == 302
    assert seen == ["/x"]


async def test_a_cancelled_request_hangs_up() -> None:
    arrived = asyncio.Event()

    async def handler(_: ReceivedRequest, __: Reply) -> None:
        arrived.set()
        await asyncio.Event().wait()

    async with faulty_server(handler) as server, Client(RULES) as client:
        asking = asyncio.create_task(client.send(f"{server.url}/x", Request("/x", timeout=60.0)))
        await arrived.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await server.wait_until_abandoned()


async def test_waiting_for_responses_does_not_block_the_event_loop() -> None:
    async def handler(_: ReceivedRequest, reply: Reply) -> None:
        await asyncio.sleep(0.3)
        await reply.send(200, gzip.compress(bytes(90_000)), {"content-encoding": "gzip"})

    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.005)
            ticks += 1

    ticking = asyncio.create_task(tick())
    started = time.monotonic()
    await sent(handler)
    ticking.cancel()
    # Were the loop blocked, it would have ticked once or twice at most.
    assert ticks > (time.monotonic() - started) / 0.1
