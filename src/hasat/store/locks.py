"""File locks, which the kernel releases when their holder dies, and bounded waiting."""

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import structlog

from hasat.errors import DatabaseError
from hasat.messages import msg

_LOG_AFTER_SECONDS = 3.0
_GIVE_UP_AFTER_SECONDS = 600.0

log = structlog.get_logger(__name__)


def try_lock(path: Path, *, shared: bool = False) -> int | None:
    """Lock a file and return its descriptor (closing it unlocks), or None if it is locked.

    The lock belongs to the open file: a process that inherits the descriptor holds it too.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    if try_convert(descriptor, shared=shared):
        return descriptor
    os.close(descriptor)
    return None


def try_convert(descriptor: int, *, shared: bool) -> bool:
    """Convert the lock on an open file to shared or exclusive, if no other lock prevents it."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class BoundedWait:
    """A wait that is logged after some seconds and ends with an error after ten minutes."""

    def __init__(self, waiting_for: str, *, remedy: str) -> None:
        self._waiting_for = waiting_for
        self._remedy = remedy
        self._began = time.monotonic()
        self._logged = False
        self._step = 0.005

    async def pause(self, detail: str = "") -> None:
        """Sleep for a moment that grows to a tenth of a second."""
        waited = time.monotonic() - self._began
        if waited > _GIVE_UP_AFTER_SECONDS:
            raise DatabaseError(
                msg(
                    "Gave up after {waited:.0f} minutes of waiting for {waiting_for}{detail}.",
                    waited=waited / 60,
                    waiting_for=self._waiting_for,
                    detail=f" ({detail})" if detail else "",
                ),
                remedy=self._remedy,
            )
        if not self._logged and waited > _LOG_AFTER_SECONDS:
            self._logged = True
            log.info("lock.waiting", waiting_for=self._waiting_for, detail=detail or None)
        await asyncio.sleep(self._step)
        self._step = min(self._step * 1.3, 0.1)


@asynccontextmanager
async def locked(path: Path, wait: BoundedWait) -> AsyncIterator[None]:
    """Hold the exclusive lock, after waiting for it."""
    while (descriptor := try_lock(path)) is None:
        await wait.pause()
    try:
        yield
    finally:
        os.close(descriptor)
