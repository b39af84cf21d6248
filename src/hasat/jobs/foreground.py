"""Manual runs in this process, without a worker, under the same lock as queued runs."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from hasat.clock import zone
from hasat.errors import DatabaseError
from hasat.jobs.attempt import Attempt, AttemptResult, JobTask, StopReason
from hasat.jobs.catalogue import APPROVE, TASK, Catalogue, Job, Run, check_params
from hasat.jobs.connection import CONNECTION_ERRORS, Connection, RetryingPool, open_retrying_pool
from hasat.jobs.context import OnProgress
from hasat.jobs.queue import PRIVATE_QUEUE_PREFIX, record_run
from hasat.jobs.recovery import Heartbeat, Recovery
from hasat.jobs.runs import get_run, message_columns
from hasat.jobs.worker import worker_name
from hasat.messages import Message, msg
from hasat.settings import Settings
from hasat.store import Store
from hasat.store.queries import load_query

_POLL_SECONDS = 0.25
_RECORD_SECONDS = 60.0
"""How long to retry recording the result while PostgreSQL is unavailable."""

OnRemark = Callable[[str], None]


@dataclass(frozen=True)
class Holder:
    """The run that holds a job's lock, and the last heartbeat of its process."""

    run: int
    worker: str | None
    since: datetime
    worker_id: int | None
    beat: datetime | None


@dataclass(frozen=True)
class _Claim:
    run_id: int
    queue_id: int
    worker_id: int


async def run_in_foreground(
    catalogue: Catalogue,
    store: Store,
    settings: Settings,
    name: str,
    params: Mapping[str, Any] | None = None,
    on_progress: OnProgress | None = None,
    on_remark: OnRemark = lambda sentence: None,
    *,
    approving: int | None = None,
) -> Run:
    """Run a job and return the finished run; its outcome is 'skipped' if another run is open.

    Disabled jobs run too. A cancellation is recorded as outcome 'interrupted'.
    `approving` is the hold that the run applies.
    """
    job = catalogue.get(name)
    given = {**job.params, **(params or {})}
    if approving is None:
        check_params(job, params or {})
    else:
        given[APPROVE] = approving
    async with open_retrying_pool(store) as database:
        try:
            async with _registered(database) as worker_id:
                run_id = await _Foreground(database, catalogue, store, settings, worker_id).run(
                    job, given, on_progress, on_remark
                )
        except CONNECTION_ERRORS as error:
            raise DatabaseError(
                msg(
                    "PostgreSQL does not respond: {name} could not be run, or its result could not "
                    "be recorded.",
                    name=name,
                ),
                remedy=msg(
                    "Run it again when PostgreSQL responds; `hasat doctor` shows the problem."
                ),
            ) from error
    return await get_run(store, run_id)


