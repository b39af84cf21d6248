"""Putting runs into procrastinate's queue; a run and its row in the queue are one transaction."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from procrastinate import App, PsycopgConnector
from procrastinate.exceptions import ConnectorException, UniqueViolation
from procrastinate.job_context import JobContext
from procrastinate.jobs import Job as Row
from procrastinate.jobs import Status
from procrastinate.manager import JobManager
from procrastinate.worker import Worker
from psycopg.types.json import Jsonb

from hasat.errors import AlreadyRunningError, ConflictError
from hasat.jobs.catalogue import (
    Catalogue,
    Job,
    Run,
    Trigger,
    check_locations,
    check_params,
    check_values,
)
from hasat.jobs.connection import CONNECTION_ERRORS, Connection, RetryingPool
from hasat.jobs.context import Slots
from hasat.jobs.runs import get_run, message_columns
from hasat.messages import msg
from hasat.store import Store
from hasat.store.audit import AuditOutcome, describe_action, record_action
from hasat.store.queries import load_query

TASK = "hasat.run"
"""The one task that procrastinate knows; its argument is the run."""

MAX_ATTEMPTS = 3
STOPPED = msg("Stopped by hand before it was finished.")

PRIVATE_QUEUE_PREFIX = "run-"
"""How the queue of a run that belongs to one process begins: workers keep away from it."""


def queue_name(job: str, machine: str | None = None) -> str:
    """A job's queue: a worker of an older version leaves alone what it does not know.

    Runs that only one machine can execute have a queue of their own, read by its workers.
    """
    return f"job:{job}" if machine is None else f"job:{job}@{machine}"


async def enqueue(
    connection: Connection,
    job: Job,
    *,
    trigger: Trigger,
    params: Mapping[str, Any] | None = None,
    scheduled_for: datetime | None = None,
    machine: str | None = None,
) -> int | None:
    """The number of the new run, or None if this due time was fired before."""
    cursor = await connection.execute(
        load_query("hasat.jobs", "run_insert"),
        {
            "job": job.name,
            "params": Jsonb(dict(job.params if params is None else params)),
            "trigger": trigger,
            "scheduled_for": scheduled_for,
        },
    )
    row = await cursor.fetchone()
    if row is None:
        return None
    await connection.execute(
        load_query("hasat.jobs", "queue_put"),
        {
            "run": row[0],
            "job": job.name,
            "queue": queue_name(job.name, machine),
            "task": TASK,
            # Behind all others: a run that waits for an absent machine must not block its job.
            "priority": 0 if machine is None else -1,
        },
    )
    if machine is not None:
        await connection.execute(
            load_query("hasat.jobs", "run_set_message"),
            {
                "run": row[0],
                **message_columns(
                    msg(
                        "It waits for a worker on the machine {machine}, which has its input.",
                        machine=machine,
                    )
                ),
            },
        )
    return int(row[0])


async def queue_run(
    store: Store,
    catalogue: Catalogue,
    name: str,
    params: Mapping[str, Any] | None = None,
    *,
    trigger: Trigger = "hand",
    behind_others: bool = True,
) -> Run:
    """A run for the next free worker; it waits while another run of the job works.

    With `behind_others` off, a job that skips due times while it is busy (overlap `skip`) is not
    queued a second time: AlreadyRunningError names the run.
    """
    job = catalogue.get(name)
    # The schedule may have had params of no use to the job; a retry has them too.
    check = check_params if trigger == "hand" else check_values
    check(job, params or {})
    check_locations(job, params or {})
    given = {**job.params, **(params or {})} if trigger == "hand" else params
    async with store.connection() as connection:
        if not behind_others and job.overlap == "skip":
            await _refuse_second(connection, job)
        machine = await job.machine(connection, given or {}) if job.machine else None
        run_id = await enqueue(connection, job, trigger=trigger, params=given, machine=machine)
        if run_id is not None:
            await record_run(connection, run_id, job.name, given or {})
    assert run_id is not None, "only a due time can have been fired before"
    return await get_run(store, run_id)


async def record_run(
    connection: Connection,
    run_id: int,
    job: str,
    params: Mapping[str, Any],
    outcome: AuditOutcome = "done",
) -> None:
    """Record that somebody asked for this run; one that applies a held run is its approval."""
    if (held := params.get("approve")) is not None:
        await record_action(
            connection, held, action="hold.approve", outcome=outcome, job=job, run=run_id
        )
    else:
        await record_action(connection, run_id, outcome=outcome, job=job, params=dict(params))


async def _refuse_second(connection: Connection, job: Job) -> None:
    await connection.execute(load_query("hasat.jobs", "queue_one_at_a_time"), {"job": job.name})
    cursor = await connection.execute(
        load_query("hasat.jobs", "schedule_busy_with"), {"job": job.name}
    )
    if (row := await cursor.fetchone()) is not None:
        raise AlreadyRunningError(
            msg(
                "Run {row} of {job} is queued or running; no second one was queued.",
                row=row[0],
                job=job.name,
            ),
            remedy=msg(
                "See it with `hasat jobs show {row}` or GET /api/v1/runs/{row}.", row=row[0]
            ),
        )


async def stop_run(store: Store, run_id: int) -> Run:
    """The run, over if it had not begun; else whoever works on it has been asked to stop it."""
    run = await get_run(store, run_id)
    async with store.connection() as connection:
        # On its own: PostgreSQL checks constraints against the row that a statement began with,
        # so the next one must begin after a worker that is taking the run has committed.
        await connection.execute(load_query("hasat.jobs", "queue_lock"), {"run": run_id})
        cursor = await connection.execute(
            load_query("hasat.jobs", "queue_stop"),
            {"run": run_id, **message_columns(msg("Stopped by hand while it waited."))},
        )
        found = await cursor.fetchone()
        if found is not None:
            await record_action(connection, run_id, job=run.job)
    if found is None:
        run = await get_run(store, run_id)
        if run.state != "finished":
            raise ConflictError(
                msg(
                    "Run {run_id} of {job} has lost its place in the queue.",
                    run_id=run_id,
                    job=run.job,
                ),
                remedy=msg("The next worker that looks around ends it."),
            )
        raise ConflictError(
            msg("Run {run_id} of {job} is over already.", run_id=run_id, job=run.job),
            remedy=msg("See how it ended with `hasat jobs show {run_id}`.", run_id=run_id),
        )
    if found[0]:
        # On its own: whoever ends the run takes these two rows in the other order.
        async with store.connection() as connection:
            await connection.execute(
                load_query("hasat.jobs", "run_set_message"),
                {"run": run_id, **message_columns(msg("It is being stopped by hand."))},
            )
    return await get_run(store, run_id)


async def retry_run(store: Store, catalogue: Catalogue, run_id: int) -> Run:
    """A new run with the parameters of a finished one."""
    run = await get_run(store, run_id)
    if run.state != "finished":
        raise ConflictError(
            msg(
                "Run {run_id} of {job} is not finished, it is {state}.",
                run_id=run_id,
                job=run.job,
                state=run.state,
            ),
            remedy=msg("Follow it with `hasat jobs show {run_id}`.", run_id=run_id),
        )
    describe_action(retry_of=run_id)
    return await queue_run(store, catalogue, run.job, run.params, trigger="retry")


_NEVER = 365 * 86_400.0
_LOOK_SECONDS = 10.0
_STOP_SECONDS = 0.5
"""How soon a look that waits for a free slot notices that the worker stops."""

WorkOn = Callable[[int, int, int], Awaitable[None]]
"""Works on a run; given its number, the queue's row and the worker's number."""


class FencedManager(JobManager):
    """procrastinate's SQL, harmless in the clock of a worker that was given up."""

    def __init__(
        self,
        connector: PsycopgConnector,
        link: RetryingPool,
        on_registered: Callable[[int], None],
        slots: Slots,
        is_stopping: Callable[[], bool],
    ) -> None:
        super().__init__(connector)
        self._link = link
        self._on_registered = on_registered
        self._slots = slots
        self._is_stopping = is_stopping

    async def register_worker(self) -> int:
        worker_id = await super().register_worker()
        self._on_registered(worker_id)
        return worker_id

    async def fetch_job(self, queues: Iterable[str] | None, worker_id: int) -> Row | None:
        """A row for a free slot; the slot is the row's until its run is over."""
        while not await self._slots.take(_STOP_SECONDS):
            if self._is_stopping():
                return None
        row = None
        try:
            row = await self._look(queues, worker_id)
        finally:
            if row is None:
                self._slots.free()
        return row

    async def _look(self, queues: Iterable[str] | None, worker_id: int) -> Row | None:
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                return await super().fetch_job(queues=queues, worker_id=worker_id)
        except UniqueViolation:
            # Another worker took a run of the same job at this very moment.
            return None
        except (ConnectorException, OSError) as error:
            self._link.note_away(error.__cause__ or error)
            return None

    async def finish_job(self, job: Row, status: Status, delete_job: bool) -> None:
        """Usually the row is gone with the run's end; this is for runs that were over already."""
        if self._link.hopeless:
            return
        try:
            async with self._link.transaction() as connection:
                await connection.execute(
                    load_query("hasat.jobs", "queue_release"),
                    {"id": job.id, "worker_id": job.worker_id, "attempts": job.attempts},
                )
        except CONNECTION_ERRORS:
            # Recovery finds a row that is in nobody's clock.
            return

    async def prune_stalled_workers(self, seconds_since_heartbeat: float) -> list[int]:
        """Nothing: who has fallen silent is judged by `Recovery`, which trusts no clock alone."""
        return []

    async def unregister_worker(self, worker_id: int) -> None:
        if self._link.hopeless:
            return
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                await super().unregister_worker(worker_id)
        except (ConnectorException, OSError):
            # It falls silent and is given up.
            return


