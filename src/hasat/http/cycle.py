"""One request and its response on a connection, as uvicorn sends it, with less work per header."""

from functools import lru_cache
from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import (
    HEADER_RE,
    HEADER_VALUE_RE,
    STATUS_LINE,
    RequestResponseCycle,
)

if TYPE_CHECKING:
    from uvicorn._types import ASGISendEvent, HTTPResponseStartEvent

_FRAMING = frozenset({b"content-length", b"transfer-encoding", b"connection"})


class Cycle(RequestResponseCycle):
    """A cycle that checks and joins each header once, not with every response.

    Most headers of a response are those of the one before. Checking them took longer than the
    lookup that the response is about.
    """

    async def send(self, message: "ASGISendEvent") -> None:
        if (
            message["type"] != "http.response.start"
            or self.response_started
            or self.disconnected
            or self.flow.write_paused
        ):
            await super().send(message)
            return
        self.response_started = True
        self.waiting_for_100_continue = False
        self.transport.write(self._head(message))

    def _head(self, start: "HTTPResponseStartEvent") -> bytes:
        """Return the status line and the headers; note how the body is framed."""
        status = start["status"]
        lines = [STATUS_LINE[status]]
        closes = False
        for name, value in (*self.default_headers, *start.get("headers", ())):
            line, framing = _line(name, value)
            lines.append(line)
            if framing == b"content-length" and self.chunked_encoding is None:
                self.expected_content_length = int(value)
                self.chunked_encoding = False
            elif framing == b"transfer-encoding" and value.lower() == b"chunked":
                self.expected_content_length = 0
                self.chunked_encoding = True
            elif framing == b"connection" and b"close" in _tokens(value):
                self.keep_alive = False
                closes = True
        if not self.keep_alive and not closes:
            lines.append(b"connection: close\r\n")
        if (
            self.chunked_encoding is None
            and self.scope["method"] != "HEAD"
            and status not in (204, 304)
        ):
            self.chunked_encoding = True
            lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n")
        return b"".join(lines)


@lru_cache(maxsize=512)
def _line(name: bytes, value: bytes) -> tuple[bytes, bytes | None]:
    """Return a header as it is sent, and its name if it says how the body is sent."""
    if HEADER_RE.search(name):
        raise RuntimeError("Invalid HTTP header name.")
    if HEADER_VALUE_RE.search(value):
        raise RuntimeError("Invalid HTTP header value.")
    name = name.lower()
    return b"%b: %b\r\n" % (name, value), name if name in _FRAMING else None


def _tokens(value: bytes) -> list[bytes]:
    return [token.lower().strip() for token in value.split(b",")]
