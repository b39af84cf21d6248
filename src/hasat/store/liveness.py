"""Notice that the server no longer responds, although the connection to it is open.

Behind PgBouncer a client waits without end for a PostgreSQL that is gone or frozen: the connection
to PgBouncer is alive, and TCP has nothing to report. A process that serves requests therefore
doubts a server that sends nothing for a while, and asks it with a short statement on a connection
of its own. If there is a response, the statement that is waited for is only slow. If there is
none, every connection that waits is shut down, and requests are refused at once until there is
one again.
"""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, TypeVar

import psycopg
import structlog
from psycopg import AsyncConnection
from psycopg.abc import PQGen

from hasat.errors import DatabaseAwayError, DatabaseError
from hasat.messages import msg
from hasat.store.session import Session, session_class

_RETRY_SECONDS = 1.0

RV = TypeVar("RV")
Connect = Callable[[], Awaitable[AsyncConnection[Any]]]

log = structlog.get_logger(__name__)


class Liveness:
    """Checks whether a server responds; concurrent callers share one check."""

    def __init__(self, connect: Connect, label: str, seconds: float) -> None:
        self.seconds = seconds
        self.trouble: DatabaseError | None = None
        self._connect = connect
        self._label = label
        self._asking: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None

    def check(self) -> None:
        """Raise the reason if the server did not respond to the last check."""
        if (trouble := self.trouble) is not None:
            # A new one each time: a raised exception collects the frames it passed.
            raise type(trouble)(trouble.message, remedy=trouble.remedy)

    async def responds(self) -> bool:
        """Check the server now; takes about `seconds` at most for each host in the address."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask(), name="database liveness")
        # Not awaited itself: one caller that gives up must not end it for the others.
        await asyncio.wait({self._asking})
        return self.trouble is None

    async def close(self) -> None:
        tasks = {task for task in (self._asking, self._watching) if task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _ask(self) -> None:
        trouble = await self._find_trouble()
        if (trouble is None) != (self.trouble is None):
            reason = None if trouble is None else trouble.message
            log.warning("database.responds" if trouble is None else "database.away", reason=reason)
        self.trouble = trouble
        if trouble is not None and (self._watching is None or self._watching.done()):
            self._watching = asyncio.create_task(self._watch(), name="database liveness: watch")

    async def _watch(self) -> None:
        while self.trouble is not None:
            await asyncio.sleep(_RETRY_SECONDS)
            await self.responds()

    async def _find_trouble(self) -> DatabaseError | None:
        loop = asyncio.get_running_loop()
        try:
            conn = await self._connect()
        except DatabaseError as error:
            return error
        timer = loop.call_later(self.seconds, shut_down, conn)
        try:
            await conn.execute("SELECT 1")
        except psycopg.Error:
            return DatabaseAwayError(
                msg("PostgreSQL does not respond ({label}).", label=self._label),
                remedy=msg("Check that the server runs and can be reached, from PgBouncer too."),
            )
        finally:
            timer.cancel()
            await conn.close()
        return None


def shut_down(conn: AsyncConnection[Any]) -> None:
    """Shut a connection down; a pending wait ends as if the server had closed it."""
    try:
        # A copy, because the descriptor itself is libpq's to close.
        with socket.socket(fileno=os.dup(conn.pgconn.socket)) as copy:
            copy.shutdown(socket.SHUT_RDWR)
    except (psycopg.Error, OSError):
        # It is closed already.
        return


class _WatchedSession(Session):
    """A connection whose waits end when the server no longer responds."""

    liveness: ClassVar[Liveness]

    async def wait(self, gen: PQGen[RV], *arguments: Any, **options: Any) -> RV:
        loop = asyncio.get_running_loop()
        doubt: asyncio.Task[None] | None = None

        def start() -> None:
            nonlocal doubt
            doubt = loop.create_task(self._end_unless_alive(), name="database doubt")

        timer = loop.call_later(self.liveness.seconds, start)
        try:
            return await super().wait(gen, *arguments, **options)
        finally:
            timer.cancel()
            if doubt is not None:
                doubt.cancel()

    async def _end_unless_alive(self) -> None:
        while await self.liveness.responds():  # noqa: ASYNC110 - the statement ends this task
            await asyncio.sleep(self.liveness.seconds)
        shut_down(self)


def watched_session_class(frozen_seconds: float, watching: Liveness) -> type[Session]:
    """Return the class of sessions that do not wait for a server that is gone."""

    class Watched(_WatchedSession):
        liveness = watching
        transaction_settings = session_class(frozen_seconds).transaction_settings
        session_settings = session_class(frozen_seconds).session_settings

    return Watched