async def open_app(
    link: RetryingPool,
    work_on: WorkOn,
    on_registered: Callable[[int], None],
    slots: Slots,
    is_stopping: Callable[[], bool],
) -> App:
    """The procrastinate app over a link, with the one task there is."""
    connector = PsycopgConnector()
    await connector.open_async(link.pool)
    app = App(connector=connector)
    app.job_manager = FencedManager(connector, link, on_registered, slots, is_stopping)

    @app.task(name=TASK, pass_context=True)
    async def run(context: JobContext, *, run_id: int) -> None:
        row = context.job
        assert row.id is not None
        assert row.worker_id is not None
        await work_on(run_id, row.id, row.worker_id)

    return app


class RowWorker(Worker):
    """procrastinate's worker, with the types it does not give."""

    async def run(self) -> None:
        await super().run()  # type: ignore[no-untyped-call]

    stopping = False

    def stop(self) -> None:
        self.stopping = True
        super().stop()  # type: ignore[no-untyped-call]


def new_worker(app: App, *, name: str, queues: Collection[str], poll_seconds: float) -> RowWorker:
    """A worker that only takes rows from the queue and works on them; the rest is the engine's."""
    return RowWorker(
        app,
        queues=list(queues),
        name=name,
        # Each queue's lock allows one run at a time; the slots say how many of these work.
        concurrency=max(len(queues), 1),
        fetch_job_polling_interval=poll_seconds,
        # Both are done by the pulse.
        abort_job_polling_interval=_NEVER,
        update_heartbeat_interval=_NEVER,
        # A notification would save part of a second, for a connection that PgBouncer cannot keep.
        listen_notify=False,
        delete_jobs="always",
        install_signal_handlers=False,
    )
