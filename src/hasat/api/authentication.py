"""DOC"""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from hasat.api.problems import CredentialsMalformedError, SignatureWrongError, TimestampOutsideError
from hasat.clock import Clock, system_clock
from hasat.http.routes import Caller
from hasat.messages import msg
from hasat.settings import Settings
from collections.abc import Callable, Sequence
from dataclasses import replace
from ipaddress import ip_address
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send
from hasat.api.keys import KeyCache, list_keys
from hasat.api.rate_limits import DatabaseLeases, RateLimits, network_of
from hasat.api.problems import CredentialsMalformedError, HostNotAllowedError, OriginNotAllowedError
from hasat.errors import AuthenticationError, SettingsError, TooManyRequestsError
from hasat.http.routes import HOW_TO_AUTHENTICATE, Caller, Exchange, exchange_of
from hasat.store import Store

_TIMESTAMP = re.compile(r"[0-9]{1,12}")
_SIGNATURE = re.compile(r"[0-9a-fA-F]{64}")
_NOBODYS_SECRET = secrets.token_bytes(32)


@dataclass(frozen=True)
class SignedRequest:
    """What the signature covers, as it was sent."""

    method: str
    path: bytes
    query: bytes
    access_key: str
    timestamp: str
    signature: str

    def text(self) -> bytes:
        target = self.path + b"?" + self.query if self.query else self.path
        return b"\n".join((self.method.encode(), target, self.timestamp.encode()))


class SignatureVerifier:
    """The clients of settings.authentication, who sign their requests."""

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
        """Who signed this; every check is made for everyone, so that time tells nothing."""
        name, secret, per_minute = self._clients.get(
            request.access_key, (None, _NOBODYS_SECRET, None)
        )
        expected = hmac.new(secret, request.text(), hashlib.sha256).digest()
        readable = _SIGNATURE.fullmatch(request.signature) is not None
        given = bytes.fromhex(request.signature) if readable else bytes(32)
        genuine = hmac.compare_digest(expected, given)
        if not readable:
            raise CredentialsMalformedError(
                msg("X-Signature is not the hex form of an HMAC-SHA256."),
                remedy=msg("It has 64 characters of 0-9 and a-f."),
            )
        self._check_time(request.timestamp)
        if name is None or not genuine:
            raise SignatureWrongError(
                msg("The access key is not known, or the signature does not fit the request."),
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
                    "X-Timestamp differs from the time here ({now:.0f}) by more than "
                    "{tolerance} seconds.",
                    now=now,
                    tolerance=self._tolerance,
                ),
                remedy=msg("Set the clock of the calling machine, and sign each request anew."),
            )

PROBES = frozenset({"/healthz", "/readyz", "/health", "/metrics"})
ANONYMOUS = frozenset(
    PROBES
    | {"/openapi.json", "/docs", "/docs.css"}
    | {"/login", "/logout", "/favicon.svg", "/favicon.ico"}
)
_ANONYMOUS_FOLDERS = ("/problems/", "/static/")
LOCAL = Caller("local", "local", frozenset({"read", "operate"}), is_local=True, kind="local")
_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


def is_public(path: str) -> bool:
    """Whether anybody may ask for this path: probes, metrics, what explains the API, the login."""
    return path in ANONYMOUS or path == "/problems" or path.startswith(_ANONYMOUS_FOLDERS)


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine and nothing else."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def is_open(settings: Settings) -> bool:
    """Whether callers need not say who they are: nobody but this machine can reach the server."""
    return (
        is_loopback(settings.serve.host)
        and not settings.serve.allowed_hosts
        and not settings.authentication.enabled
    )


def login_cookie(settings: Settings) -> str:
    """The cookie of a login; browsers do not tell ports of one machine apart, its name does."""
    return f"hasat_login_{settings.serve.port}"


async def check_authentication_configured(settings: Settings, store: Store) -> None:
    """Refuse to serve where callers must be known but nobody could be."""
    if is_open(settings) or settings.authentication.clients:
        return
    if any(key.state == "active" for key in await list_keys(store)):
        return
    if not is_loopback(settings.serve.host):
        reason = f"serve.host is {settings.serve.host!r}, which others can reach"
    elif settings.serve.allowed_hosts:
        reason = "serve.allowed_hosts lets others in through a proxy"
    else:
        reason = "authentication.enabled is set"
    raise SettingsError(
        msg(
            "Callers must say who they are ({reason}), but there is no API key and no client yet.",
            reason=reason,
        ),
        remedy=msg("Make a key with `hasat keys create NAME`, then start again."),
    )


