"""ASGI middleware around every request: logging, metrics, headers, body limits and HEAD."""

import asyncio
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from urllib.parse import urlsplit

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hasat import telemetry
from hasat.api.authentication import PROBES, is_loopback
from hasat.api.metrics import HttpMetrics
from hasat.api.problems import UnexpectedError, problem_response, to_hasat_error
from hasat.api.routing import RouteTable
from hasat.api.usage import UsageCounter
from hasat.http.routes import (
    LANGUAGE,
    Exchange,
    body_limit_of,
    exchange_of,
    header_of,
)
from hasat.messages import Language, preferred_language

_POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'; object-src 'none'"
)
SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": _POLICY,
    # Not no-referrer: with that, browsers hide the Origin of our own pages' forms.
    "Referrer-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def security_headers(base_map: str | None = None) -> Mapping[str, str]:
    """Return the headers of every response; pages may load only a base map from elsewhere."""
    if base_map is None:
        return SECURITY_HEADERS
    parts = urlsplit(base_map)
    allowed = f"'self' {parts.scheme}://{parts.netloc}"
    policy = f"{_POLICY}; img-src {allowed}; connect-src {allowed}"
    return {**SECURITY_HEADERS, "Content-Security-Policy": policy}


# Browsers ignore it on untrusted origins and log an error there.
_TRUSTED_ORIGINS_ONLY = "Cross-Origin-Opener-Policy"
_VALID_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")
_CLIENT_CLOSED = 499

log = structlog.get_logger(__name__)


class RequestMiddleware:
    """Assigns a request id, adds headers, measures and logs, and turns errors into problems."""

    def __init__(
        self,
        app: ASGIApp,
        metrics: HttpMetrics,
        routes: RouteTable,
        headers: Mapping[str, str] = SECURITY_HEADERS,
        usage: UsageCounter | None = None,
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._usage = usage
        self._routes = routes
        self._headers = [(k.lower().encode(), v.encode()) for k, v in headers.items()]
        untrusted = _TRUSTED_ORIGINS_ONLY.lower().encode()
        self._untrusted_headers = [one for one in self._headers if one[0] != untrusted]
        # Bound here, because finding out where a logger is used costs as much as its line.
        self._log = log.bind()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": "not served here"})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = Exchange(_request_id(scope), scope["method"], scope["path"], _language(scope))
        tokens = structlog.contextvars.bind_contextvars(request_id=exchange.request_id)
        # A copy: the app must not change the scope of the server.
        handled = {**scope, "hasat": exchange}
        try:
            if telemetry.is_exporting():
                await self._trace(handled, exchange, receive, send)
            else:
                await self._handle(handled, exchange, receive, send)
        finally:
            structlog.contextvars.reset_contextvars(**tokens)

    async def _trace(self, scope: Scope, exchange: Exchange, receive: Receive, send: Send) -> None:
        """Handle a request in a span of the caller's trace; its path may name a person."""
        with telemetry.span(
            exchange.method,
            "server",
            {"http.request.method": exchange.method, "url.scheme": scope.get("scheme", "http")},
            metric="http.server.request.duration",
            headers={"traceparent": header_of(scope, b"traceparent")},
        ) as span:
            status = await self._handle(scope, exchange, receive, send)
            route = exchange.route or self._routes.template(exchange.path, exchange.method)
            span.rename(f"{exchange.method} {route}")
            span.set(http__route=route, http__response__status_code=status)
            if status >= 500:
                span.fail(str(status))

    async def _handle(self, scope: Scope, exchange: Exchange, receive: Receive, send: Send) -> int:
        started = time.perf_counter()
        self._metrics.begin()
        status: int | None = None
        size = 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.body":
                size += len(message.get("body", b""))
            elif message["type"] == "http.response.start":
                status = message["status"]
                extra = self._headers if _is_trusted(scope) else self._untrusted_headers
                message["headers"] = _add_headers(message.get("headers", ()), exchange, extra)
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        except ClientDisconnect:
            pass
        except Exception as error:  # noqa: BLE001 - every error becomes a problem
            _log_error(error, exchange)
            if status is None:
                await problem_response(error, exchange)(scope, receive, send_with_headers)
        finally:
            seconds = time.perf_counter() - started
            self._record(scope, exchange, status or _CLIENT_CLOSED, seconds)
            if self._usage is not None:
                self._usage.record(exchange.caller, status or _CLIENT_CLOSED, size)
        return status or _CLIENT_CLOSED

    def _record(self, scope: Scope, exchange: Exchange, status: int, seconds: float) -> None:
        template = exchange.route or self._routes.template(exchange.path, exchange.method)
        self._metrics.record(template, exchange.method, status, seconds)
        write = self._log.debug if exchange.path in PROBES else self._log.info
        write(
            "request",
            method=exchange.method,
            path=exchange.path,
            status=status,
            milliseconds=round(seconds * 1000, 1),
            client=exchange.caller.name if exchange.caller else None,
            address=scope["client"][0] if scope.get("client") else None,
        )


def _is_trusted(scope: Scope) -> bool:
    """Return whether a browser trusts the origin: encrypted, or on its own machine."""
    host, _ = scope.get("server") or ("", None)
    return scope.get("scheme") == "https" or is_loopback(host)


_OWN_HEADERS = frozenset(
    {b"x-request-id", b"ratelimit-limit", b"ratelimit-remaining", b"ratelimit-reset"}
)
RawHeaders = Iterable[tuple[bytes, bytes]]


def _add_headers(
    given: RawHeaders, exchange: Exchange, extra: Sequence[tuple[bytes, bytes]]
) -> list[tuple[bytes, bytes]]:
    """Return the headers of every response with those that the route has set."""
    headers = [one for one in given if one[0] not in _OWN_HEADERS]
    names = {name for name, _ in headers}
    headers += [one for one in extra if one[0] not in names]
    headers.append((b"x-request-id", exchange.request_id.encode()))
    if (allowance := exchange.allowance) is not None:
        headers += (
            (b"ratelimit-limit", b"%d" % allowance.limit),
            (b"ratelimit-remaining", b"%d" % allowance.remaining),
            (b"ratelimit-reset", b"%d" % allowance.reset_seconds),
        )
    return headers


def _log_error(error: Exception, exchange: Exchange) -> None:
    known = to_hasat_error(error, exchange)
    if isinstance(known, UnexpectedError):
        log.error("request.failed", path=exchange.path, exc_info=error)
    elif known.status >= 500:
        log.warning("request.unavailable", path=exchange.path, reason=str(error))


def _language(scope: Scope) -> Language:
    """Return the language of the requested page, else the one that Accept-Language prefers."""
    chosen: Language | None = scope.get(LANGUAGE)
    return chosen or _preferred_language(header_of(scope, b"accept-language"))


@lru_cache(maxsize=256)
def _preferred_language(header: str) -> Language:
    return preferred_language(header)


def _request_id(scope: Scope) -> str:
    given = header_of(scope, b"x-request-id")
    return given if _VALID_REQUEST_ID.fullmatch(given) else os.urandom(8).hex()


_MAX_DISCARDED_BYTES = 10_000_000
_MAX_DISCARD_SECONDS = 2.0
_STREAM_END_SECONDS = 1.0


class LeanMiddleware:
    """Passes requests that their route answers with a lean path directly to it."""

    def __init__(self, app: ASGIApp, routes: RouteTable) -> None:
        self._app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "GET" and not scope["query_string"]:
            base, _, key = scope["path"].rpartition("/")
            found = self._routes.lean_paths.get(base)
            if found is not None and found[1].key.fullmatch(key):
                exchange_of(scope).route, lean = found
                response = await lean.respond(Request(scope, receive), key)
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)


