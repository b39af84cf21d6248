"""The worker: takes runs from the queue, runs the schedule, and recovers runs of dead workers."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager

import structlog
from procrastinate.exceptions import ConnectorException

from hasat.jobs.attempt import Attempt, AttemptResult, JobTask, StopReason
from hasat.jobs.catalogue import Catalogue
from hasat.jobs.connection import (
    CONNECTION_ERRORS,
    RetryingPool,
    backoff,
    open_retrying_pool,
    wait_for_event,
)
from hasat.jobs.context import Slot, Slots
from hasat.jobs.queue import MAX_ATTEMPTS, QueueWorker, new_worker, open_app, queue_name
from hasat.jobs.recovery import Heartbeat, Recovery, heartbeat_interval
from hasat.jobs.schedule import Schedule
from hasat.messages import msg
from hasat.settings import Settings
from hasat.store import Store
from hasat.store.home import machine_of

_GIVE_UP_SECONDS = 3.0
"""How long a stopped worker tries to reach PostgreSQL to requeue its runs."""

_RETRY_PAUSE_SECONDS = 5.0

log = structlog.get_logger(__name__)


def worker_name() -> str:
    """Return the name of this process in records and messages."""
    return f"{socket.gethostname()}:{os.getpid()}"


class Worker:
    """Executes runs; any number of workers share one database.

    `run` returns after `drain` or `stop_now`, which are safe to call from a signal handler. The
    worker continues after an outage of PostgreSQL.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        store: Store,
        settings: Settings,
        *,
        poll_seconds: float = 1.0,
        schedule_seconds: float = 2.0,
    ) -> None:
        self.started = asyncio.Event()
        """Set once the worker takes runs."""
        self._catalogue = catalogue
        self._store = store
        self._settings = settings
        self._poll_seconds = poll_seconds
        self._schedule_seconds = schedule_seconds
        self._name = worker_name()
        self._slots = Slots(settings.jobs.concurrency)
        self._database: RetryingPool | None = None
        self._worker: QueueWorker | None = None
        self._number: asyncio.Future[int] | None = None
        self._stopping = asyncio.Event()
        self._stopped_now = False
        self._claimed: set[int] = set()
        self._running: dict[int, JobTask] = {}

    async def run(self) -> None:
        """Execute runs until drained or stopped; a cancellation is a `stop_now`."""
        main = asyncio.create_task(self._main(), name="worker")
        try:
            await asyncio.shield(main)
        except asyncio.CancelledError:
            self.stop_now()
            await main
            raise

    def drain(self) -> None:
        """Take no more runs; running ones are requeued after drain_seconds."""
        if not self._stopping.is_set():
            self._stop_taking()
            loop = asyncio.get_running_loop()
            loop.call_later(self._settings.jobs.drain_seconds, self.stop_now)

    def stop_now(self) -> None:
        """Stop and requeue all runs at once."""
        if self._stopped_now:
            return
        self._stopped_now = True
        self._stop_taking()
        for work in self._running.values():
            work.stop("shutdown")
        if self._database is not None:
            loop = asyncio.get_running_loop()
            loop.call_later(_GIVE_UP_SECONDS, self._database.give_up.set)

    def _stop_taking(self) -> None:
        self._stopping.set()
        if self._worker is not None:
            self._worker.stop()

    async def _main(self) -> None:
        async with open_retrying_pool(self._store) as database:
            self._database = database
            if self._stopped_now:
                database.give_up.set()
            schedule = Schedule(self._catalogue, database, self._schedule_seconds)
            recovery = Recovery(database, self._settings)

            async def recover() -> float:
                worker_id = self._worker.worker_id if self._worker else None
                await recovery.check(worker_id, self._claimed)
                return heartbeat_interval(self._settings)

            async with asyncio.TaskGroup() as group:
                group.create_task(self._repeat("schedule", schedule.tick), name="schedule")
                group.create_task(self._repeat("recovery", recover), name="recovery")
                group.create_task(self._work(database), name="work")

    async def _repeat(self, what: str, step: Callable[[], Awaitable[float]]) -> None:
        """Repeat a step until the worker stops; an error delays the next round."""
        pauses = backoff()
        while not self._stopping.is_set():
            try:
                wait = await step()
                pauses = backoff()
            except CONNECTION_ERRORS:
                wait = next(pauses)
            except Exception:
                log.exception("worker.step_failed", step=what)
                wait = next(pauses)
            await wait_for_event(self._stopping, wait)

    async def _work(self, database: RetryingPool) -> None:
        """Run procrastinate's worker; start another one after it was given up."""
        app = await open_app(
            database, self._handle_run, self._registered, self._slots, self._worker_is_stopping
        )
        machine = machine_of(self._settings.home)
        queues = [queue_name(job.name, at) for job in self._catalogue for at in (None, machine)]
        pauses = backoff()
        while not self._stopping.is_set():
            self._worker = new_worker(
                app,
                name=self._name,
                queues=queues,
                poll_seconds=self._poll_seconds,
            )
            try:
                async with self._heartbeat(database, self._worker):
                    await self._worker.run()
                pauses = backoff()
            except (ConnectorException, *CONNECTION_ERRORS) as error:
                database.mark_unavailable(error.__cause__ or error)
                await wait_for_event(self._stopping, next(pauses))
            finally:
                self._worker = None

    def _worker_is_stopping(self) -> bool:
        return self._worker is None or self._worker.stopping

    def _registered(self, worker_id: int) -> None:
        self.started.set()
        if self._number is not None:
            self._number.set_result(worker_id)

    @asynccontextmanager
    async def _heartbeat(self, database: RetryingPool, worker: QueueWorker) -> AsyncIterator[None]:
        """Send heartbeats from the worker's registration to the end of its last job."""
        number = self._number = asyncio.get_running_loop().create_future()

        async def beat() -> None:
            try:
                heartbeat = Heartbeat(
                    database, await number, self._settings, self._stop_silent, self._stop_runs
                )
                await heartbeat.run()
                log.error("worker.restarting", reason="given up by other workers")
            except Exception:
                log.exception("worker.restarting", reason="the heartbeat failed")
                self._stop_silent()
            worker.stop()

        task = asyncio.create_task(beat(), name="pulse")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    def _stop_silent(self) -> None:
        """Stop all runs, since other workers may take them over."""
        for run_id, work in self._running.items():
            if work.stop("silence"):
                log.error("run.stopping", reason="no heartbeat", run=run_id)

    def _stop_runs(self, runs: Collection[int]) -> None:
        """Stop runs on request."""
        for run_id in runs:
            work = self._running.get(run_id)
            if work is not None and work.stop("manual"):
                log.info("run.stopping", reason="manual", run=run_id)

    async def _handle_run(self, run_id: int, queue_id: int, worker_id: int) -> None:
        assert self._database is not None
        database = self._database
        slot = Slot(self._slots)
        self._claimed.add(queue_id)
        # A fetch that was in progress when the drain began may still return a run.
        too_late = self._stopping.is_set()
        try:
            attempt = await database.retry(
                lambda: Attempt.begin(
                    database,
                    run_id=run_id,
                    queue_id=queue_id,
                    worker_id=worker_id,
                    worker=self._name,
                    job_of=self._catalogue.get,
                    settings=self._settings,
                    store=self._store,
                    slot=slot,
                )
            )
            if attempt is None:
                return
            result, why = (None, "shutdown") if too_late else await self._perform(attempt)
            record = self._recording(attempt, result, why)
            if not await database.retry(record):
                log.warning("run.result_discarded", reason="taken over", run=run_id)
        except CONNECTION_ERRORS:
            log.warning("run.not_recorded", reason="database unavailable", run=run_id)
        finally:
            slot.close()
            self._claimed.discard(queue_id)

    async def _perform(self, attempt: Attempt) -> tuple[AttemptResult | None, StopReason | None]:
        """Execute the job; return its result and why it was stopped, if it was."""
        work = self._running[attempt.run.id] = JobTask(attempt.perform())
        if self._stopped_now:
            work.stop("shutdown")
        try:
            return await work.ended(), work.stopped
        finally:
            del self._running[attempt.run.id]

    def _recording(
        self, attempt: Attempt, result: AttemptResult | None, why: StopReason | None
    ) -> Callable[[], Awaitable[bool]]:
        """Return the step that records the attempt, which is retried until it succeeds."""
        if result is None and why != "silence":
            return lambda: attempt.requeue(counts=False)
        if result is None:
            result = AttemptResult(
                "failed", message=msg("The worker stopped sending heartbeats."), is_transient=True
            )
        if result.is_blocked:
            reason = result.message
            return lambda: attempt.requeue(counts=False, pause=_RETRY_PAUSE_SECONDS, message=reason)
        if result.is_transient and attempt.run.attempt < MAX_ATTEMPTS:
            pause = _RETRY_PAUSE_SECONDS * attempt.run.attempt
            message = result.message
            return lambda: attempt.requeue(counts=True, pause=pause, message=message)
        final = result
        return lambda: attempt.finish(final)
