"""The engine: takes runs from the queue, fires what is due, takes up what others left."""

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
from hasat.jobs.queue import MAX_ATTEMPTS, RowWorker, new_worker, open_app, queue_name
from hasat.jobs.recovery import Heartbeat, Recovery, heartbeat_interval
from hasat.jobs.schedule import Schedule
from hasat.messages import msg
from hasat.settings import Settings
from hasat.store import Store
from hasat.store.home import machine_of

_LINGER_SECONDS = 3.0
"""How long a stopped engine still tries to reach PostgreSQL to give its runs back."""

_RETRY_PAUSE_SECONDS = 5.0

log = structlog.get_logger(__name__)


def worker_name() -> str:
    """Who this process is, in records and messages."""
    return f"{socket.gethostname()}:{os.getpid()}"


class Worker:
    """A worker process's heart; any number of them share one database.

    `run` returns after `drain` or `stop_now`, which are safe to call from a signal handler.
    PostgreSQL may go away and come back meanwhile.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        store: Store,
        settings: Settings,
        *,
        poll_seconds: float = 1.0,
        look_seconds: float = 2.0,
    ) -> None:
        self.started = asyncio.Event()
        """Set once the engine takes runs."""
        self._catalogue = catalogue
        self._store = store
        self._settings = settings
        self._poll_seconds = poll_seconds
        self._look_seconds = look_seconds
        self._name = worker_name()
        self._slots = Slots(settings.jobs.concurrency)
        self._link: RetryingPool | None = None
        self._worker: RowWorker | None = None
        self._number: asyncio.Future[int] | None = None
        self._stopping = asyncio.Event()
        self._stopped_now = False
        self._in_hand: set[int] = set()
        self._running: dict[int, JobTask] = {}

    async def run(self) -> None:
        """Work until drained or stopped; a cancellation is a `stop_now`."""
        main = asyncio.create_task(self._main(), name="engine")
        try:
            await asyncio.shield(main)
        except asyncio.CancelledError:
            self.stop_now()
            await main
            raise

    def drain(self) -> None:
        """Take no more runs; those in hand have drain_seconds to finish, then are given back."""
        if not self._stopping.is_set():
            self._stop_taking()
            loop = asyncio.get_running_loop()
            loop.call_later(self._settings.jobs.drain_seconds, self.stop_now)

    def stop_now(self) -> None:
        """Give back all runs in hand at once."""
        if self._stopped_now:
            return
        self._stopped_now = True
        self._stop_taking()
        for work in self._running.values():
            work.stop("engine")
        if self._link is not None:
            loop = asyncio.get_running_loop()
            loop.call_later(_LINGER_SECONDS, self._link.give_up.set)

    def _stop_taking(self) -> None:
        self._stopping.set()
        if self._worker is not None:
            self._worker.stop()

    async def _main(self) -> None:
        async with open_retrying_pool(self._store) as link:
            self._link = link
            if self._stopped_now:
                link.give_up.set()
            schedule = Schedule(self._catalogue, link, self._look_seconds)
            recovery = Recovery(link, self._settings)

            async def recover() -> float:
                worker_id = self._worker.worker_id if self._worker else None
                await recovery.look(worker_id, self._in_hand)
                return heartbeat_interval(self._settings)

            async with asyncio.TaskGroup() as group:
                group.create_task(self._repeat("schedule", schedule.tick), name="schedule")
                group.create_task(self._repeat("recovery", recover), name="recovery")
                group.create_task(self._work(link), name="work")

    async def _repeat(self, what: str, step: Callable[[], Awaitable[float]]) -> None:
        """Do it again and again; nothing that goes wrong in one round prevents the next."""
        pauses = backoff()
        while not self._stopping.is_set():
            try:
                wait = await step()
                pauses = backoff()
            except CONNECTION_ERRORS:
                wait = next(pauses)
            except Exception:
                log.exception("a round went wrong and is tried again", of=what)
                wait = next(pauses)
            await wait_for_event(self._stopping, wait)

    async def _work(self, link: RetryingPool) -> None:
        """One procrastinate worker after the other: one that was given up needs a successor."""
        app = await open_app(
            link, self._work_on, self._registered, self._slots, self._worker_is_stopping
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
                async with self._pulse(link, self._worker):
                    await self._worker.run()
                pauses = backoff()
            except (ConnectorException, *CONNECTION_ERRORS) as error:
                link.note_away(error.__cause__ or error)
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
    async def _pulse(self, link: RetryingPool, worker: RowWorker) -> AsyncIterator[None]:
        """Signs of life from the worker's registration to its last job's end."""
        number = self._number = asyncio.get_running_loop().create_future()

        async def beat() -> None:
            try:
                pulse = Heartbeat(
                    link, await number, self._settings, self._silence, self._stop_runs
                )
                await pulse.beat()
                log.error("this worker was given up by the others and starts over")
            except Exception:
                log.exception("the pulse stopped; this worker starts over")
                self._silence()
            worker.stop()

        task = asyncio.create_task(beat(), name="pulse")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    def _silence(self) -> None:
        """Others may begin our runs anew: stop them here."""
        for run_id, work in self._running.items():
            if work.stop("silence"):
                log.error("a run is stopped, because its worker fell silent", run=run_id)

    def _stop_runs(self, runs: Collection[int]) -> None:
        """Somebody asked for it."""
        for run_id in runs:
            work = self._running.get(run_id)
            if work is not None and work.stop("hand"):
                log.info("a run is stopped by hand", run=run_id)

    async def _work_on(self, run_id: int, queue_id: int, worker_id: int) -> None:
        assert self._link is not None
        link = self._link
        slot = Slot(self._slots)
        self._in_hand.add(queue_id)
        # A look into the queue that was under way when the drain began may still bring a run.
        too_late = self._stopping.is_set()
        try:
            attempt = await link.insist(
                lambda: Attempt.begin(
                    link,
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
            ending, why = (None, "engine") if too_late else await self._perform(attempt)
            record = self._verdict(attempt, ending, why)
            if not await link.insist(record):
                log.warning("a run was begun anew elsewhere; its end here is void", run=run_id)
        except CONNECTION_ERRORS:
            log.warning("PostgreSQL is away; the next worker takes up the run", run=run_id)
        finally:
            slot.close()
            self._in_hand.discard(queue_id)

    async def _perform(self, attempt: Attempt) -> tuple[AttemptResult | None, StopReason | None]:
        """How the job ended, if it may not be begun anew; and why it was stopped from here."""
        work = self._running[attempt.run.id] = JobTask(attempt.perform())
        if self._stopped_now:
            work.stop("engine")
        try:
            return await work.ended(), work.stopped
        finally:
            del self._running[attempt.run.id]

    def _verdict(
        self, attempt: Attempt, ending: AttemptResult | None, why: StopReason | None
    ) -> Callable[[], Awaitable[bool]]:
        """What to write about the attempt, as often as it takes to get it written."""
        if ending is None and why != "silence":
            return lambda: attempt.give_back(counts=False)
        if ending is None:
            ending = AttemptResult("failed", message=msg("Its worker fell silent."), passing=True)
        if ending.waits:
            reason = ending.message
            return lambda: attempt.give_back(
                counts=False, pause=_RETRY_PAUSE_SECONDS, message=reason
            )
        if ending.passing and attempt.run.attempt < MAX_ATTEMPTS:
            pause = _RETRY_PAUSE_SECONDS * attempt.run.attempt
            message = ending.message
            return lambda: attempt.give_back(counts=True, pause=pause, message=message)
        final = ending
        return lambda: attempt.finish(final)
