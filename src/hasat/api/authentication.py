"""Authentication: open on loopback; by API key, login or signature everywhere else.

Every path outside a short public list requires a known caller, whether or not its route says so;
routes that change state require more with `require("operate")`.

A signed request is one of the original .NET service. X-Signature is the hex form of
HMAC-SHA256(secret, "METHOD\\nPATH?QUERY\\nTIMESTAMP"): path and query as sent, without `?` when
there is no query. The body is not signed and a request can be repeated within the tolerance, which
is why a signature only grants `read`.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from ipaddress import ip_address
from typing import Protocol

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from hasat.api.keys import KeyCache, list_keys
from hasat.api.problems import (
    CredentialsMalformedError,
    HostNotAllowedError,
    OriginNotAllowedError,
    SignatureWrongError,
    TimestampOutsideError,
)
from hasat.api.rate_limits import DatabaseLeases, RateLimits, network_of
from hasat.clock import Clock, system_clock
from hasat.errors import AuthenticationError, SettingsError, TooManyRequestsError
from hasat.http.routes import HOW_TO_AUTHENTICATE, Caller, Exchange, exchange_of
from hasat.messages import msg
from hasat.settings import Settings
from hasat.store import Store

_TIMESTAMP = re.compile(r"[0-9]{1,12}")
_SIGNATURE = re.compile(r"[0-9a-fA-F]{64}")
_DUMMY_SECRET = secrets.token_bytes(32)


@dataclass(frozen=True)
class SignedRequest:
    """The parts of a request that its signature covers, as sent."""

    method: str
    path: bytes
    query: bytes
    access_key: str
    timestamp: str
    signature: str

    def signed_text(self) -> bytes:
        """Return the text that the client signed."""
        target = self.path + b"?" + self.query if self.query else self.path
        return b"\n".join((self.method.encode(), target, self.timestamp.encode()))


class SignatureVerifier:
    """Checks signatures of the clients in settings.authentication."""

    def __init__(self, settings: Settings, *, clock: Clock = system_clock) -> None:
        self._clients = {
            client.access_key: (
                client.name or client.access_key,
                client.secret_key.get_secret_value().encode(),
                client.per_minute,
            )
            for client in settings.authentication.clients
        }
        self._tolerance = settings.authentication.timestamp_tolerance_seconds
        self._clock = clock

    def check(self, request: SignedRequest) -> Caller:
        """Return the signer; every check runs for every request, so that timing reveals nothing."""
        name, secret, per_minute = self._clients.get(
            request.access_key, (None, _DUMMY_SECRET, None)
        )
        expected = hmac.new(secret, request.signed_text(), hashlib.sha256).digest()
        readable = _SIGNATURE.fullmatch(request.signature) is not None
        given = bytes.fromhex(request.signature) if readable else bytes(32)
        genuine = hmac.compare_digest(expected, given)
        if not readable:
            raise CredentialsMalformedError(
                msg("X-Signature is not a hex HMAC-SHA256."),
                remedy=msg("It has 64 characters of 0-9 and a-f."),
            )
        self._check_time(request.timestamp)
        if name is None or not genuine:
            raise SignatureWrongError(
                msg("The access key is unknown, or the signature does not match the request."),
                remedy=msg('Sign "METHOD\\nPATH?QUERY\\nTIMESTAMP" with path and query as sent.'),
            )
        caller_id = f"client:{request.access_key}"
        return Caller(
            caller_id,
            name,
            frozenset({"read"}),
            bucket=caller_id,
            per_minute=per_minute,
            kind="signature",
        )

    def _check_time(self, timestamp: str) -> None:
        if _TIMESTAMP.fullmatch(timestamp) is None:
            raise CredentialsMalformedError(
                msg("X-Timestamp is not a number of seconds."),
                remedy=msg("Send whole seconds since 1970-01-01 UTC."),
            )
        now = self._clock().timestamp()
        if abs(now - int(timestamp)) > self._tolerance:
            raise TimestampOutsideError(
                msg(
                    "X-Timestamp differs from the time of the server ({now:.0f}) by more than "
                    "{tolerance} seconds.",
                    now=now,
                    tolerance=self._tolerance,
                ),
                remedy=msg("Set the clock of the client, and sign every request separately."),
            )


PROBES = frozenset({"/healthz", "/readyz", "/health", "/metrics"})
ANONYMOUS = frozenset(
    PROBES
    | {"/openapi.json", "/docs", "/docs.css", "/.well-known/jwks.json"}
    | {"/login", "/logout", "/favicon.svg", "/favicon.ico"}
)
_ANONYMOUS_FOLDERS = ("/problems/", "/static/")
LOCAL = Caller("local", "local", frozenset({"read", "operate"}), is_local=True, kind="local")
_CREDENTIALS = frozenset({b"authorization", b"x-api-key", b"x-access-key"})
_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


def is_public(path: str) -> bool:
    """Return whether a path needs no caller: probes, metrics, API docs and the login."""
    return path in ANONYMOUS or path == "/problems" or path.startswith(_ANONYMOUS_FOLDERS)


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Return whether a host name or address is a loopback one."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def is_open(settings: Settings) -> bool:
    """Return whether no authentication is needed: only this machine can reach the server."""
    return (
        is_loopback(settings.serve.host)
        and not settings.serve.allowed_hosts
        and not settings.authentication.enabled
    )


def login_cookie(settings: Settings) -> str:
    """Return the name of the login cookie; it has the port, which browsers do not separate by."""
    return f"hasat_login_{settings.serve.port}"


async def check_authentication_configured(settings: Settings, store: Store) -> None:
    """Raise an error if authentication is required but there is no key and no client."""
    if is_open(settings) or settings.authentication.clients:
        return
    if any(key.state == "active" for key in await list_keys(store)):
        return
    if not is_loopback(settings.serve.host):
        reason = f"serve.host is {settings.serve.host!r}, which is reachable from other machines"
    elif settings.serve.allowed_hosts:
        reason = "serve.allowed_hosts makes it reachable through a proxy"
    else:
        reason = "authentication.enabled is set"
    raise SettingsError(
        msg(
            "Authentication is required ({reason}), but there is no API key and no client.",
            reason=reason,
        ),
        remedy=msg("Create a key with `hasat keys create NAME`, then start again."),
    )


class HostMiddleware:
    """Rejects foreign Host headers, and changes of state from pages of other sites."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._names = frozenset(name.lower() for name in settings.serve.allowed_hosts)
        self._any_name = not self._names and not is_loopback(settings.serve.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self._check_host([str(v, "latin-1") for k, v in scope["headers"] if k == b"host"])
            if scope["method"] not in _SAFE:
                headers = Headers(scope=scope)
                _check_origin(headers.getlist("origin"), headers.get("host", ""))
        await self._app(scope, receive, send)

    def _check_host(self, hosts: Sequence[str]) -> None:
        if self._any_name:
            return
        name = _without_port(hosts[0]) if len(hosts) == 1 else ""
        if not (is_loopback(name) or name in self._names):
            raise HostNotAllowedError(
                (
                    msg("The host {name!r} is not allowed.", name=name)
                    if name
                    else msg("The request needs exactly one Host header.")
                ),
                remedy=msg(
                    "To serve this name, add it to serve.allowed_hosts (HASAT_ALLOWED_HOSTS); "
                    "API keys are required from then on."
                ),
            )


class AdmissionMetrics(Protocol):
    """Counts who was admitted and who was not."""

    def record_authentication(self, client: str, status: str, reason: str = "") -> None: ...

    def record_rate_limited(self, by: str) -> None: ...


class AuthenticationMiddleware:
    """Identifies the caller, applies the rate limit, and rejects unknown callers."""

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        keys: KeyCache,
        signatures: SignatureVerifier,
        leases: DatabaseLeases,
        metrics: AdmissionMetrics,
        check_access: Callable[[Caller, str, str], None],
    ) -> None:
        self._app = app
        self._check_access = check_access
        self._open = is_open(settings)
        self._cookie = login_cookie(settings)
        self._keys = keys
        self._signatures = signatures
        self._metrics = metrics
        self._per_minute = settings.serve.requests_per_minute
        # Separate, so that a flood of addresses cannot evict the buckets of keys.
        self._callers = RateLimits(leases)
        self._failed = RateLimits(leases)
        self._anonymous = RateLimits()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._admit(scope)
        await self._app(scope, receive, send)

    async def _admit(self, scope: Scope) -> None:
        exchange = exchange_of(scope)
        rejection: AuthenticationError | None = None
        if is_public(exchange.path):
            # No lookup: a probe must respond when the database does not.
            exchange.caller = LOCAL if self._open else None
        else:
            try:
                exchange.caller = caller = await self._identify(scope, exchange)
            except AuthenticationError as error:
                rejection = error
                self._metrics.record_authentication("anonymous", "failure", error.code)
            else:
                status = "disabled" if caller is LOCAL else "success"
                self._metrics.record_authentication(caller.name, status)
        await self._count(exchange, scope, rejected=rejection is not None)
        if rejection is not None:
            raise rejection
        if exchange.caller is not None:
            self._check_access(exchange.caller, exchange.path, exchange.method)

    async def _identify(self, scope: Scope, exchange: Exchange) -> Caller:
        """Return the caller; credentials are checked even where none are required."""
        given = [(name, value) for name, value in scope["headers"] if name in _CREDENTIALS]
        if self._open and not given:
            return LOCAL
        headers = Headers(scope=scope)
        present = [
            name for name in ("authorization", "x-api-key", "x-access-key") if name in headers
        ]
        if not present:
            if login := HTTPConnection(scope).cookies.get(self._cookie):
                if exchange.method not in _SAFE:
                    check_same_site(headers)
                return replace(await self._keys.check(login), kind="login")
            raise AuthenticationError(
                msg("The request has no credentials."), remedy=HOW_TO_AUTHENTICATE
            )
        if len(present) > 1 or len(headers.getlist(present[0])) > 1:
            raise CredentialsMalformedError(
                msg("The request has more than one set of credentials."),
                remedy=msg("Send one API key or one signature."),
            )
        if present[0] == "x-access-key":
            return self._signatures.check(
                SignedRequest(
                    method=exchange.method,
                    path=scope.get("raw_path") or scope["path"].encode(),
                    query=scope["query_string"],
                    access_key=headers["x-access-key"],
                    timestamp=headers.get("x-timestamp", ""),
                    signature=headers.get("x-signature", ""),
                )
            )
        token = headers[present[0]]
        if present[0] == "authorization":
            scheme, _, token = token.partition(" ")
            token = token.strip() if scheme.lower() == "bearer" else ""
        return await self._keys.check(token)

    async def _count(self, exchange: Exchange, scope: Scope, *, rejected: bool) -> None:
        """Count the request for its caller, or for its address if the caller is unknown."""
        caller = exchange.caller
        if caller is LOCAL or exchange.path in PROBES:
            return
        if caller is not None:
            per_minute = self._per_minute if caller.per_minute is None else caller.per_minute
            counted_as = "client" if caller.bucket.startswith("client:") else "key"
            allowance = await self._callers.draw(caller.bucket, per_minute)
        else:
            address = network_of(scope["client"][0]) if scope.get("client") else "unknown"
            if rejected or (exchange.path, exchange.method) == ("/login", "POST"):
                counted_as = "guess"
                allowance = await self._failed.draw(f"guess:{address}", self._per_minute)
            else:
                counted_as = "address"
                allowance = await self._anonymous.draw(address, self._per_minute)
        exchange.allowance = allowance
        if allowance is not None and allowance.retry_after is not None:
            self._metrics.record_rate_limited(counted_as)
            raise TooManyRequestsError(
                msg("More than {limit} requests in a minute.", limit=allowance.limit),
                retry_after=allowance.retry_after,
                remedy=msg(
                    "Wait {retry_after} seconds, then try again.", retry_after=allowance.retry_after
                ),
            )


def check_same_site(headers: Headers) -> None:
    """Reject a change with a login cookie that is not known to come from a page of this server.

    A browser sends cookies with requests of any site, but also one of these headers. A foreign
    Origin was rejected before.
    """
    if "origin" not in headers and headers.get("sec-fetch-site") != "same-origin":
        raise OriginNotAllowedError(
            msg("The request has neither Origin nor Sec-Fetch-Site."),
            remedy=msg("Use a current browser, or the API with a key."),
        )


def _check_origin(origins: Sequence[str], host: str) -> None:
    for origin in origins:
        _, _, authority = origin.partition("://")
        if not authority or authority.lower() != host.lower():
            raise OriginNotAllowedError(
                msg("A page of {origin!r} may not change anything here.", origin=origin),
                remedy=msg(
                    "Changes are accepted from this server's own pages, and from programs "
                    "that send no Origin."
                ),
            )


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0].strip("[").lower()
    return host.rpartition(":")[0].lower() if host.count(":") == 1 else host.lower()
