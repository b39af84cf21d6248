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
from typing import Any, Literal
from urllib.parse import unquote

import httptools
import structlog
import uvicorn
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from hasat.http.cycle import Cycle
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


class Connection(HttpToolsProtocol):
    """One connection, closed when its client is too slow or sends a malformed request.

    The parser reads ahead, so a request may begin to arrive while the one before is being answered.
    """

    def __init__(
        self,
        config: ServerConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = config.limits
        self._made_at = self.loop.time()
        self._reading: Literal["header", "body"] = "header"
        # Bytes of a header, or of a body's framing and trailers, without an end so far.
        self._header_bytes = 0
        self._refusal: tuple[HTTPStatus, str] | None = None
        self._started: RequestResponseCycle | None = None
        self._waits_for: tuple[object, ...] = ()
        self._waits_since = self._made_at
        self._resumed = 0

    @property
    def is_open(self) -> bool:
        return not self.transport.is_closing()

    @property
    def is_waiting_for_client(self) -> bool:
        """Whether the server waits for the client, so that closing loses no work."""
        return not self.pipeline and (self._reading == "body" or not self._is_answering)

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

    @property
    def _is_answering(self) -> bool:
        """Whether a response to a request is not complete."""
        return self._request is not None and not self._request.response_complete

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

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None:
            return
        self._unset_keepalive_if_required()
        self._header_bytes += len(data)
        try:
            self._feed(data)
        except httptools.HttpParserError:
            self._fail(_MALFORMED)
            return
        if self._header_bytes > MAX_HEADER_BYTES:
            self._fail(_TOO_LARGE)

    def _fail(self, default: "_Refusal") -> None:
        """Refuse what was received, and ignore what follows."""
        self._refusal = self._refusal or default
        self._refuse(*self._refusal)

    def _feed(self, data: bytes) -> None:
        """Parse; a request for another protocol is one like any other (RFC 9110, section 7.8)."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if rest := data[upgrade.args[0] :]:
                self._feed(rest)

    def on_message_begin(self) -> None:
        self._header_bytes = self._header_bytes or 1
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        # What follows a chunked body is no header: nothing has checked it.
        if self._reading == "header":
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the request, or queue it behind the one that is being answered."""
        method = self.parser.get_method()
        version = self.parser.get_http_version()
        if refusal := _find_fault(self.url, self.headers, version):
            self._refusal = refusal
            raise _RefusedError
        raw_path, _, query = self.url.partition(b"?")
        path = raw_path.decode("ascii")
        self.scope["method"] = method.decode("ascii")
        self.scope["http_version"] = version
        self.scope["path"] = unquote(path) if "%" in path else path
        self.scope["raw_path"] = raw_path
        self.scope["query_string"] = query
        self._reading, self._header_bytes = "body", 0
        earlier = self._request
        self.cycle = Cycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=version != "1.0" and self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        if earlier is None or earlier.response_complete:
            self._start_asgi_task(self.cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._started = cycle
        super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        self._header_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._reading, self._header_bytes = "header", 0
        super().on_message_complete()

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
        elif waits_for[0] == "header" and not self._header_bytes:
            self.transport.close()
        else:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"The request's {waits_for[0]} took too long.")

    def _waiting(self) -> tuple[tuple[object, ...], float]:
        """Return what the server waits for (changes with progress) and the time-out."""
        unsent = self.transport.get_write_buffer_size()
        if not self.is_open or (unsent and self._reading != "body"):
            return ("send", unsent, self._resumed), self._limits.send_timeout
        if self._reading == "body" and not self.pipeline:
            return ("body", self.cycle), self._limits.body_timeout
        if not self._is_answering and (self._request is None or self._header_bytes):
            return ("header", self.cycle), self._limits.header_timeout
        return (), 0.0

    def _refuse(self, status: HTTPStatus, detail: str) -> None:
        """Send a problem unless a response has begun, and close."""
        request = self._request
        if request is not None and not request.response_complete:
            if self._reading == "header":
                # The fault is in a later request; those before it are answered.
                request.keep_alive = False
                return
            if self.pipeline:
                self.pipeline.popleft()
                last = self.pipeline[0][0] if self.pipeline else self._started
                assert last is not None
                last.keep_alive = False
                return
            if not request.response_started:
                self._send_problem(status, detail)
            request.disconnected = True
            request.message_event.set()
        elif self._reading == "header":
            self._send_problem(status, detail)
        self.transport.close()

    def _send_problem(self, status: HTTPStatus, detail: str) -> None:
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
        lines = [f"HTTP/1.1 {status.value} {status.phrase}".encode()]
        lines += [name + b": " + value for name, value in headers]
        self.transport.write(b"\r\n".join([*lines, b"", body]))


class _RefusedError(Exception):
    """Ends the parsing of a request that is refused."""


_Refusal = tuple[HTTPStatus, str]
_MALFORMED: _Refusal = (HTTPStatus.BAD_REQUEST, "The request is not valid HTTP.")
_TOO_LARGE: _Refusal = (HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The header is too large.")


def _find_fault(target: bytes, headers: list[tuple[bytes, bytes]], version: str) -> _Refusal | None:
    """Return why a proxy and this server could read a request differently (smuggling)."""
    size, hosts, lengths, coding = len(target), 0, 0, None
    for name, value in headers:
        size += len(name) + len(value)
        if name == b"host":
            hosts += 1
        elif name == b"content-length":
            lengths += 1
        elif name == b"transfer-encoding":
            coding = value if coding is None else coding + b"," + value
    if size > MAX_HEADER_BYTES:
        return _TOO_LARGE
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        return HTTPStatus.BAD_REQUEST, "The request needs exactly one Host header."
    if not target.isascii():
        return _MALFORMED
    if coding is None:
        return None if lengths <= 1 else _MALFORMED
    if lengths:
        return HTTPStatus.BAD_REQUEST, "Content-Length and Transfer-Encoding exclude each other."
    if version == "1.0":
        return HTTPStatus.BAD_REQUEST, "HTTP/1.0 has no Transfer-Encoding."
    if coding.lower() != b"chunked":
        return HTTPStatus.NOT_IMPLEMENTED, "The only Transfer-Encoding is chunked."
    return None


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
