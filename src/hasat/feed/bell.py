"""Waking those who wait for a change, the moment one is committed.

PostgreSQL's NOTIFY is a hint: through PgBouncer, or while a connection is lost, it does not come.
So every waiter also looks again by itself after a while; the bell only makes that while short.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import structlog

from hasat.errors import DatabaseError
from hasat.feed.reconcile import CHANNEL
from hasat.store import Store
from hasat.store.store import connect

LOOK_AGAIN_SECONDS = 1.0
_PAUSE_SECONDS = 2.0

log = structlog.get_logger(__name__)


class Bell:
    """One listening connection for all waiters of a process; open only while somebody waits."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rung = asyncio.Event()
        self._waiters = 0
        self._listener: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Whoever is inside may wait."""
        self._waiters += 1
        if self._listener is None:
            self._listener = asyncio.create_task(self._listen(), name="feed bell")
        try:
            yield
        finally:
            self._waiters -= 1
            if not self._waiters and self._listener is not None:
                self._listener.cancel()
                self._listener = None

    async def wait(self, seconds: float) -> None:
        """Until something may have changed: the bell rings, or it is time to look again."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, LOOK_AGAIN_SECONDS)):
                await self._rung.wait()

    async def _listen(self) -> None:
        while True:
            try:
                async with await connect(self._store.url) as conn:
                    await conn.execute(f"LISTEN {CHANNEL}")
                    # What was committed before we listened is not announced.
                    self._ring()
                    async for _ in conn.notifies():
                        self._ring()
            except (psycopg.Error, DatabaseError) as error:
                log.debug("the feed's bell is silent for now", error=str(error))
                await asyncio.sleep(_PAUSE_SECONDS)

    def _ring(self) -> None:
        ringing, self._rung = self._rung, asyncio.Event()
        ringing.set()
