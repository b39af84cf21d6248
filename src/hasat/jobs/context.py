"""The context of a running job, and the worker slot that it occupies."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import structlog

from hasat.clock import zone
from hasat.errors import ConflictError
from hasat.feed.held_input import HeldInput, input_files
from hasat.feed.holds import (
    GuardError,
    Hold,
    describe_inputs,
    get_hold,
    held_inputs,
    record_hold,
    store_inputs,
)
from hasat.jobs.catalogue import APPROVE, Job, Outcome
from hasat.jobs.connection import CONNECTION_ERRORS, Connection
from hasat.messages import msg, stored
from hasat.settings import Settings
from hasat.store import Store


def replaced_error(run: int) -> ConflictError:
    """Return the error of an attempt whose run another worker has taken over."""
    return ConflictError(
        msg("Run {run} was taken over by another worker while this one was silent.", run=run)
    )


class Slots:
    """The number of runs that a worker executes at once; waiters are served in order."""

    def __init__(self, count: int) -> None:
        self._free = asyncio.Semaphore(count)

    async def take(self, seconds: float) -> bool:
        """Take a slot; return False if none becomes free within that many seconds."""
        try:
            async with asyncio.timeout(seconds):
                return await self._free.acquire()
        except TimeoutError:
            return False

    async def wait(self) -> None:
        await self._free.acquire()

    def free(self) -> None:
        self._free.release()


class Slot:
    """The slot of a run, vacated while the run waits for budget."""

    def __init__(self, slots: Slots) -> None:
        """Take over a slot that was taken."""
        self._slots = slots
        self._occupied = True
        self._closed = False
        self._turn = asyncio.Lock()

    def vacate(self) -> None:
        if self._occupied:
            self._occupied = False
            self._slots.free()

    async def occupy(self) -> None:
        """Wait until the run may work again."""
        async with self._turn:
            if not self._occupied and not self._closed:
                await self._slots.wait()
                self._occupied = True

    def close(self) -> None:
        """End the use of the slot with the run."""
        self._closed = True
        self.vacate()


StoreProgress = Callable[[Mapping[str, Any] | None, int], Awaitable[bool]]
"""Stores progress and new requests; returns False after another attempt has taken over."""

Conclude = Callable[[Connection, Outcome], Awaitable[bool]]
"""Records the outcome of the run; returns False after another attempt has taken over."""

OnProgress = Callable[[float, float | None, str], None]

_PROGRESS_INTERVAL = 1.0
# During a shorter wait another run could do little.
_SHORT_WAIT_SECONDS = 1.0
_SAME_WAIT = timedelta(seconds=2)


class RunContext:
    """The settings, parameters and services of one attempt at a run."""

    def __init__(
        self,
        *,
        run_id: int,
        job: Job,
        params: Mapping[str, Any],
        scheduled_for: datetime | None,
        settings: Settings,
        store: Store,
        store_progress: StoreProgress | None = None,
        conclude: Conclude | None = None,
        on_progress: OnProgress | None = None,
        slot: Slot | None = None,
        attempt: int = 1,
        local: bool = False,
    ) -> None:
        self.run_id = run_id
        self.is_retry = attempt > 1
        """Whether there was an earlier attempt, which may have left locks behind."""
        self._local = local
        self.job = job
        self.params = params
        self.scheduled_for = scheduled_for
        self.settings = settings
        self.store = store
        self.log = structlog.get_logger("hasat.job").bind(
            run=run_id, job=job.name, source=job.source
        )
        self.last_progress: Mapping[str, Any] | None = None
        self.unsaved_requests = 0
        self._began = time.monotonic()
        self._write_progress = store_progress
        self._conclude = conclude
        self._on_progress = on_progress
        self._stored_at = float("-inf")
        self._slot = slot
        self._waiting_until: datetime | None = None

    @property
    def approving(self) -> int | None:
        """The approved hold that this run applies, if any."""
        hold = self.params.get(APPROVE)
        return None if hold is None else int(hold)

    async def approved_hold(self) -> Hold:
        """Return the approved hold that this run applies."""
        assert self.approving is not None
        return await get_hold(self.store, self.approving)

    @asynccontextmanager
    async def inputs(self) -> AsyncIterator[dict[str, Path]]:
        """Provide the stored input of the approved hold: private, verified copies by name."""
        assert self.approving is not None
        async with held_inputs(self.store, self.settings, self.approving, run=self.run_id) as files:
            yield files

    async def hold(self, error: GuardError) -> Outcome:
        """Hold the run: store its input for an approval, and record the finding and the outcome.

        An approval runs the job again with `approving` set, and `inputs` returns the files.
        """
        source = self.job.source or self.job.name
        async with input_files(self.settings, self.run_id, error.inputs) as files:
            described = await describe_inputs(self.settings, source, self.run_id, files)
            outcome = await self._record_hold(error, described, only_repeat=True)
            if outcome is None:
                await store_inputs(self.store, self.settings, source, self.run_id, described, files)
                outcome = await self._record_hold(error, described)
        assert outcome is not None
        return outcome

    async def _record_hold(
        self, error: GuardError, inputs: Mapping[str, HeldInput], *, only_repeat: bool = False
    ) -> Outcome | None:
        async with self.store.connection() as connection:
            hold = await record_hold(
                connection,
                run=self.run_id,
                job=self.job.name,
                source=self.job.source,
                params=self.params,
                finding=error.finding,
                inputs=inputs,
                seconds=time.monotonic() - self._began,
                only_repeat=only_repeat,
            )
            if hold is None:
                return None
            detail = {**error.finding.detail, "hold": hold}
            outcome = Outcome("held", detail=detail, message=error.message)
            await self.conclude(connection, outcome)
        return outcome

    def trusts(self, param: str) -> bool:
        """Return whether a location parameter may be a file or a private address.

        It may if it was given on this machine's command line or in the operator's settings.
        """
        return self._local or self.params.get(param) == self.job.params.get(param)

    async def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report progress; cheap enough to call for every step.

        Raises ConflictError if another worker has taken the run over.
        """
        self.last_progress = _progress(done, total, note)
        waited, self._waiting_until = self._waiting_until is not None, None
        if self._on_progress is not None:
            self._on_progress(done, total, note)
        if waited or time.monotonic() - self._stored_at >= _PROGRESS_INTERVAL:
            await self._store_progress(self.last_progress)

    @asynccontextmanager
    async def waiting(self, seconds: float) -> AsyncIterator[None]:
        """Vacate the worker slot during a wait of about that many seconds.

        The block ends when the wait is over and a slot is free.
        """
        if seconds < _SHORT_WAIT_SECONDS:
            yield
            return
        await self._note_waiting(seconds)
        if self._slot is None:
            yield
            return
        self._slot.vacate()
        # Not in a `finally`: a run that is stopped while it waits needs no slot.
        yield
        await self._slot.occupy()

    async def _note_waiting(self, seconds: float) -> None:
        until = datetime.now(UTC) + timedelta(seconds=seconds)
        if self._waiting_until is not None and abs(until - self._waiting_until) < _SAME_WAIT:
            return
        self._waiting_until = until
        if self.last_progress is None:
            self.last_progress = _progress(0, None, "")
        there = until.astimezone(zone(self.settings.jobs.timezone))
        note = msg("waiting for budget until {until}", until=f"{there:%H:%M:%S}")
        if self._on_progress is not None:
            self._on_progress(self.last_progress["done"], self.last_progress["total"], note)
        await self._store_progress(
            {
                **_progress(self.last_progress["done"], self.last_progress["total"], note),
                "waitingUntil": there.isoformat(),
            }
        )

    async def _store_progress(self, progress: Mapping[str, Any]) -> None:
        if self._write_progress is None:
            return
        self._stored_at = time.monotonic()
        requests, self.unsaved_requests = self.unsaved_requests, 0
        try:
            still_ours = await self._write_progress(progress, requests)
        except CONNECTION_ERRORS:
            # Progress is not worth a failure: the next call or the end of the run stores it.
            self.unsaved_requests += requests
            return
        if not still_ours:
            raise replaced_error(self.run_id)

    async def conclude(self, connection: Connection, outcome: Outcome) -> None:
        """Record the outcome in the transaction that commits the run's work, as the last step.

        Raises ConflictError if another worker has taken the run over: then nothing is committed.
        """
        if self._conclude is not None and not await self._conclude(connection, outcome):
            raise replaced_error(self.run_id)

    def count_requests(self, requests: int = 1) -> None:
        """Count requests sent to an upstream."""
        self.unsaved_requests += requests


def _progress(done: float, total: float | None, note: str) -> dict[str, Any]:
    progress: dict[str, Any] = {"done": done, "total": total, "note": note}
    if data := stored(note):
        progress["noteData"] = data
    return progress
