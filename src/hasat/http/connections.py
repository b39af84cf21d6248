"""Connection limits: the number of connections, time-outs and malformed requests.

uvicorn limits neither the number of connections nor the time a client takes to send a request, and
asyncio writes a traceback for every connection that it cannot accept.
"""

import asyncio
import errno
import json
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import h11
import structlog
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from hasat.http.routes import PROBLEM_JSON
from hasat.settings import Settings

MAX_HEADER_BYTES = 16 * 1024
ACCEPTS_PER_TICK = 4
_MAX_CONNECTIONS = 10_000
_MIN_CONNECTIONS = 8
# Descriptors for the database, archives, logs and the sockets accepted in one tick.
_RESERVED_FILES = 64
_LOG_EVERY_SECONDS = 60.0
_OUT_OF_FILES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

log = structlog.get_logger(__name__)


def default_max_connections() -> int:
    """Derive the limit from the number of files that this process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MAX_CONNECTIONS
    return max(_MIN_CONNECTIONS, min(_MAX_CONNECTIONS, (soft - _RESERVED_FILES) * 3 // 4))


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of one server; times in seconds."""

    max_connections: int
    header_timeout: float = 15.0
    body_timeout: float = 60.0
    send_timeout: float = 60.0

    @classmethod
    def of(cls, settings: Settings) -> "ConnectionLimits":
        serve = settings.serve
        return cls(
            serve.max_connections or default_max_connections(),
            serve.header_timeout.total_seconds(),
            serve.body_timeout.total_seconds(),
            serve.send_timeout.total_seconds(),
        )


class ServerConfig(uvicorn.Config):
    """uvicorn's configuration with the limits that `Connection` enforces."""

    def __init__(self, limits: ConnectionLimits, **options: Any) -> None:
        self.limits = limits
        super().__init__(
            http=Connection,
            ws="none",
            backlog=ACCEPTS_PER_TICK,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            **options,
        )


