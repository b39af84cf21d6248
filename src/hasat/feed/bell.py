"""Waking those who wait for a change, the moment one is committed.

PostgreSQL's NOTIFY is a hint: through PgBouncer, or while a connection is lost, it does not come.
So the bell also looks at the heads by itself, once a second for all who wait.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

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
    """One listening connection for all waiters of a process; open only while somebody waits.

    async with bell.listening():
        while True:
            ring = bell.next_ring()      # before looking: what comes meanwhile is not missed
            ...look; leave if there is something, or if bell.closed...
            await bell.wait(ring, seconds)
    """

    def __init__(self, store: Store) -> None:
        self.closed = False
        self._store = store
        self._next = asyncio.Event()
        self.waiters = 0
        self._listeners: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Whoever is inside may wait."""
        self.waiters += 1
        if not self._listeners:
            self._listeners = [
                asyncio.create_task(self._listen(), name="feed bell: listen"),
                asyncio.create_task(self._watch(), name="feed bell: watch"),
            ]
        try:
            yield
        finally:
            self.waiters -= 1
            if not self.waiters:
                for listener in self._listeners:
                    listener.cancel()
                self._listeners = []

    def next_ring(self) -> asyncio.Event:
        """Set when something may have changed after this call."""
        return self._next

    async def wait(self, ring: asyncio.Event, seconds: float) -> bool:
        """Whether the bell rang before the time was over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await ring.wait()
        return ring.is_set()

    def close(self) -> None:
        """Wake everybody for good: the server is about to stop."""
        self.closed = True
        self._ring()

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

    async def _watch(self) -> None:
        known: Any = None
        while True:
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
            try:
                async with self._store.connection() as conn:
                    cursor = await conn.execute("SELECT dataset, epoch, seq, floor FROM feed.head")
                    heads = set(await cursor.fetchall())
            except (psycopg.Error, DatabaseError):
                continue
            if heads != known:
                known = heads
                self._ring()

    def _ring(self) -> None:
        ringing, self._next = self._next, asyncio.Event()
        ringing.set()
        if self.closed:
            self._next.set()
