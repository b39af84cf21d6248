"""Dead, frozen and blocked workers: heartbeats, recovery of their runs, fencing and blockages.

A replaced attempt can neither write nor keep its locks: each transaction of an attempt is marked
with its run and refused after the run was taken over (`fence`), and the process that takes a run
over ends the sessions of the replaced attempt (`terminate_replaced`). It only needs the same
database role.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import psycopg
import structlog

from hasat.jobs.catalogue import TASK
from hasat.jobs.connection import CONNECTION_ERRORS, Connection, RetryingPool
from hasat.jobs.context import replaced_error
from hasat.jobs.queue import MAX_ATTEMPTS, PRIVATE_QUEUE_PREFIX, STOPPED
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


async def terminate_replaced(database: RetryingPool, run: int | None = None) -> None:
    """End the sessions of a run's replaced attempts, or of all replaced attempts.

    Call it after the replacement is committed: a session that enters later is refused.
    """
    try:
        async with database.transaction() as connection:
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


_SELF_FENCE_SHARE = 0.75
"""The share of stalled_seconds after which a silent worker stops its jobs, before others act."""


def heartbeat_interval(settings: Settings) -> float:
    """Return the seconds between heartbeats: as configured, but at least four per stall time."""
    return min(settings.jobs.heartbeat_seconds, settings.jobs.stalled_seconds / 4)


class Heartbeat:
    """The heartbeat of a worker.

    `on_silence` is called when the worker must stop its runs, `on_stop` with the runs that it was
    asked to stop.
    """

    def __init__(
        self,
        database: RetryingPool,
        worker_id: int,
        settings: Settings,
        on_silence: Callable[[], None],
        on_stop: Callable[[Collection[int]], None],
    ) -> None:
        self.given_up = asyncio.Event()
        """Set when other workers have given this one up: it must register again."""
        self._database = database
        self._worker_id = worker_id
        self._interval = heartbeat_interval(settings)
        self._patience = settings.jobs.stalled_seconds * _SELF_FENCE_SHARE
        self._on_silence = on_silence
        self._on_stop = on_stop
        self._last_beat = 0.0

    async def run(self) -> None:
        """Send heartbeats until cancelled or given up."""
        loop = asyncio.get_running_loop()
        self._last_beat = loop.time()
        fence = asyncio.create_task(self._watch_own_silence(), name="silence watch")
        try:
            while not self.given_up.is_set():
                started = loop.time()
                try:
                    alive = await self._send()
                except CONNECTION_ERRORS:
                    alive = None
                if alive:
                    self._last_beat = started
                elif alive is False:
                    log.error("worker.given_up", worker_id=self._worker_id)
                    self.given_up.set()
                    self._on_silence()
                await asyncio.sleep(self._interval)
        finally:
            fence.cancel()

    async def _send(self) -> bool:
        async with self._database.transaction() as connection:
            cursor = await connection.execute(
                load_query("hasat.jobs", "queue_beat"), {"worker_id": self._worker_id}
            )
            row = await cursor.fetchone()
        if row is not None and row[0]:
            self._on_stop(row[0])
        return row is not None

    async def _watch_own_silence(self) -> None:
        """Stop the runs after too long a silence; separate, because a heartbeat may hang."""
        loop = asyncio.get_running_loop()
        while True:
            silent_at = self._last_beat + self._patience
            await asyncio.sleep(max(silent_at - loop.time(), 0.0) + 0.01)
            if loop.time() - silent_at > 1.0:
                # The event loop itself was blocked: let the missed heartbeat run first.
                await asyncio.sleep(self._interval / 2)
            if loop.time() >= self._last_beat + self._patience:
                self._on_silence()
                await asyncio.sleep(self._interval)


_GIVEN_UP = template(
    "Given up: {attempt} workers died while running it, the last was {worker}. Read that "
    "worker's log, then run it manually (hasat jobs run {job}) or queue it again "
    "(hasat jobs retry {run})."
)
_PROCESS_DIED = template("The process of this manual run ({worker}) died.")
_WORKER_DIED = template("The worker {worker} died during attempt {attempt}; retrying.")
_LOST_FROM_QUEUE = template("It is missing from the queue. Queue it again: hasat jobs retry {run}.")

log = structlog.get_logger(__name__)


class SilenceDetector:
    """Detects workers without a heartbeat.

    A worker is given up only if its last heartbeat is old by the database's clock *and* has not
    changed for as long by the observer's monotonic clock, so that a changed clock has no effect. An
    observer that was disconnected or blocked itself starts again.
    """

    def __init__(self, stalled_seconds: float) -> None:
        self._stalled = stalled_seconds
        self._seen: dict[int, tuple[datetime, float]] = {}
        self._checked_at = float("-inf")

    def silent(
        self, beats: Mapping[int, datetime], now: datetime, at: float
    ) -> dict[int, datetime]:
        """Return the workers to give up with their last heartbeat; `at` is monotonic."""
        if at - self._checked_at > self._stalled / 2:
            self._seen.clear()
        self._checked_at = at
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
    """Takes over the runs of dead workers; any number of processes may do so at once."""

    def __init__(self, database: RetryingPool, settings: Settings) -> None:
        self._database = database
        self._detector = SilenceDetector(settings.jobs.stalled_seconds)
        self._unclaimed: set[int] = set()

    async def check(
        self, worker_id: int | None = None, claimed: Collection[int] = frozenset()
    ) -> None:
        """Give up silent workers, and release rows that this worker holds without knowing it."""
        async with self._database.transaction() as connection:
            await self._give_up_silent(connection)
            if worker_id is not None:
                await self._release_unknown(connection, worker_id, claimed)
            cursor = await connection.execute(
                load_query("hasat.jobs", "queue_take_up"),
                {
                    "task": TASK,
                    "private": PRIVATE_QUEUE_PREFIX,
                    "attempts": MAX_ATTEMPTS,
                    "stopped": STOPPED,
                    "set_aside": _GIVEN_UP,
                    "process_died": _PROCESS_DIED,
                    "worker_died": _WORKER_DIED,
                },
            )
            taken_up = await cursor.fetchall()
            cursor = await connection.execute(
                load_query("hasat.jobs", "queue_close_strays"), {"lost_place": _LOST_FROM_QUEUE}
            )
            strays = await cursor.fetchall()
        await terminate_replaced(self._database)
        for run, job, fate, attempt, worker in taken_up:
            if fate != "over":
                log.warning(
                    "run.worker_died", run=run, job=job, next=fate, attempt=attempt, worker=worker
                )
        for (run,) in strays:
            log.warning("run.missing_from_queue", run=run)

    async def _give_up_silent(self, connection: Connection) -> None:
        cursor = await connection.execute(load_query("hasat.jobs", "queue_beats"))
        rows = await cursor.fetchall()
        now = rows[0][0]
        beats = {worker: beat for _, worker, beat in rows if worker is not None}
        if silent := self._detector.silent(beats, now, time.monotonic()):
            cursor = await connection.execute(
                load_query("hasat.jobs", "queue_give_up_workers"),
                {"ids": list(silent), "beats": list(silent.values())},
            )
            for (worker,) in await cursor.fetchall():
                log.warning("worker.silent", worker_id=worker)

    async def _release_unknown(
        self, connection: Connection, worker_id: int, claimed: Collection[int]
    ) -> None:
        """Release rows that PostgreSQL assigned to this worker before the connection broke."""
        cursor = await connection.execute(
            load_query("hasat.jobs", "queue_held"), {"worker_id": worker_id}
        )
        unknown = {row for (row,) in await cursor.fetchall()} - set(claimed)
        # Seen twice: a row that was just fetched is unknown for a moment.
        if forgotten := unknown & self._unclaimed:
            await connection.execute(
                load_query("hasat.jobs", "queue_let_go"),
                {"ids": sorted(forgotten), "worker_id": worker_id},
            )
        self._unclaimed = unknown


STUCK_SECONDS = 60
"""Longer than a frozen or disconnected process can keep a session."""

MIN_SKIPS = 3


@dataclass(frozen=True)
class Blockages:
    """Descriptions of stuck sessions, and the jobs whose newest runs were all skipped."""

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
    """Return stuck sessions and repeatedly skipped jobs."""
    cursor = await connection.execute(
        load_query("hasat.jobs", "stuck_sessions"), {"seconds": STUCK_SECONDS}
    )
    sessions = tuple(session for (session,) in await cursor.fetchall())
    cursor = await connection.execute(
        load_query("hasat.jobs", "run_repeatedly_skipped"), {"times": MIN_SKIPS}
    )
    return Blockages(sessions, tuple(job for (job,) in await cursor.fetchall()))
