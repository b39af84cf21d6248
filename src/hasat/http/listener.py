"""The HTTP listener: binds the port, runs uvicorn, drains and stops on request."""

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Callable, Iterator

import uvicorn
from starlette.types import ASGIApp

from hasat.errors import SettingsError, UnavailableError
from hasat.http.connections import (
    ConnectionLimits,
    ServerConfig,
    default_max_connections,
    on_loop_error,
)
from hasat.messages import msg
from hasat.settings import Settings

_GRACEFUL_SHUTDOWN_SECONDS = 10
_TICKS_PER_SECOND = 10


def local_address(settings: Settings) -> str:
    """Return the address to open on this machine."""
    host = settings.serve.host
    if host in {"0.0.0.0", "::", ""}:  # noqa: S104 - a comparison, nothing is bound
        host = "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.serve.port}"


def check_port_free(settings: Settings) -> None:
    """Raise an error if the port is in use, before anything else is started."""
    bind(settings.serve.host, settings.serve.port).close()


def bind(host: str, port: int) -> socket.socket:
    """Return a socket bound to the address; port 0 takes a free one."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise SettingsError(
            msg("Cannot resolve the host {host!r}.", host=host),
            remedy=msg("Set serve.host (HASAT_HOST, --host) to 127.0.0.1, or to 0.0.0.0 for all."),
        ) from error
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise UnavailableError(
                msg("Port {port} on {host} is in use by another program.", port=port, host=host),
                remedy=msg(
                    "Stop that program, or choose another port: HASAT_PORT=9000, or for up "
                    "and serve --port 9000."
                ),
            ) from error
        raise UnavailableError(
            msg(
                "Cannot listen on {host}, port {port}: {strerror}.",
                host=host,
                port=port,
                strerror=error.strerror,
            ),
            remedy=msg("Choose another address or port with --host and --port."),
        ) from error
    return listening


_SHARED_SOCKET = "HASAT_LISTENING_FD"


def share(listening: socket.socket) -> dict[str, str]:
    """Return the environment in which a child process that inherits the socket finds it."""
    return {_SHARED_SOCKET: str(listening.fileno())}


def shared_socket() -> socket.socket | None:
    """Return the socket that the parent process has bound, if it has."""
    number = os.environ.pop(_SHARED_SOCKET, None)
    return None if number is None else socket.socket(fileno=int(number))


class Listener:
    """One uvicorn server on a bound socket; the caller handles signals.

    `on_drain` ends responses that would never end by themselves, such as streams.
    """

    def __init__(
        self,
        app: ASGIApp,
        listening: socket.socket,
        on_drain: Callable[[], object] = lambda: None,
        limits: ConnectionLimits | None = None,
    ) -> None:
        self._listening = listening
        self._on_drain = on_drain
        self._server = _Server(
            ServerConfig(
                limits or ConnectionLimits(default_max_connections()),
                app=app,
                access_log=False,
                log_config=None,
                server_header=False,
                date_header=True,
                timeout_graceful_shutdown=_GRACEFUL_SHUTDOWN_SECONDS,
                timeout_keep_alive=30,
            )
        )
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start serving; return once requests are accepted."""
        asyncio.get_running_loop().set_exception_handler(on_loop_error(self._server.server_state))
        self._task = asyncio.create_task(self._server.serve(sockets=[self._listening]))
        while not self._server.started:
            if self._task.done():
                await self._task
                raise UnavailableError(msg("The HTTP server stopped while it was starting."))
            await asyncio.sleep(0.01)
        # The server accepts a few connections at a time; the others wait in the kernel.
        self._listening.listen(1024)

    async def wait_closed(self) -> None:
        """Wait until the server has stopped, then close the socket."""
        assert self._task is not None
        try:
            await self._task
        finally:
            self._listening.close()
            asyncio.get_running_loop().set_exception_handler(None)

    def drain(self) -> None:
        """Accept no more requests and stop once the open ones are finished."""
        self._server.should_exit = True
        self._on_drain()

    def stop_now(self) -> None:
        """Stop without waiting for open requests."""
        self.drain()
        self._server.force_exit = True


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def on_tick(self, counter: int) -> bool:
        if counter % _TICKS_PER_SECOND == 0:
            for connection in list(self.server_state.connections):
                connection.check_time()  # type: ignore[union-attr]
        return await super().on_tick(counter)