class HostMiddleware:
    """Answers only for the names this server has, and changes nothing for pages of other sites."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._names = frozenset(name.lower() for name in settings.serve.allowed_hosts)
        self._any_name = not self._names and not is_loopback(settings.serve.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            self._check_host(headers.getlist("host"))
            if scope["method"] not in _SAFE:
                _check_origin(headers.getlist("origin"), headers.get("host", ""))
        await self._app(scope, receive, send)

    def _check_host(self, hosts: Sequence[str]) -> None:
        if self._any_name:
            return
        name = _without_port(hosts[0]) if len(hosts) == 1 else ""
        if not (is_loopback(name) or name in self._names):
            raise HostNotAllowedError(
                (
                    msg("This server does not answer for the name {name!r}.", name=name)
                    if name
                    else msg("The request does not say in its header Host for which name it is.")
                ),
                remedy=msg(
                    "If it is to be reached by this name, the operator adds it to "
                    "serve.allowed_hosts (HASAT_ALLOWED_HOSTS); API keys are needed from "
                    "then on."
                ),
            )


class AuthenticationMiddleware:
    """Finds out who is asking, counts the request, and turns away who may not be here."""

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        keys: KeyCache,
        signatures: SignatureVerifier,
        leases: DatabaseLeases,
        note_rate_limited: Callable[[str], None],
    ) -> None:
        self._app = app
        self._open = is_open(settings)
        self._cookie = login_cookie(settings)
        self._keys = keys
        self._signatures = signatures
        self._note_rate_limited = note_rate_limited
        self._per_minute = settings.serve.requests_per_minute
        # Separate, so that a flood of addresses cannot push out the buckets of keys.
        self._callers = RateLimits(leases)
        self._guesses = RateLimits(leases)
        self._anonymous = RateLimits()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._admit(scope)
        await self._app(scope, receive, send)

    async def _admit(self, scope: Scope) -> None:
        exchange = exchange_of(scope)
        refusal: AuthenticationError | None = None
        if is_public(exchange.path):
            # Nothing is looked up here: a probe must answer when the database does not.
            exchange.caller = LOCAL if self._open else None
        else:
            try:
                exchange.caller = await self._identify(scope, exchange)
            except AuthenticationError as error:
                refusal = error
        await self._count(exchange, scope, refused=refusal is not None)
        if refusal is not None:
            raise refusal

    async def _identify(self, scope: Scope, exchange: Exchange) -> Caller:
        """The caller; what is presented is checked, also where nothing needs to be."""
        headers = Headers(scope=scope)
        ways = [name for name in ("authorization", "x-api-key", "x-access-key") if name in headers]
        if not ways:
            if self._open:
                return LOCAL
            if login := HTTPConnection(scope).cookies.get(self._cookie):
                if exchange.method not in _SAFE:
                    check_same_site(headers)
                return replace(await self._keys.check(login), kind="login")
            raise AuthenticationError(
                msg("The request does not say who is asking."), remedy=HOW_TO_AUTHENTICATE
            )
        if len(ways) > 1 or len(headers.getlist(ways[0])) > 1:
            raise CredentialsMalformedError(
                msg("The request says more than once who is asking."),
                remedy=msg("Send one API key, or one signature, and nothing besides."),
            )
        if ways[0] == "x-access-key":
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
        token = headers[ways[0]]
        if ways[0] == "authorization":
            scheme, _, token = token.partition(" ")
            token = token.strip() if scheme.lower() == "bearer" else ""
        return await self._keys.check(token)

    async def _count(self, exchange: Exchange, scope: Scope, *, refused: bool) -> None:
        """Count the request for its caller, or for its address if the caller is not known."""
        caller = exchange.caller
        if caller is LOCAL or exchange.path in PROBES:
            return
        if caller is not None:
            per_minute = self._per_minute if caller.per_minute is None else caller.per_minute
            counted_as = "client" if caller.bucket.startswith("client:") else "key"
            allowance = await self._callers.draw(caller.bucket, per_minute)
        else:
            address = network_of(scope["client"][0]) if scope.get("client") else "unknown"
            if refused or (exchange.path, exchange.method) == ("/login", "POST"):
                counted_as = "guess"
                allowance = await self._guesses.draw(f"guess:{address}", self._per_minute)
            else:
                counted_as = "address"
                allowance = await self._anonymous.draw(address, self._per_minute)
        exchange.allowance = allowance
        if allowance is not None and allowance.retry_after is not None:
            self._note_rate_limited(counted_as)
            raise TooManyRequestsError(
                msg("More than {limit} requests in a minute.", limit=allowance.limit),
                retry_after=allowance.retry_after,
                remedy=msg(
                    "Wait {retry_after} seconds, then ask again.", retry_after=allowance.retry_after
                ),
            )


def check_same_site(headers: Headers) -> None:
    """Refuse a change that no page of this server is known to have asked for.

    Where it came from elsewhere was refused before; here somebody must have said that it did not.
    A browser sends cookies with whatever it sends, but also one of these headers.
    """
    if "origin" not in headers and headers.get("sec-fetch-site") != "same-origin":
        raise OriginNotAllowedError(
            msg("The request does not say from which page it comes."),
            remedy=msg("Use a current browser, or the API with a key."),
        )


def _check_origin(origins: Sequence[str], host: str) -> None:
    for origin in origins:
        _, _, authority = origin.partition("://")
        if not authority or authority.lower() != host.lower():
            raise OriginNotAllowedError(
                msg("A page of {origin!r} asked for a change here.", origin=origin),
                remedy=msg(
                    "Changes are accepted from this server's own pages, and from programs "
                    "that send no Origin."
                ),
            )


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0].strip("[").lower()
    return host.rpartition(":")[0].lower() if host.count(":") == 1 else host.lower()
