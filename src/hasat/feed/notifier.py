"""Wake waiting requests as soon as a change is committed.

PostgreSQL's NOTIFY is a hint: through PgBouncer, or while a connection is lost, it does not arrive.
The notifier therefore also polls the heads, once a second for all waiters of the process.
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

POLL_SECONDS = 1.0
_PAUSE_SECONDS = 2.0

log = structlog.get_logger(__name__)


class ChangeNotifier:
    """One listening connection for all waiters of a process, open only while there are waiters.

    async with notifier.listening():
        while True:
            signal = notifier.next_signal()  # before reading, so that no commit is missed
            ...read; stop if there are changes, or if notifier.closed...
            await notifier.wait(signal, seconds)
    """

    def __init__(self, store: Store) -> None:
        self.closed = False
        self._store = store
        self._next = asyncio.Event()
        self.waiters = 0
        self._listeners: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Allow waiting inside the block."""
        self.waiters += 1
        if not self._listeners:
            self._listeners = [
                asyncio.create_task(self._listen(), name="change notifier: listen"),
                asyncio.create_task(self._poll(), name="change notifier: poll"),
            ]
        try:
            yield
        finally:
            self.waiters -= 1
            if not self.waiters:
                for listener in self._listeners:
                    listener.cancel()
                self._listeners = []

    def next_signal(self) -> asyncio.Event:
        """Return the event that is set when something may have changed after this call."""
        return self._next

    async def wait(self, signal: asyncio.Event, seconds: float) -> bool:
        """Return whether the signal came within the time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await signal.wait()
        return signal.is_set()

    def close(self) -> None:
        """Wake all waiters for good: the server is about to stop."""
        self.closed = True
        self._notify()

    async def _listen(self) -> None:
        while True:
            try:
                async with await connect(self._store.url) as conn:
                    await conn.execute(f"LISTEN {CHANNEL}")
                    # Commits before LISTEN are not announced.
                    self._notify()
                    async for _ in conn.notifies():
                        self._notify()
            except (psycopg.Error, DatabaseError) as error:
                log.debug("change notifications are unavailable; polling instead", error=str(error))
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _poll(self) -> None:
        known: Any = None
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                async with self._store.connection() as conn:
                    cursor = await conn.execute("SELECT dataset, epoch, seq, floor FROM feed.head")
                    heads = set(await cursor.fetchall())
            except (psycopg.Error, DatabaseError):
                continue
            if heads != known:
                known = heads
                self._notify()

    def _notify(self) -> None:
        current, self._next = self._next, asyncio.Event()
        current.set()
        if self.closed:
            self._next.set()
