"""A worker's signs of life, and what it does when it can no longer give them."""

import asyncio
from collections.abc import Callable, Collection

import structlog

from hasat.jobs.link import AWAY, Link
from hasat.settings import Settings
from hasat.store.queries import load_query

_FENCE = 0.75
"""The part of stalled_seconds after which a silent worker stops its own jobs: before others act."""

log = structlog.get_logger(__name__)


def beat_interval(settings: Settings) -> float:
    """Seconds between two beats: as set, but often enough that one late beat is no silence."""
    return min(settings.jobs.heartbeat_seconds, settings.jobs.stalled_seconds / 4)


class Pulse:
    """Beats until cancelled.

    `on_silence` is called when the worker must let go of its runs, `on_stop` with those that it was
    asked to stop.
    """

    def __init__(
        self,
        link: Link,
        worker_id: int,
        settings: Settings,
        on_silence: Callable[[], None],
        on_stop: Callable[[Collection[int]], None],
    ) -> None:
        self.given_up = asyncio.Event()
        """Set when the others have given this worker up: it needs a new number."""
        self._link = link
        self._worker_id = worker_id
        self._interval = beat_interval(settings)
        self._patience = settings.jobs.stalled_seconds * _FENCE
        self._on_silence = on_silence
        self._on_stop = on_stop
        self._last_beat = 0.0

    async def beat(self) -> None:
        """Give signs of life until cancelled or given up."""
        loop = asyncio.get_running_loop()
        self._last_beat = loop.time()
        fence = asyncio.create_task(self._watch_silence(), name="silence watch")
        try:
            while not self.given_up.is_set():
                started = loop.time()
                try:
                    alive = await self._beat_once()
                except AWAY:
                    alive = None
                if alive:
                    self._last_beat = started
                elif alive is False:
                    log.error(
                        "this worker was silent for too long and was given up by the others; "
                        "its runs are begun anew elsewhere",
                        worker_id=self._worker_id,
                    )
                    self.given_up.set()
                    self._on_silence()
                await asyncio.sleep(self._interval)
        finally:
            fence.cancel()

    async def _beat_once(self) -> bool:
        async with self._link.transaction() as connection:
            cursor = await connection.execute(
                load_query("hasat.jobs", "queue_beat"), {"worker_id": self._worker_id}
            )
            row = await cursor.fetchone()
        if row is not None and row[0]:
            self._on_stop(row[0])
        return row is not None

    async def _watch_silence(self) -> None:
        """On its own, because a beat that waits for an answer can wait for long."""
        loop = asyncio.get_running_loop()
        while True:
            silent_at = self._last_beat + self._patience
            await asyncio.sleep(max(silent_at - loop.time(), 0.0) + 0.01)
            if loop.time() - silent_at > 1.0:
                # The event loop itself was held up: give the beat the chance that it missed.
                await asyncio.sleep(self._interval / 2)
            if loop.time() >= self._last_beat + self._patience:
                self._on_silence()
                await asyncio.sleep(self._interval)
