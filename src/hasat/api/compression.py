"""Compression of large responses, as the caller accepts it.

A response is compressed when its body is text, complete and large enough to gain by it. Its ETag is
weak, so that it names the record whatever the encoding.

Responses to a login are never compressed. A page of another site can make a browser send requests
with the cookie, but with no key and no signature: only with a login could it put text of its own
next to a secret and learn from the size whether they are alike (BREACH).
"""

import asyncio
from collections.abc import Callable, Mapping

import zstandard
from isal import igzip
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hasat.http.routes import exchange_of, header_of

MIN_BYTES = 2_000
"""A smaller body fits in about one packet anyway."""
_IN_THREAD_BYTES = 200_000
_TYPES = (b"application/json", b"application/x-ndjson", b"application/geo+json", b"text/csv")
_GZIP_LEVEL, _ZSTD_LEVEL = 2, 3

_ENCODERS: Mapping[str, Callable[[bytes], bytes]] = {
    # The one that is named first is preferred where the caller ranks both alike.
    "zstd": lambda body: zstandard.ZstdCompressor(_ZSTD_LEVEL).compress(body),
    "gzip": lambda body: igzip.compress(body, _GZIP_LEVEL, mtime=0),
}


class CompressionMiddleware:
    """Compresses the responses of the API."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/api/"):
            await self._app(scope, receive, send)
            return
        start: Message | None = None

        async def send_compressed(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and _may_gain(message):
                # Whether it is complete is known only with its body.
                start = message
                return
            if start is None:
                await send(message)
                return
            begun, start = start, None
            headers, body = begun["headers"], message.get("body", b"")
            if len(body) >= MIN_BYTES and not message.get("more_body", False):
                headers = [*headers, (b"vary", b"Accept-Encoding")]
                encoding = _chosen_encoding(scope)
                if encoding is not None:
                    body = await _encode(encoding, body)
                    headers = [one for one in headers if one[0] != b"content-length"]
                    headers.append((b"content-encoding", encoding.encode()))
                    headers.append((b"content-length", b"%d" % len(body)))
                    message = {**message, "body": body}
            await send({**begun, "headers": headers})
            await send(message)

        await self._app(scope, receive, send_compressed)


def _may_gain(start: Message) -> bool:
    """Return whether a response has a type that compresses well, and no encoding yet."""
    if start["status"] != 200:
        return False
    headers = dict(start["headers"])
    if int(headers.get(b"content-length", b"0")) < MIN_BYTES:
        return False
    is_text = headers.get(b"content-type", b"").partition(b";")[0] in _TYPES
    is_weak = headers.get(b"etag", b"W/").startswith(b"W/")
    return is_text and is_weak and b"content-encoding" not in headers


def _chosen_encoding(scope: Scope) -> str | None:
    caller = exchange_of(scope).caller
    if caller is not None and caller.kind == "login":
        return None
    return preferred_encoding(header_of(scope, b"accept-encoding"))


def preferred_encoding(accepted: str) -> str | None:
    """Return the encoding that an Accept-Encoding header ranks highest; None for no encoding."""
    weights: dict[str, float] = {}
    for part in accepted.lower().split(","):
        name, _, parameter = part.partition(";")
        key, _, value = parameter.partition("=")
        try:
            weights[name.strip()] = float(value) if key.strip() == "q" else 1.0
        except ValueError:
            weights[name.strip()] = 0.0
    rest = weights.get("*", 0.0)
    ranked = {name: weights.get(name, rest) for name in _ENCODERS}
    best = max(ranked, key=ranked.__getitem__)
    identity = weights.get("identity", 0.0)
    return best if ranked[best] > 0 and ranked[best] >= identity else None


async def _encode(encoding: str, body: bytes) -> bytes:
    encode = _ENCODERS[encoding]
    if len(body) < _IN_THREAD_BYTES:
        return encode(body)
    return await asyncio.to_thread(encode, body)
