"""The supervisor of `hasat up` and its child processes.

Parent and child share a socket pair. The child writes one byte when it is ready; the end of the
stream means that the other side is gone, even after kill -9.
"""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import structlog

from hasat.errors import HasatError

_SOCKET_VARIABLE = "HASAT_PARENT_FD"
_FIRST_PAUSE, _MAX_PAUSE = 0.5, 30.0
_KILL_SECONDS = 5.0

log = structlog.get_logger(__name__)


@dataclass
class _Child:
    process: asyncio.subprocess.Process
    socket: socket.socket
    ready: asyncio.Event = field(default_factory=asyncio.Event)

    def read_ready(self) -> None:
        """Read the byte that means ready, if it has arrived."""
        # The end of the stream is ignored: the exit of the process is awaited anyway.
        with contextlib.suppress(OSError):
            if self.socket.recv(1):
                self.ready.set()


class Supervisor:
    """Starts child processes, restarts those that die, and ends them together."""

    def __init__(
        self,
        commands: Mapping[str, Sequence[str]],
        *,
        descriptors: Sequence[int] = (),
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._commands = commands
        self._descriptors = descriptors
        self._environ = environ or {}
        self._children: dict[str, _Child] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._ending = asyncio.Event()
        self._failure: str | None = None

    @property
    def ending(self) -> bool:
        return self._ending.is_set()

    async def start(self) -> None:
        for role in self._commands:
            self._tasks.append(asyncio.create_task(self._supervise(role), name=role))

    async def wait_ready(self) -> None:
        """Wait until every child is ready, or the supervisor is ending."""
        while not self.ending:
            children = list(self._children.values())
            if len(children) == len(self._commands) and all(c.ready.is_set() for c in children):
                return
            await asyncio.sleep(0.05)

    async def wait_ending(self) -> None:
        """Wait until a signal or a failure ends the supervisor."""
        await self._ending.wait()

    async def wait_ended(self) -> None:
        """Wait until all children have exited; raise if one could not start."""
        await asyncio.gather(*self._tasks)
        if self._failure:
            raise HasatError(self._failure)

    def drain(self) -> None:
        """Send SIGTERM to all children, which then finish their work."""
        self._ending.set()
        for child in self._children.values():
            with contextlib.suppress(ProcessLookupError):
                child.process.send_signal(signal.SIGTERM)

    def stop_now(self) -> None:
        """Send SIGTERM again, and kill the children that remain."""
        self.drain()
        for child in self._children.values():
            asyncio.get_running_loop().call_later(_KILL_SECONDS, _kill, child.process)

    async def _supervise(self, role: str) -> None:
        pause = _FIRST_PAUSE
        while not self.ending:
            child = self._children[role] = await self._start(self._commands[role])
            code = await child.process.wait()
            asyncio.get_running_loop().remove_reader(child.socket)
            # A child may have become ready and died before its byte was read.
            child.read_ready()
            child.socket.close()
            if self.ending:
                return
            # A child that was killed from outside may well be able to start.
            if not child.ready.is_set() and code != -signal.SIGKILL:
                # It has printed its own error; another start would only repeat it.
                self._failure = f"`hasat {role}` could not start (exit code {code})."
                self.drain()
                return
            log.warning("process.restarting", role=role, exit_code=code)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _MAX_PAUSE)

    async def _start(self, command: Sequence[str]) -> _Child:
        ours, theirs = socket.socketpair()
        with theirs:
            # In a new session, so that Ctrl-C reaches only the parent, which passes it on.
            process = await asyncio.create_subprocess_exec(
                *command,
                env={**os.environ, **self._environ, _SOCKET_VARIABLE: str(theirs.fileno())},
                pass_fds=[theirs.fileno(), *self._descriptors],
                start_new_session=True,
            )
        ours.setblocking(False)
        child = _Child(process, ours)
        loop = asyncio.get_running_loop()

        def on_readable() -> None:
            loop.remove_reader(ours)
            child.read_ready()

        loop.add_reader(ours, on_readable)
        return child


class Parent:
    """The supervisor as its child sees it; missing when the process was started directly."""

    def __init__(self, connection: socket.socket | None) -> None:
        self._socket = connection
        self._on_gone: Callable[[], object] = lambda: None

    @classmethod
    @asynccontextmanager
    async def connect(cls) -> AsyncIterator["Parent"]:
        """Use the socket that the supervisor passed on, if there is one."""
        number = os.environ.pop(_SOCKET_VARIABLE, None)
        connection = socket.socket(fileno=int(number)) if number else None
        parent = cls(connection)
        if connection is None:
            yield parent
            return
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        loop.add_reader(connection, parent._on_readable)
        try:
            yield parent
        finally:
            loop.remove_reader(connection)
            connection.close()

    @property
    def is_missing(self) -> bool:
        return self._socket is None

    def when_gone(self, action: Callable[[], object]) -> None:
        """Call `action` when the supervisor has exited."""
        self._on_gone = action

    def report_ready(self) -> bool:
        """Report that this process is ready; return False if there is no supervisor."""
        if self._socket is None:
            return False
        with contextlib.suppress(OSError):
            self._socket.send(b"r")
        return True

    def _on_readable(self) -> None:
        assert self._socket is not None
        with contextlib.suppress(BlockingIOError):
            try:
                gone = self._socket.recv(1) == b""
            except OSError:
                gone = True
            if gone:
                asyncio.get_running_loop().remove_reader(self._socket)
                log.warning("parent.gone")
                self._on_gone()


def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