class BodyLimitMiddleware:
    """Rejects a body that is larger than its route accepts.

    The limit is read when the route first reads: only then is the route known.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        seen = 0

        async def receive_counted() -> Message:
            nonlocal seen
            limit = body_limit_of(scope.get("endpoint"))
            if seen == 0 and (length := _content_length(scope)) > limit:
                if length <= limit + _MAX_DISCARDED_BYTES:
                    await _discard(receive)
                raise _too_large(limit)
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > limit:
                if message.get("more_body", False):
                    await _discard(receive)
                raise _too_large(limit)
            return message

        await self._app(scope, receive_counted, send)


class HeadMiddleware:
    """Responds to HEAD with the headers of GET.

    The route sees a GET whose client disconnects after the headers, so that a stream ends as it
    does when a client leaves.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        listening = False

        async def receive_tracked() -> Message:
            nonlocal listening
            listening = True
            try:
                return await receive()
            finally:
                listening = False

        async def send_start(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body"})
                if listening:
                    # Let the stream notice the disconnect before its first chunk.
                    await asyncio.sleep(_STREAM_END_SECONDS)
            else:
                await asyncio.sleep(0)

        scope["method"] = "GET"
        # From ASGI 2.4 on, streams rely on errors of `send`, which leave them half closed.
        scope["asgi"] = {**scope.get("asgi", {}), "spec_version": "2.3"}
        await self._app(scope, receive_tracked, send_start)


async def _discard(receive: Receive) -> None:
    """Read and drop more of the body: a client still sending would see a reset, no response."""
    left, more = _MAX_DISCARDED_BYTES, True
    with suppress(TimeoutError):
        async with asyncio.timeout(_MAX_DISCARD_SECONDS):
            while more and left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                more = message.get("more_body", False)


def _content_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() else 0
    return 0


def _too_large(limit: int) -> HTTPException:
    # Starlette passes only its own exception here; a handler turns it into a problem.
    return HTTPException(413, f"The body is larger than {limit:,} bytes, the limit of this path.")
