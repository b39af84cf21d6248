"""Binding the port and running uvicorn so that drain and stop are ours to decide."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Iterator

import uvicorn
from starlette.types import ASGIApp

from hasat.errors import SettingsError, UnavailableError
from hasat.settings import Settings

_LET_ANSWERS_FINISH_SECONDS = 10


def address_of(settings: Settings) -> str:
    """The address a person on this machine opens."""
    host = settings.serve.host
    if host in {"0.0.0.0", "::", ""}:  # noqa: S104 - a comparison, nothing is bound
        host = "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.serve.port}"


def free_port_or_fail(settings: Settings) -> None:
    """Say now, before anything is started, that the port is taken."""
    bind(settings.serve.host, settings.serve.port).close()


def bind(host: str, port: int) -> socket.socket:
    """A socket bound to the address, or a sentence that says why not; port 0 takes a free one."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise SettingsError(
            f"{host!r} is not an address of this machine.",
            remedy="Set serve.host (HASAT_HOST, --host) to 127.0.0.1, or to 0.0.0.0 for all.",
        ) from error
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise UnavailableError(
                f"Port {port} on {host} is taken by another program.",
                remedy="Stop that program, or choose another port: HASAT_PORT=9000, or for up and "
                "serve --port 9000.",
            ) from error
        raise UnavailableError(
            f"Cannot listen on {host}, port {port}: {error.strerror}.",
            remedy="Choose another address or port with --host and --port.",
        ) from error
    return listening


class Listener:
    """One uvicorn server on a bound socket; signals are handled by whoever runs it.

    `on_drain` ends what would never end by itself, such as streams.
    """

    def __init__(
        self,
        app: ASGIApp,
        listening: socket.socket,
        on_drain: Callable[[], object] = lambda: None,
    ) -> None:
        self._listening = listening
        self._on_drain = on_drain
        self._server = _Server(
            uvicorn.Config(
                app,
                access_log=False,
                log_config=None,
                server_header=False,
                date_header=True,
                timeout_graceful_shutdown=_LET_ANSWERS_FINISH_SECONDS,
                timeout_keep_alive=30,
            )
        )
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Return once requests are answered."""
        self._listening.listen(1024)
        self._task = asyncio.create_task(self._server.serve(sockets=[self._listening]))
        while not self._server.started:
            if self._task.done():
                await self._task
                raise UnavailableError("The HTTP server ended while it was starting.")
            await asyncio.sleep(0.01)

    async def until_over(self) -> None:
        assert self._task is not None
        try:
            await self._task
        finally:
            self._listening.close()

    def drain(self) -> None:
        self._server.should_exit = True
        self._on_drain()

    def stop_now(self) -> None:
        self.drain()
        self._server.force_exit = True


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
