"""Fencing: an attempt that was replaced can neither write nor keep its locks.

Each transaction of an attempt is marked with its run and refused once the run was taken over
(`fence`). The process that takes a run over ends the sessions of the attempt it replaces
(`terminate_replaced`); it needs no other right than to have the same database role.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import psycopg
import structlog

from hasat.jobs.connection import CONNECTION_ERRORS, Connection, RetryingPool
from hasat.jobs.context import replaced_error
from hasat.jobs.queue import MAX_ATTEMPTS, PRIVATE_QUEUE_PREFIX, STOPPED, TASK
from hasat.messages import join, msg, template
from hasat.settings import Settings
from hasat.store.queries import load_query
from hasat.store.store import Fence

_WAIT_MS = 2000


def fence(run: int, attempt: int) -> Fence:
    """Return the fence of an attempt's transactions."""

    async def enter(connection: Connection) -> None:
        cursor = await connection.execute("SELECT jobs.enter(%s, %s)", [run, attempt])
        if await cursor.fetchone() != (True,):
            raise replaced_error(run)

    return enter


async def terminate_replaced(link: RetryingPool, run: int | None = None) -> None:
    """End the sessions of a run's replaced attempts, or of all replaced attempts.

    Call it after the replacement is committed: a session that enters later is refused.
    """
    try:
        async with link.transaction() as connection:
            cursor = await connection.execute(
                load_query("hasat.jobs", "run_terminate_replaced"),
                {"run": run, "wait_ms": _WAIT_MS},
            )
            ended = await cursor.fetchall()
    except psycopg.errors.InsufficientPrivilege as error:
        log.error("run.session_not_terminated", run=run, reason=str(error))
        return
    for of_run, pid, is_gone in ended:
        log.warning("run.session_terminated", run=of_run, pid=pid, is_gone=is_gone)


_FENCE = 0.75
"""The part of stalled_seconds after which a silent worker stops its own jobs: before others act."""


def heartbeat_interval(settings: Settings) -> float:
    """Seconds between two beats: as set, but often enough that one late beat is no silence."""
    return min(settings.jobs.heartbeat_seconds, settings.jobs.stalled_seconds / 4)


class Heartbeat:
    """Beats until cancelled.

    `on_silence` is called when the worker must let go of its runs, `on_stop` with those that it was
    asked to stop.
    """

    def __init__(
        self,
        link: RetryingPool,
        worker_id: int,
        settings: Settings,
        on_silence: Callable[[], None],
        on_stop: Callable[[Collection[int]], None],
    ) -> None:
        self.given_up = asyncio.Event()
        """Set when the others have given this worker up: it needs a new number."""
        self._link = link
        self._worker_id = worker_id
        self._interval = heartbeat_interval(settings)
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
                except CONNECTION_ERRORS:
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


_SET_ASIDE = template(
    "Set aside: its worker died {attempt} times while running it, last {worker}. Read that "
    "worker's log, then run it by hand (hasat jobs run {job}) or queue it again "
    "(hasat jobs retry {run})."
)
_PROCESS_DIED = template("The process that ran it by hand ({worker}) died.")
_WORKER_DIED = template("Its worker {worker} died during attempt {attempt}; it is begun anew.")
_LOST_PLACE = template("Its place in the queue was lost. Queue it again: hasat jobs retry {run}.")

log = structlog.get_logger(__name__)


class SilenceDetector:
    """Judges who has fallen silent.

    A worker is given up only when its last sign of life is old by the database's clock *and* has
    not changed for as long by the observer's own watch: a clock that is turned kills nobody. An
    observer that was itself cut off or held up starts watching anew.
    """

    def __init__(self, stalled_seconds: float) -> None:
        self._stalled = stalled_seconds
        self._seen: dict[int, tuple[datetime, float]] = {}
        self._looked_at = float("-inf")

    def silent(
        self, beats: Mapping[int, datetime], now: datetime, at: float
    ) -> dict[int, datetime]:
        """The workers to give up, with the sign of life they were judged by; `at` is monotonic."""
        if at - self._looked_at > self._stalled / 2:
            self._seen.clear()
        self._looked_at = at
        self._seen = {
            worker: seen if (seen := self._seen.get(worker)) and seen[0] == beat else (beat, at)
            for worker, beat in beats.items()
        }
        old = timedelta(seconds=self._stalled)
        return {
            worker: beat
            for worker, (beat, since) in self._seen.items()
            if at - since >= self._stalled and abs(now - beat) > old
        }


