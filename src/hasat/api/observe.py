"""The outermost layer: names each request, measures it, logs it, and lets nothing leave bare."""

import re
import secrets
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hasat.api.gate import PROBES, is_loopback
from hasat.api.metrics import HttpMetrics
from hasat.api.problems import problem_response, to_hasat_error
from hasat.api.refusals import UnexpectedError
from hasat.api.routes import RouteTable
from hasat.http.routes import LANGUAGE, Exchange
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
