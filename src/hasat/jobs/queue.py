"""procrastinate's queue: queue, stop and retry runs, and the worker that takes them.

A run and its row in the queue are written in one transaction. Four behaviours of procrastinate are
replaced. It ends a worker's heartbeat when a drain begins, while jobs still run: `Heartbeat`
continues. It lets a worker that was given up finish rows of other workers: `FencedManager` writes
only to the worker's own rows. It stops a worker when PostgreSQL is unavailable: here fetching is
retried. And a run occupies a place to its end: here `Slots` count, which a run vacates while it
waits for budget.
"""

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
from procrastinate.worker import Worker as ProcrastinateWorker
from psycopg.types.json import Jsonb

from hasat.errors import AlreadyRunningError, ConflictError
from hasat.feed.holds import record_approver, waiting_hold
from hasat.jobs.catalogue import (
    APPROVE,
    TASK,
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

MAX_ATTEMPTS = 3
STOPPED = msg("Stopped manually before it finished.")

PRIVATE_QUEUE_PREFIX = "run-"
"""The prefix of the queue of a run in the foreground, which no worker reads."""


def queue_name(job: str, machine: str | None = None) -> str:
    """Return the queue of a job: a worker of an older version does not read unknown queues.

    Runs that only one machine can execute have a separate queue that only its workers read.
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
    """Queue a run and return its number, or None if this due time was queued before."""
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
            # Lowest priority: a run that waits for an absent machine must not block its job.
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
                        "Waiting for a worker on {machine}, which has the input.",
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
    approving: int | None = None,
) -> Run:
    """Queue a run for the next free worker; it waits while another run of the job is running.

    Without `behind_others`, a job with overlap `skip` is not queued while a run is open:
    AlreadyRunningError names the run. A run that applies a hold is queued for the machine that
    has its input; if one is queued or running already, it is returned.
    """
    job = catalogue.get(name)
    # A scheduled run may have had unknown parameters from the settings; so may its repetition.
    check = check_params if trigger == "hand" and approving is None else check_values
    check(job, params or {})
    if approving is None:
        # A run that applies a hold reads its stored input only.
        check_locations(job, params or {})
    given = {**job.params, **(params or {})} if trigger == "hand" else params
    if approving is not None:
        given = {**(given or {}), APPROVE: approving}
    async with store.connection() as connection:
        if not behind_others and job.overlap == "skip":
            await _check_not_busy(connection, job)
        run_id = None if approving is None else await _open_approval(connection, job, approving)
        if run_id is None:
            machine = await _machine(connection, given or {})
            run_id = await enqueue(connection, job, trigger=trigger, params=given, machine=machine)
            if run_id is not None:
                await record_run(connection, run_id, job.name, given or {})
    assert run_id is not None, "only a due time can have been queued before"
    return await get_run(store, run_id)


async def record_run(
    connection: Connection,
    run_id: int,
    job: str,
    params: Mapping[str, Any],
    outcome: AuditOutcome = "done",
) -> None:
    """Record a request for a run in the audit; a run that applies a held run is its approval."""
    if (held := params.get(APPROVE)) is not None:
        await record_action(
            connection, held, action="hold.approve", outcome=outcome, job=job, run=run_id
        )
    else:
        await record_action(connection, run_id, outcome=outcome, job=job, params=dict(params))


async def _machine(connection: Connection, params: Mapping[str, Any]) -> str | None:
    """Return the only machine that can apply a hold, and record who approves it."""
    if params.get(APPROVE) is None:
        return None
    hold = await waiting_hold(connection, int(params[APPROVE]))
    await record_approver(connection, hold)
    return hold.machine


async def _open_approval(connection: Connection, job: Job, hold: int) -> int | None:
    """Return the queued or running run that applies a hold, if there is one."""
    await connection.execute(load_query("hasat.jobs", "queue_one_at_a_time"), {"job": job.name})
    cursor = await connection.execute(
        load_query("hasat.jobs", "open_approval"), {"job": job.name, "hold": hold}
    )
    row = await cursor.fetchone()
    return None if row is None else int(row[0])


async def _check_not_busy(connection: Connection, job: Job) -> None:
    await connection.execute(load_query("hasat.jobs", "queue_one_at_a_time"), {"job": job.name})
    cursor = await connection.execute(
        load_query("hasat.jobs", "schedule_busy_with"), {"job": job.name}
    )
    if (row := await cursor.fetchone()) is not None:
        raise AlreadyRunningError(
            msg(
                "Run {row} of {job} is already queued or running.",
                row=row[0],
                job=job.name,
            ),
            remedy=msg(
                "See it with `hasat jobs show {row}` or GET /api/v1/runs/{row}.", row=row[0]
            ),
        )


async def stop_run(store: Store, run_id: int) -> Run:
    """Stop a run: a queued run ends at once, a running one is asked to stop."""
    run = await get_run(store, run_id)
    async with store.connection() as connection:
        # A separate statement: PostgreSQL checks constraints against the row as the statement saw
        # it, so the next one must start after a worker that takes the run has committed.
        await connection.execute(load_query("hasat.jobs", "queue_lock"), {"run": run_id})
        cursor = await connection.execute(
            load_query("hasat.jobs", "queue_stop"),
            {"run": run_id, **message_columns(msg("Stopped manually while queued."))},
        )
        found = await cursor.fetchone()
        if found is not None:
            await record_action(connection, run_id, job=run.job)
    if found is None:
        run = await get_run(store, run_id)
        if run.state != "finished":
            raise ConflictError(
                msg(
                    "Run {run_id} of {job} is missing from the queue.",
                    run_id=run_id,
                    job=run.job,
                ),
                remedy=msg("A worker will end it within seconds."),
            )
        raise ConflictError(
            msg("Run {run_id} of {job} has already finished.", run_id=run_id, job=run.job),
            remedy=msg("`hasat jobs show {run_id}` shows its outcome.", run_id=run_id),
        )
    if found[0]:
        # A separate transaction: the worker that ends the run locks these rows in another order.
        async with store.connection() as connection:
            await connection.execute(
                load_query("hasat.jobs", "run_set_message"),
                {"run": run_id, **message_columns(msg("Stopping on request."))},
            )
    return await get_run(store, run_id)


async def retry_run(store: Store, catalogue: Catalogue, run_id: int) -> Run:
    """Queue a new run with the parameters of a finished one."""
    run = await get_run(store, run_id)
    if run.state != "finished":
        raise ConflictError(
            msg(
                "Run {run_id} of {job} has not finished: it is {state}.",
                run_id=run_id,
                job=run.job,
                state=run.state,
            ),
            remedy=msg("Follow it with `hasat jobs show {run_id}`.", run_id=run_id),
        )
    describe_action(retry_of=run_id)
    return await queue_run(store, catalogue, run.job, run.params, trigger="retry")


_NEVER = 365 * 86_400.0
_FETCH_TIMEOUT_SECONDS = 10.0
_STOP_CHECK_SECONDS = 0.5
"""How often a fetch that waits for a free slot checks whether the worker stops."""

RunHandler = Callable[[int, int, int], Awaitable[None]]
"""Executes a run; takes its number, the row of the queue and the number of the worker."""


class FencedManager(JobManager):
    """procrastinate's SQL, restricted to rows that still belong to the worker."""

    def __init__(
        self,
        connector: PsycopgConnector,
        database: RetryingPool,
        on_registered: Callable[[int], None],
        slots: Slots,
        is_stopping: Callable[[], bool],
    ) -> None:
        super().__init__(connector)
        self._database = database
        self._on_registered = on_registered
        self._slots = slots
        self._is_stopping = is_stopping

    async def register_worker(self) -> int:
        worker_id = await super().register_worker()
        self._on_registered(worker_id)
        return worker_id

    async def fetch_job(self, queues: Iterable[str] | None, worker_id: int) -> Row | None:
        """Fetch a row once a slot is free; the slot is occupied until the run has finished."""
        while not await self._slots.take(_STOP_CHECK_SECONDS):
            if self._is_stopping():
                return None
        row = None
        try:
            row = await self._fetch(queues, worker_id)
        finally:
            if row is None:
                self._slots.free()
        return row

    async def _fetch(self, queues: Iterable[str] | None, worker_id: int) -> Row | None:
        try:
            async with asyncio.timeout(_FETCH_TIMEOUT_SECONDS):
                return await super().fetch_job(queues=queues, worker_id=worker_id)
        except UniqueViolation:
            # Another worker took a run of the same job at the same time.
            return None
        except (ConnectorException, OSError) as error:
            self._database.mark_unavailable(error.__cause__ or error)
            return None

    async def finish_job(self, job: Row, status: Status, delete_job: bool) -> None:
        """Delete the row of a run that had finished before; others are deleted with the run."""
        if self._database.is_given_up:
            return
        try:
            async with self._database.transaction() as connection:
                await connection.execute(
                    load_query("hasat.jobs", "queue_release"),
                    {"id": job.id, "worker_id": job.worker_id, "attempts": job.attempts},
                )
        except CONNECTION_ERRORS:
            # Recovery finds the row.
            return

    async def prune_stalled_workers(self, seconds_since_heartbeat: float) -> list[int]:
        """Do nothing: `Recovery` detects silent workers without relying on one clock."""
        return []

    async def unregister_worker(self, worker_id: int) -> None:
        if self._database.is_given_up:
            return
        try:
            async with asyncio.timeout(_FETCH_TIMEOUT_SECONDS):
                await super().unregister_worker(worker_id)
        except (ConnectorException, OSError):
            # Recovery removes it after its heartbeat stops.
            return


async def open_app(
    database: RetryingPool,
    handle_run: RunHandler,
    on_registered: Callable[[int], None],
    slots: Slots,
    is_stopping: Callable[[], bool],
) -> App:
    """Open the procrastinate app with its only task."""
    connector = PsycopgConnector()
    await connector.open_async(database.pool)
    app = App(connector=connector)
    app.job_manager = FencedManager(connector, database, on_registered, slots, is_stopping)

    @app.task(name=TASK, pass_context=True)
    async def run(context: JobContext, *, run_id: int) -> None:
        row = context.job
        assert row.id is not None
        assert row.worker_id is not None
        await handle_run(run_id, row.id, row.worker_id)

    return app


class QueueWorker(ProcrastinateWorker):
    """procrastinate's worker with type annotations."""

    async def run(self) -> None:
        await super().run()  # type: ignore[no-untyped-call]

    stopping = False

    def stop(self) -> None:
        self.stopping = True
        super().stop()  # type: ignore[no-untyped-call]


def new_worker(app: App, *, name: str, queues: Collection[str], poll_seconds: float) -> QueueWorker:
    """Return a procrastinate worker that only takes rows from the queue and executes them."""
    return QueueWorker(
        app,
        queues=list(queues),
        name=name,
        # The lock of each job allows one run at a time; the slots limit the total.
        concurrency=max(len(queues), 1),
        fetch_job_polling_interval=poll_seconds,
        # `Heartbeat` does both.
        abort_job_polling_interval=_NEVER,
        update_heartbeat_interval=_NEVER,
        # Notifications need a session, which PgBouncer in transaction mode does not provide.
        listen_notify=False,
        delete_jobs="always",
        install_signal_handlers=False,
    )