class Recovery:
    """Looks around every few seconds; any number of processes may do so at once."""

    def __init__(self, link: RetryingPool, settings: Settings) -> None:
        self._link = link
        self._watch = SilenceDetector(settings.jobs.stalled_seconds)
        self._not_in_hand: set[int] = set()

    async def look(
        self, worker_id: int | None = None, in_hand: Collection[int] = frozenset()
    ) -> None:
        """One look: given up are silent workers, and rows this worker holds without knowing it."""
        async with self._link.transaction() as connection:
            await self._give_up_silent(connection)
            if worker_id is not None:
                await self._let_go(connection, worker_id, in_hand)
            cursor = await connection.execute(
                load_query("hasat.jobs", "queue_take_up"),
                {
                    "task": TASK,
                    "private": PRIVATE_QUEUE_PREFIX,
                    "attempts": MAX_ATTEMPTS,
                    "stopped": STOPPED,
                    "set_aside": _SET_ASIDE,
                    "process_died": _PROCESS_DIED,
                    "worker_died": _WORKER_DIED,
                },
            )
            taken_up = await cursor.fetchall()
            cursor = await connection.execute(
                load_query("hasat.jobs", "queue_close_strays"), {"lost_place": _LOST_PLACE}
            )
            strays = await cursor.fetchall()
        await terminate_replaced(self._link)
        for run, job, fate, attempt, worker in taken_up:
            if fate != "over":
                log.warning(
                    "a run lost its worker", run=run, job=job, fate=fate, attempt=attempt, by=worker
                )
        for (run,) in strays:
            log.warning("a run lost its place in the queue", run=run)

    async def _give_up_silent(self, connection: Connection) -> None:
        cursor = await connection.execute(load_query("hasat.jobs", "queue_beats"))
        rows = await cursor.fetchall()
        now = rows[0][0]
        beats = {worker: beat for _, worker, beat in rows if worker is not None}
        if silent := self._watch.silent(beats, now, time.monotonic()):
            cursor = await connection.execute(
                load_query("hasat.jobs", "queue_give_up_workers"),
                {"ids": list(silent), "beats": list(silent.values())},
            )
            for (worker,) in await cursor.fetchall():
                log.warning("a worker fell silent and is given up", worker_id=worker)

    async def _let_go(
        self, connection: Connection, worker_id: int, in_hand: Collection[int]
    ) -> None:
        """PostgreSQL may have handed out a row and gone away before it could say so."""
        cursor = await connection.execute(
            load_query("hasat.jobs", "queue_held"), {"worker_id": worker_id}
        )
        unknown = {row for (row,) in await cursor.fetchall()} - set(in_hand)
        # Seen twice: a row that is on its way into our hands is unknown for a moment.
        if forgotten := unknown & self._not_in_hand:
            await connection.execute(
                load_query("hasat.jobs", "queue_let_go"),
                {"ids": sorted(forgotten), "worker_id": worker_id},
            )
        self._not_in_hand = unknown


STUCK_SECONDS = 60
"""Longer than a frozen or cut-off process can keep a session by itself."""

MIN_SKIPS = 3


@dataclass(frozen=True)
class Blockages:
    """Stuck sessions, described, and the names of the jobs whose newest runs were all skipped."""

    sessions: tuple[str, ...] = ()
    skipped_jobs: tuple[str, ...] = ()

    def __str__(self) -> str:
        found = [
            msg("A session holds locks and does nothing: {session}.", session=one)
            for one in self.sessions
        ]
        found += [
            msg("The last {count} runs of {job} were skipped.", count=MIN_SKIPS, job=job)
            for job in self.skipped_jobs
        ]
        return join(found)

    def __bool__(self) -> bool:
        return bool(self.sessions or self.skipped_jobs)

    @property
    def remedy(self) -> str:
        return msg(
            "Find who holds the lock in pg_locks and pg_stat_activity; end an abandoned session "
            "with pg_terminate_backend(process)."
        )


async def find_blockages(connection: Connection) -> Blockages:
    """Return what is stuck at this moment."""
    cursor = await connection.execute(
        load_query("hasat.jobs", "stuck_sessions"), {"seconds": STUCK_SECONDS}
    )
    sessions = tuple(session for (session,) in await cursor.fetchall())
    cursor = await connection.execute(
        load_query("hasat.jobs", "run_repeatedly_skipped"), {"times": MIN_SKIPS}
    )
    return Blockages(sessions, tuple(job for (job,) in await cursor.fetchall()))
