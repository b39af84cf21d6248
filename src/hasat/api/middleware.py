"""ASGI middleware around every request: logging, metrics, headers, body limits and HEAD."""

from collections import deque
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from fastapi import FastAPI
from fastapi.routing import RouteContext, iter_route_contexts
import re
import secrets
import time
from collections.abc import Mapping
from urllib.parse import urlsplit
import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from hasat.api.authentication import PROBES, is_loopback
from hasat.api.metrics import HttpMetrics
from hasat.api.problems import problem_response, to_hasat_error
from hasat.api.problems import UnexpectedError
from hasat.http.routes import LANGUAGE, Exchange
from hasat.messages import Language, preferred_language
import asyncio
from contextlib import suppress
from starlette.exceptions import HTTPException
from hasat.http.routes import body_limit_of

UNMATCHED = "unmatched"
_BASE_SEGMENTS = 4
"""Of a path: nothing, api, v1 and the dataset."""


def build_routes(app: FastAPI) -> None:
    """Build all routes now; else whoever comes first waits half a second for it."""
    deque(iter_route_contexts(app.routes), maxlen=0)


class RouteTable:
    """The app's routes in the order in which the router tries them."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._known: tuple[int, tuple[RouteContext, ...]] = (0, ())

    def template(self, path: str, method: str) -> str:
        """The path as it was declared (`/api/v1/runs/{id}`), never as it was called."""
        partly = UNMATCHED
        for route in self._fitting(path):
            if not route.methods or method in route.methods:
                return route.path_format or UNMATCHED
            if partly == UNMATCHED:
                partly = route.path_format or UNMATCHED
        return partly

    def methods(self, path: str) -> Sequence[str]:
        """All methods that this path takes, over all of its routes."""
        found = {method for route in self._fitting(path) for method in route.methods or ()}
        return sorted(found | ({"HEAD"} if "GET" in found else set()))

    def similar(self, path: str) -> str | None:
        """The base path that was likely meant: /api/v1/einvoice for /api/v1/einvoce/1234567890."""
        bases = {_base(route.path_format) for route in self._routes() if route.path_format}
        return next(
            iter(get_close_matches(_base(path), bases - {_base(path)}, n=1, cutoff=0.8)), None
        )

    def _fitting(self, path: str) -> Iterator[RouteContext]:
        return (route for route in self._routes() if route.path_regex.match(path))

    def _routes(self) -> tuple[RouteContext, ...]:
        count, routes = self._known
        if count != len(self._app.routes):
            # Pages are added after the app is made: look again whenever there are more.
            routes = tuple(
                route
                for route in iter_route_contexts(self._app.routes)
                if getattr(route, "path_regex", None) is not None
            )
            self._known = (len(self._app.routes), routes)
        return routes


def _base(path: str) -> str:
    return "/".join(path.split("/")[:_BASE_SEGMENTS])

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
    """What every answer carries; a base map is all that a page may load from elsewhere."""
    if base_map is None:
        return SECURITY_HEADERS
    parts = urlsplit(base_map)
    allowed = f"'self' {parts.scheme}://{parts.netloc}"
    policy = f"{_POLICY}; img-src {allowed}; connect-src {allowed}"
    return {**SECURITY_HEADERS, "Content-Security-Policy": policy}


# Browsers complain about it on addresses that they do not trust, and do not follow it there.
_ONLY_WHERE_TRUSTED = "Cross-Origin-Opener-Policy"
_SANE_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")
_NOT_SENT = 499

log = structlog.get_logger(__name__)


class RequestMiddleware:
    """Wraps every request; whatever fails inside leaves as a problem, never as a bare error."""

    def __init__(
        self,
        app: ASGIApp,
        metrics: HttpMetrics,
        routes: RouteTable,
        headers: Mapping[str, str] = SECURITY_HEADERS,
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._routes = routes
        self._headers = headers
        self._plainly = {k: v for k, v in headers.items() if k != _ONLY_WHERE_TRUSTED}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": "not served here"})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = Exchange(_request_id(scope), scope["method"], scope["path"], _language(scope))
        with structlog.contextvars.bound_contextvars(request_id=exchange.request_id):
            # A copy: what is written into it inside must not reach the server's own.
            await self._observe({**scope, "hasat": exchange}, exchange, receive, send)

    async def _observe(
        self, scope: Scope, exchange: Exchange, receive: Receive, send: Send
    ) -> None:
        started = time.perf_counter()
        status: int | None = None

        async def send_dressed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                carried = self._headers if _is_trusted(scope) else self._plainly
                _dress(MutableHeaders(scope=message), exchange, carried)
            await send(message)

        try:
            await self._app(scope, receive, send_dressed)
        except ClientDisconnect:
            pass
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets a problem
            _report(error, exchange)
            if status is None:
                await problem_response(error, exchange)(scope, receive, send_dressed)
        finally:
            seconds = time.perf_counter() - started
            self._note(scope, exchange, status or _NOT_SENT, seconds)

    def _note(self, scope: Scope, exchange: Exchange, status: int, seconds: float) -> None:
        template = self._routes.template(exchange.path, exchange.method)
        self._metrics.note(template, exchange.method, status, seconds)
        write = log.debug if exchange.path in PROBES else log.info
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
    """Whether a browser takes the connection for a safe one: encrypted, or to its own machine."""
    host, _ = scope.get("server") or ("", None)
    return scope.get("scheme") == "https" or is_loopback(host)


def _dress(headers: MutableHeaders, exchange: Exchange, carried: Mapping[str, str]) -> None:
    """Add what every answer carries; what the route has set itself stays."""
    for name, value in carried.items():
        headers.setdefault(name, value)
    headers["X-Request-Id"] = exchange.request_id
    if (allowance := exchange.allowance) is not None:
        headers["RateLimit-Limit"] = str(allowance.limit)
        headers["RateLimit-Remaining"] = str(allowance.remaining)
        headers["RateLimit-Reset"] = str(allowance.reset_seconds)


def _report(error: Exception, exchange: Exchange) -> None:
    known = to_hasat_error(error, exchange)
    if isinstance(known, UnexpectedError):
        log.error("a request failed unexpectedly", path=exchange.path, exc_info=error)
    elif known.status >= 500:
        log.warning("a request could not be answered", path=exchange.path, reason=str(error))


def _language(scope: Scope) -> Language:
    """Return the language of the page that is asked for, else the one that the header prefers."""
    chosen: Language | None = scope.get(LANGUAGE)
    return chosen or preferred_language(Headers(scope=scope).get("accept-language", ""))


def _request_id(scope: Scope) -> str:
    given = Headers(scope=scope).get("x-request-id", "")
    return given if _SANE_ID.fullmatch(given) else secrets.token_hex(8)

_LINGER_BYTES = 10_000_000
_LINGER_SECONDS = 2.0
_LET_GO_SECONDS = 1.0


class BodyLimitMiddleware:
    """Stops reading a body that is larger than its route takes.

    The limit is looked up when the route first reads: only then is it known which route it is.
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
            if seen == 0 and (announced := _announced(scope)) > limit:
                if announced <= limit + _LINGER_BYTES:
                    await _linger(receive)
                raise _too_large(limit)
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > limit:
                if message.get("more_body", False):
                    await _linger(receive)
                raise _too_large(limit)
            return message

        await self._app(scope, receive_counted, send)


class HeadMiddleware:
    """Answers HEAD with the headers that GET would have.

    To the route it is a GET whose caller hangs up after the headers: the server says so through
    `receive` once the answer is complete, and a stream ends as it does when a caller leaves.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        listening = False

        async def receive_noted() -> Message:
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
                    # A stream is ended by its listener now, before it has begun.
                    await asyncio.sleep(_LET_GO_SECONDS)
            else:
                await asyncio.sleep(0)

        scope["method"] = "GET"
        # From 2.4 on streams listen to errors of `send` instead, which leave them half closed.
        scope["asgi"] = {**scope.get("asgi", {}), "spec_version": "2.3"}
        await self._app(scope, receive_noted, send_start)


async def _linger(receive: Receive) -> None:
    """Throw away some more: who is still sending would hear a reset instead of the answer."""
    left, more = _LINGER_BYTES, True
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_SECONDS):
            while more and left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                more = message.get("more_body", False)


def _announced(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() else 0
    return 0


def _too_large(limit: int) -> HTTPException:
    # The framework lets only its own exception pass from here; it becomes a problem later.
    return HTTPException(413, f"The body is larger than {limit:,} bytes, which is all this takes.")
