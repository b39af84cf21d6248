"""Large responses are compressed as the caller accepts it, and mean the same."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
import zstandard
from isal import igzip
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from hasat.api.compression import MIN_BYTES, CompressionMiddleware, preferred_encoding
from hasat.api.middleware import HeadMiddleware
from hasat.http.routes import Caller, Exchange

pytestmark = pytest.mark.anyio

LARGE = {"items": ["ÖRNEK SANAYİ VE TİCARET"] * 500}


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [
        ("", None),
        ("gzip", "gzip"),
        ("gzip, deflate, br", "gzip"),
        ("gzip, deflate, br, zstd", "zstd"),
        ("zstd;q=0.5, gzip", "gzip"),
        ("GZIP;Q=0.5", "gzip"),
        ("gzip;q=0", None),
        ("*", "zstd"),
        ("*;q=0", None),
        ("zstd;q=0, *", "gzip"),
        ("identity", None),
        ("identity;q=0.5, gzip;q=0.1", None),
        ("gzip;q=nonsense", None),
        (";;,,=", None),
        ("gzipp", None),
    ],
)
def test_the_encoding_is_what_the_caller_ranks_highest(accepted: str, encoding: str | None) -> None:
    assert preferred_encoding(accepted) == encoding


class Asked:
    """Stands for the middleware before: it knows the caller."""

    kind: Any = "key"

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = Caller("key:1", "one", frozenset({"read"}), kind=Asked.kind)
        scope["hasat"] = Exchange("id", scope["method"], scope["path"], caller=caller)
        await self._app(scope, receive, send)


async def _large(request: Request) -> Response:
    return JSONResponse(LARGE, headers={"ETag": 'W/"1"', "Vary": "Accept"})


async def _huge(request: Request) -> Response:
    return JSONResponse({"items": LARGE["items"] * 100})


async def _small(request: Request) -> Response:
    return JSONResponse("x" * (MIN_BYTES - 3))


async def _strong(request: Request) -> Response:
    return JSONResponse(LARGE, headers={"ETag": '"1"'})


async def _binary(request: Request) -> Response:
    return Response(b"x" * 9000, media_type="application/vnd.apache.parquet")


async def _missing(request: Request) -> Response:
    return JSONResponse(LARGE, status_code=404)


async def _stream(request: Request) -> Response:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"x" * 9000

    return StreamingResponse(parts(), media_type="text/csv")


ENDPOINTS = {
    "large": _large,
    "huge": _huge,
    "small": _small,
    "strong": _strong,
    "binary": _binary,
    "missing": _missing,
    "stream": _stream,
}


@pytest.fixture
async def client(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx2.AsyncClient]:
    monkeypatch.setattr(Asked, "kind", "key")
    routes = [Route(f"/api/{name}", endpoint) for name, endpoint in ENDPOINTS.items()]
    routes.append(Route("/page", _large))
    layers = [Middleware(Asked), Middleware(HeadMiddleware), Middleware(CompressionMiddleware)]
    app = Starlette(routes=routes, middleware=layers)
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


async def _raw(
    client: httpx2.AsyncClient, path: str, accepted: str
) -> tuple[httpx2.Response, bytes]:
    async with client.stream("GET", path, headers={"Accept-Encoding": accepted}) as response:
        body = b"".join([part async for part in response.aiter_raw()])
    return response, body


@pytest.mark.parametrize("path", ["/api/large", "/api/huge"])
async def test_a_large_response_is_compressed_and_means_the_same(
    client: httpx2.AsyncClient, path: str
) -> None:
    plain, expected = await _raw(client, path, "identity")
    assert "content-encoding" not in plain.headers
    for accepted in ("gzip", "zstd"):
        response, body = await _raw(client, path, accepted)
        assert response.headers["content-encoding"] == accepted
        assert int(response.headers["content-length"]) == len(body) < len(expected) / 5
        unpack = igzip.decompress if accepted == "gzip" else zstandard.decompress
        assert unpack(body) == expected
        assert json.loads(expected)["items"]
        assert response.headers.get("etag") == plain.headers.get("etag")
        # A cache must know that the encoding depends on the request, also of the plain response.
        for one in (response, plain):
            assert "Accept-Encoding" in one.headers.get_list("vary")
        head = await client.head(path, headers={"Accept-Encoding": accepted})
        assert head.headers == response.headers
        assert head.content == b""


@pytest.mark.parametrize(
    "path",
    ["/api/small", "/api/strong", "/api/binary", "/api/missing", "/api/stream", "/page"],
)
async def test_what_would_not_gain_or_not_be_the_same_stays_as_it_is(
    client: httpx2.AsyncClient, path: str
) -> None:
    response, _ = await _raw(client, path, "gzip")
    assert "content-encoding" not in response.headers


async def test_a_login_gets_no_compression(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Asked, "kind", "login")
    response, _ = await _raw(client, "/api/large", "gzip")
    assert "content-encoding" not in response.headers