class OccasionalWarning:
    """A warning that is logged at most once a minute, with the number of occurrences."""

    def __init__(self, event: str, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._event = event
        self._monotonic = monotonic
        self._written_at = float("-inf")
        self._count = 0

    def __call__(self, **fields: Any) -> None:
        self._count += 1
        now = self._monotonic()
        if now - self._written_at >= _LOG_EVERY_SECONDS:
            log.warning(self._event, times=self._count, **fields)
            self._written_at, self._count = now, 0


_full = OccasionalWarning("connections.full")
_out_of_files = OccasionalWarning("connections.out_of_files")


class Connection(H11Protocol):
    """One connection, closed when its client is too slow or sends a malformed request."""

    conn: "_StrictParser"

    def __init__(
        self,
        config: ServerConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.conn = _StrictParser(h11.SERVER, MAX_HEADER_BYTES)
        self._limits = config.limits
        self._made_at = self.loop.time()
        self._waits_for: tuple[object, ...] = ()
        self._waits_since = self._made_at
        self._resumed = 0

    @property
    def is_open(self) -> bool:
        return not self.transport.is_closing()

    @property
    def is_waiting_for_client(self) -> bool:
        """Whether the server waits for the client, so that closing loses no work."""
        return self.conn.their_state in {h11.IDLE, h11.SEND_BODY}

    @property
    def host(self) -> str:
        return self.client[0] if self.client else ""

    @property
    def made_at(self) -> float:
        return self._made_at

    @property
    def _request(self) -> RequestResponseCycle | None:
        # uvicorn declares it without None, which it is before the first request.
        return self.cycle

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        others = [one for one in self.connections if one is not self]
        allowed = self._limits.max_connections
        if sum(one.is_open for one in others) < allowed:  # type: ignore[union-attr]
            return
        freed = close_longest_waiting(others)  # type: ignore[arg-type]
        _full(max_connections=allowed, address=self.host, refused=not freed)
        if not freed:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "All connections are in use.")

    def resume_writing(self) -> None:
        self._resumed += 1
        super().resume_writing()

    def check_time(self) -> None:
        """Close the connection if its client exceeds a time-out; called every second."""
        waits_for, allowed = self._waiting()
        now = self.loop.time()
        if waits_for != self._waits_for:
            self._waits_for, self._waits_since = waits_for, now
        # Before the first request, the time counts from the start of the connection.
        since = self._made_at if self._request is None else self._waits_since
        if not waits_for or now - since < allowed:
            return
        if waits_for[0] == "send":
            self.transport.abort()
        elif waits_for[0] == "header" and not self.conn.trailing_data[0]:
            self.transport.close()
        else:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"The request's {waits_for[0]} took too long.")

    def _waiting(self) -> tuple[tuple[object, ...], float]:
        """Return what the server waits for (changes with progress) and the time-out."""
        unsent = self.transport.get_write_buffer_size()
        if not self.is_open or (unsent and self.conn.their_state is not h11.SEND_BODY):
            return ("send", unsent, self._resumed), self._limits.send_timeout
        if self.conn.their_state is h11.SEND_BODY:
            return ("body", self.cycle), self._limits.body_timeout
        if self.conn.their_state is h11.IDLE and (
            self._request is None or self.conn.trailing_data[0]
        ):
            return ("header", self.cycle), self._limits.header_timeout
        return (), 0.0

    def send_400_response(self, msg: str) -> None:
        refusal = self.conn.refusal
        if refusal is None:
            self._refuse(HTTPStatus.BAD_REQUEST, msg)
        else:
            self._refuse(HTTPStatus(refusal.error_status_hint), f"{refusal}.")

    def _refuse(self, status: HTTPStatus, detail: str) -> None:
        """Send a problem if no response has begun, and close."""
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            body = json.dumps(
                {
                    "type": f"/problems/http-{status.value}",
                    "title": status.phrase,
                    "status": status.value,
                    "detail": detail,
                    "code": f"http-{status.value}",
                }
            ).encode()
            headers = [
                *self.server_state.default_headers,
                (b"content-type", PROBLEM_JSON.encode()),
                (b"content-length", str(len(body)).encode()),
                (b"connection", b"close"),
            ]
            reason = status.phrase.encode()
            start = h11.Response(status_code=status.value, headers=headers, reason=reason)
            for event in (start, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        if (request := self._request) is not None and not request.response_complete:
            request.disconnected = True
            request.message_event.set()
        self.transport.close()

    def shutdown(self) -> None:
        if (request := self._request) is None or request.response_complete:
            self.transport.close()
        else:
            request.keep_alive = False


class _StrictParser(h11.Connection):
    """Rejects requests that a proxy and this server could parse differently (smuggling)."""

    refusal: h11.RemoteProtocolError | None = None

    def next_event(self) -> Any:
        try:
            event = super().next_event()
            if isinstance(event, h11.Request):
                _check(event)
        except h11.RemoteProtocolError as error:
            self.refusal = error
            raise
        return event


def _check(request: h11.Request) -> None:
    names = {name for name, _ in request.headers}
    if b"transfer-encoding" in names:
        if b"content-length" in names:
            raise h11.RemoteProtocolError(
                "Content-Length and Transfer-Encoding exclude each other", 400
            )
        if request.http_version < b"1.1":
            raise h11.RemoteProtocolError("HTTP/1.0 has no Transfer-Encoding", 400)
    size = len(request.target) + sum(len(name) + len(value) for name, value in request.headers)
    if size > MAX_HEADER_BYTES:
        raise h11.RemoteProtocolError("The header is too large", 431)


def close_longest_waiting(connections: Iterable[Connection]) -> bool:
    """Close one connection that waits for its client; return whether there was one.

    An address with more connections loses first, so that one client cannot displace the rest.
    """
    waiting = [one for one in connections if one.is_open and one.is_waiting_for_client]
    per_host = Counter(one.host for one in waiting)
    victim = max(waiting, key=lambda one: (per_host[one.host], -one.made_at), default=None)
    if victim is None:
        return False
    victim.transport.abort()
    return True


def on_loop_error(
    state: ServerState,
) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """Return a handler that closes a waiting connection when no file can be opened."""

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in _OUT_OF_FILES and "socket" in context:
            close_longest_waiting(state.connections)  # type: ignore[arg-type]
            _out_of_files(reason=error.strerror, connections=len(state.connections))
        else:
            loop.default_exception_handler(context)

    return handle
