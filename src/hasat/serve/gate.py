"""Who gets in: open on loopback, by key or signature everywhere else.

Everything but a short list of paths needs a caller that is known, whether or not its route says
so; routes that change something ask for more with `doors.require("operate")`.
"""

from collections.abc import Sequence
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from hasat.doors import HOW_TO_SAY_WHO, Caller, Exchange, exchange_of
from hasat.errors import NotKnownError, SettingsError, TooManyRequestsError
from hasat.serve.keys import KeyRing, list_keys
from hasat.serve.limits import Buckets, neighbourhood
from hasat.serve.refusals import (
    CredentialsMalformedError,
    HostNotAllowedError,
    OriginNotAllowedError,
)
from hasat.serve.signatures import Signatures, SignedRequest
from hasat.settings import Settings
from hasat.store import Store

ANONYMOUS = frozenset(
    {"/healthz", "/readyz", "/health", "/metrics", "/openapi.json", "/docs", "/docs.css"}
)
LOCAL = Caller("local", "local", frozenset({"read", "operate"}))
_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


def needs_no_caller(path: str) -> bool:
    """Whether anybody may ask for this path: probes, metrics, and what explains the API."""
    return path in ANONYMOUS or path == "/problems" or path.startswith("/problems/")


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


async def check_may_start(settings: Settings, store: Store) -> None:
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
        f"Callers must say who they are ({reason}), but there is no API key and no client yet.",
        remedy="Make a key with `hasat keys create NAME`, then start again.",
    )


class HostGuard:
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
                f"This server does not answer for the name {name!r}."
                if name
                else "The request does not say in its header Host for which name it is.",
                remedy="If it is to be reached by this name, the operator adds it to "
                "serve.allowed_hosts (HASAT_ALLOWED_HOSTS); API keys are needed from then on.",
            )


class Gate:
    """Finds out who is asking, counts the request, and turns away who may not be here."""

    def __init__(
        self, app: ASGIApp, settings: Settings, keys: KeyRing, signatures: Signatures
    ) -> None:
        self._app = app
        self._open = is_open(settings)
        self._keys = keys
        self._signatures = signatures
        # Apart, so that a flood of addresses cannot make the server forget what a key has used.
        self._per_caller = Buckets(settings.serve.requests_per_minute)
        self._per_address = Buckets(settings.serve.requests_per_minute)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._admit(scope)
        await self._app(scope, receive, send)

    async def _admit(self, scope: Scope) -> None:
        exchange = exchange_of(scope)
        refusal: NotKnownError | None = None
        if needs_no_caller(exchange.path):
            # Nothing is looked up here: a probe must answer when the database does not.
            exchange.caller = LOCAL if self._open else None
        else:
            try:
                exchange.caller = await self._identify(scope, exchange)
            except NotKnownError as error:
                refusal = error
        self._count(exchange, scope, refused=refusal is not None)
        if refusal is not None:
            raise refusal

    async def _identify(self, scope: Scope, exchange: Exchange) -> Caller:
        """The caller; what is presented is checked, also where nothing needs to be."""
        headers = Headers(scope=scope)
        ways = [name for name in ("authorization", "x-api-key", "x-access-key") if name in headers]
        if not ways:
            if self._open:
                return LOCAL
            raise NotKnownError("The request does not say who is asking.", remedy=HOW_TO_SAY_WHO)
        if len(ways) > 1 or len(headers.getlist(ways[0])) > 1:
            raise CredentialsMalformedError(
                "The request says more than once who is asking.",
                remedy="Send one API key, or one signature, and nothing besides.",
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

    def _count(self, exchange: Exchange, scope: Scope, *, refused: bool) -> None:
        """Draw from the caller's bucket, or the address's if the caller is not known."""
        if exchange.caller is LOCAL or exchange.path == "/healthz":
            return
        if exchange.caller is not None:
            allowance = self._per_caller.draw(exchange.caller.id)
        else:
            address = neighbourhood(scope["client"][0]) if scope.get("client") else "unknown"
            # Two buckets: who guesses keys must not make the probes of the same address fail.
            allowance = self._per_address.draw(f"refused {address}" if refused else address)
        exchange.allowance = allowance
        if allowance is not None and allowance.retry_after is not None:
            raise TooManyRequestsError(
                f"More than {allowance.limit} requests in a minute.",
                retry_after=allowance.retry_after,
                remedy=f"Wait {allowance.retry_after} seconds, then ask again.",
            )


def _check_origin(origins: Sequence[str], host: str) -> None:
    for origin in origins:
        _, _, authority = origin.partition("://")
        if not authority or authority.lower() != host.lower():
            raise OriginNotAllowedError(
                f"A page of {origin!r} asked for a change here.",
                remedy="Changes are accepted from this server's own pages, "
                "and from programs that send no Origin.",
            )


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0].strip("[").lower()
    return host.rpartition(":")[0].lower() if host.count(":") == 1 else host.lower()
