"""Receivers of webhooks that misbehave on demand, on real sockets."""

import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Received:
    """One request as it arrived."""

    body: bytes
    headers: Mapping[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]


Behave = Callable[[BaseHTTPRequestHandler], None]


def answer(status: int, body: bytes = b"", **headers: str) -> Behave:
    def behave(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return behave


def reset(handler: BaseHTTPRequestHandler) -> None:
    """Drop the connection in the middle of everything."""
    linger = struct.pack("ii", 1, 0)
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    handler.connection.close()


def endless(status: int) -> Behave:
    """Answer with a body that never ends, as fast as the other side reads."""

    def behave(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.end_headers()
        while True:
            handler.wfile.write(b"x" * 65_536)

    return behave


def slow(seconds: float) -> Behave:
    def behave(handler: BaseHTTPRequestHandler) -> None:
        time.sleep(seconds)
        answer(200)(handler)

    return behave


class Receiver:
    """Notes every request; behaves as `behave` says for the nth of them, else answers 200."""

    def __init__(
        self, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
    ) -> None:
        self.received: list[Received] = []
        self.max_concurrent = 0
        self.behave: Callable[[int, Received], Behave] = lambda number, request: answer(204)
        self._lock = threading.Lock()
        self._at_once = 0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver._handle(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = _Server((host, port), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port = int(self._server.server_address[1])
        self.url = f"http://{host}:{self.port}/hook"

    def _handle(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        request = Received(body, {k.lower(): v for k, v in handler.headers.items()})
        with self._lock:
            number = len(self.received)
            self.received.append(request)
            self._at_once += 1
            self.max_concurrent = max(self.max_concurrent, self._at_once)
        try:
            self.behave(number, request)(handler)
        except OSError:
            return
        finally:
            handler.close_connection = True
            with self._lock:
                self._at_once -= 1

    def serve(self) -> None:
        self._server.serve_forever(poll_interval=0.02)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, *_: Any) -> None:
        """A sender that was killed is no error of the receiver."""


@contextmanager
def receiving(
    host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
) -> Iterator[Receiver]:
    receiver = Receiver(host, port, tls)
    thread = threading.Thread(target=receiver.serve, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.close()
        thread.join(5)