class _Foreground:
    def __init__(
        self,
        database: RetryingPool,
        catalogue: Catalogue,
        store: Store,
        settings: Settings,
        worker_id: int,
    ) -> None:
        self._database = database
        self._catalogue = catalogue
        self._store = store
        self._settings = settings
        self._worker_id = worker_id
        self._work: JobTask | None = None

    async def run(
        self,
        job: Job,
        params: Mapping[str, Any],
        on_progress: OnProgress | None,
        on_remark: OnRemark,
    ) -> int:
        heartbeat = Heartbeat(
            self._database,
            self._worker_id,
            self._settings,
            lambda: self._stop("silence"),
            lambda _runs: self._stop("manual"),
        )
        heartbeats = asyncio.create_task(heartbeat.run(), name="pulse")
        try:
            claim = await self._claim(job, params, on_remark)
            if isinstance(claim, Holder):
                return await self._refuse(job, params, claim)
            return await self._perform(claim, on_progress)
        finally:
            heartbeats.cancel()
            await asyncio.wait({heartbeats})

    def _stop(self, why: StopReason) -> None:
        if self._work is not None:
            self._work.stop(why)

    async def _claim(
        self, job: Job, params: Mapping[str, Any], on_remark: OnRemark
    ) -> _Claim | Holder:
        """Take the job's lock or return its live holder; wait until a dead holder is replaced."""
        recovery = Recovery(self._database, self._settings)
        first: Holder | None = None
        while True:
            async with self._database.transaction() as connection:
                holder = await _holder(connection, job)
                claim = None if holder else await self._take(connection, job, params)
            if claim is not None:
                return claim
            if holder is not None and first is None:
                first = holder
                on_remark(f"{self._describe(job, holder)} Checking whether its process is alive.")
            elif holder is not None and first is not None and _is_alive(holder, first):
                return holder
            await recovery.check()
            await asyncio.sleep(_POLL_SECONDS)

    async def _take(
        self, connection: Connection, job: Job, params: Mapping[str, Any]
    ) -> _Claim | None:
        cursor = await connection.execute(
            load_query("hasat.jobs", "run_insert"),
            {
                "job": job.name,
                "params": Jsonb(dict(params)),
                "trigger": "hand",
                "scheduled_for": None,
            },
        )
        inserted = await cursor.fetchone()
        assert inserted is not None
        run_id: int = inserted[0]
        cursor = await connection.execute(
            load_query("hasat.jobs", "queue_take"),
            {
                "run": run_id,
                "job": job.name,
                "queue": f"{PRIVATE_QUEUE_PREFIX}{run_id}",
                "task": TASK,
                "worker_id": self._worker_id,
            },
        )
        taken = await cursor.fetchone()
        if taken is None:
            await connection.rollback()
            return None
        await record_run(connection, run_id, job.name, params)
        return _Claim(run_id, taken[0], self._worker_id)

    async def _refuse(self, job: Job, params: Mapping[str, Any], holder: Holder) -> int:
        async with self._database.transaction() as connection:
            cursor = await connection.execute(
                load_query("hasat.jobs", "run_refuse"),
                {
                    "job": job.name,
                    "params": Jsonb(dict(params)),
                    "trigger": "hand",
                    "scheduled_for": None,
                    **message_columns(self._describe(job, holder)),
                    "behind": holder.run,
                },
            )
            row = await cursor.fetchone()
            assert row is not None
            await record_run(connection, row[0], job.name, params, "refused")
        return int(row[0])

    def _describe(self, job: Job, holder: Holder) -> Message:
        since = holder.since.astimezone(zone(self._settings.jobs.timezone))
        return msg(
            "Run {run} of {job} has been running since {since:%Y-%m-%d %H:%M:%S} ({worker}).",
            run=holder.run,
            job=job.name,
            since=since,
            worker=holder.worker or msg("about to start"),
        )

    async def _perform(self, claim: _Claim, on_progress: OnProgress | None) -> int:
        attempt = await self._database.retry(
            lambda: Attempt.begin(
                self._database,
                run_id=claim.run_id,
                queue_id=claim.queue_id,
                worker_id=claim.worker_id,
                worker=worker_name(),
                job_of=self._catalogue.get,
                settings=self._settings,
                store=self._store,
                on_progress=on_progress,
                local=True,
            )
        )
        if attempt is None:
            # The claim expired before the start, and recovery has recorded the outcome.
            return claim.run_id
        work = self._work = JobTask(attempt.perform())
        try:
            result = await work.ended()
        except asyncio.CancelledError:
            work.stop("manual")
            await self._record(attempt, await work.ended())
            raise
        await self._record(attempt, result)
        return claim.run_id

    async def _record(self, attempt: Attempt, result: AttemptResult | None) -> None:
        final = result or AttemptResult(
            "interrupted", message=msg("PostgreSQL did not respond for too long.")
        )
        loop = asyncio.get_running_loop()
        too_late = loop.call_later(_RECORD_SECONDS, self._database.give_up.set)
        try:
            await self._database.retry(lambda: attempt.finish(final))
        finally:
            too_late.cancel()


@asynccontextmanager
async def _registered(database: RetryingPool) -> AsyncIterator[int]:
    """Register this process as a worker, so that others see its heartbeat."""
    async with database.transaction() as connection:
        cursor = await connection.execute(
            "SELECT worker_id FROM procrastinate_register_worker_v1()"
        )
        row = await cursor.fetchone()
    assert row is not None
    try:
        yield row[0]
    finally:
        with contextlib.suppress(*CONNECTION_ERRORS):
            async with database.transaction() as connection:
                await connection.execute("SELECT procrastinate_unregister_worker_v1(%s)", row)


def _is_alive(holder: Holder, first: Holder) -> bool:
    """Return whether the holder has changed or sent a heartbeat since the first check."""
    return holder.run != first.run or (holder.beat is not None and holder.beat != first.beat)


async def _holder(connection: Connection, job: Job) -> Holder | None:
    cursor = connection.cursor(row_factory=class_row(Holder))
    await cursor.execute(load_query("hasat.jobs", "queue_holder"), {"job": job.name})
    return await cursor.fetchone()
