"""`hasat up` and the processes it starts: how they tell each other that they are ready, or gone.

Parent and child share one socket pair. The child writes a byte when it is ready; the end of the
stream tells either side that the other is gone, however it went (kill -9 included).
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

_SOCKET = "HASAT_PARENT_FD"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0

log = structlog.get_logger(__name__)


@dataclass
class Member:
    """One child process and its end of the line."""

    role: str
    process: asyncio.subprocess.Process
    line: socket.socket
    ready: asyncio.Event = field(default_factory=asyncio.Event)

    def listen(self) -> None:
        """Hear what it has said by now."""
        # The end of the stream says nothing more than its process does.
        with contextlib.suppress(OSError):
            if self.line.recv(1):
                self.ready.set()


class Family:
    """The children of `hasat up`: started, watched, restarted when they die, ended together."""

    def __init__(self, commands: Mapping[str, Sequence[str]]) -> None:
        self._commands = commands
        self._members: dict[str, Member] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._over = asyncio.Event()
        self._first_failure: str | None = None
        self.ending = False

    async def start(self) -> None:
        for role in self._commands:
            self._keepers.append(asyncio.create_task(self._keep(role), name=f"keep {role}"))

    async def ready(self) -> None:
        """Until every child said that it is ready, or the family ends."""
        while not self._over.is_set():
            members = list(self._members.values())
            if len(members) == len(self._commands) and all(m.ready.is_set() for m in members):
                return
            await asyncio.sleep(0.05)

    async def until_ending(self) -> None:
        """Until somebody or something said that it is to end."""
        await self._over.wait()

    async def until_over(self) -> None:
        """Until all children are gone for good; raises if one could not even start."""
        await asyncio.gather(*self._keepers)
        if self._first_failure:
            raise HasatError(self._first_failure)

    def drain(self) -> None:
        self._end(signal.SIGTERM)

    def stop_now(self) -> None:
        self._end(signal.SIGTERM)
        for member in self._members.values():
            asyncio.get_running_loop().call_later(5.0, _kill, member.process)

    def _end(self, number: signal.Signals) -> None:
        self.ending = True
        self._over.set()
        for member in self._members.values():
            with contextlib.suppress(ProcessLookupError):
                member.process.send_signal(number)

    async def _keep(self, role: str) -> None:
        pause = _FIRST_PAUSE
        while not self.ending:
            member = self._members[role] = await _start(role, self._commands[role])
            code = await member.process.wait()
            asyncio.get_running_loop().remove_reader(member.line)
            # Its last word may lie there unheard.
            member.listen()
            member.line.close()
            if self.ending:
                return
            # Whoever killed it does not say that it cannot start.
            if not member.ready.is_set() and code != -signal.SIGKILL:
                # It never came up: its own sentence is on the terminal; going on would repeat it.
                self._first_failure = f"`hasat {role}` could not start (exit code {code})."
                self._end(signal.SIGTERM)
                return
            log.warning("a process ended and is started again", role=role, exit_code=code)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)


class Parent:
    """The child's view: tell the parent when ready, notice when it is gone."""

    def __init__(self, line: socket.socket | None) -> None:
        self._line = line
        self._on_gone: Callable[[], object] = lambda: None

    @classmethod
    @asynccontextmanager
    async def watched(cls) -> AsyncIterator["Parent"]:
        number = os.environ.pop(_SOCKET, None)
        line = socket.socket(fileno=int(number)) if number else None
        parent = cls(line)
        if line is None:
            yield parent
            return
        line.setblocking(False)
        loop = asyncio.get_running_loop()
        loop.add_reader(line, parent._heard)
        try:
            yield parent
        finally:
            loop.remove_reader(line)
            line.close()

    @property
    def is_missing(self) -> bool:
        """Whether this process was started by itself."""
        return self._line is None

    def when_gone(self, action: Callable[[], object]) -> None:
        self._on_gone = action

    def ready(self) -> bool:
        """Tell the parent; False if there is none, so that the role speaks for itself."""
        if self._line is None:
            return False
        with contextlib.suppress(OSError):
            self._line.send(b"r")
        return True

    def _heard(self) -> None:
        assert self._line is not None
        with contextlib.suppress(BlockingIOError):
            try:
                gone = self._line.recv(1) == b""
            except OSError:
                gone = True
            if gone:
                asyncio.get_running_loop().remove_reader(self._line)
                log.warning("the parent process is gone; finishing")
                self._on_gone()


async def _start(role: str, command: Sequence[str]) -> Member:
    ours, theirs = socket.socketpair()
    with theirs:
        # A session of its own: Ctrl-C reaches only the parent, which passes it on once.
        process = await asyncio.create_subprocess_exec(
            *command,
            env=os.environ | {_SOCKET: str(theirs.fileno())},
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    ours.setblocking(False)
    member = Member(role, process, ours)
    loop = asyncio.get_running_loop()

    def heard() -> None:
        loop.remove_reader(ours)
        member.listen()

    loop.add_reader(ours, heard)
    return member


def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
