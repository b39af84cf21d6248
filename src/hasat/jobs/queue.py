"""Putting runs into procrastinate's queue; a run and its row in the queue are one transaction."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from hasat.errors import AlreadyRunningError, ConflictError
from hasat.jobs.catalogue import Catalogue
from hasat.jobs.link import Connection
from hasat.jobs.model import Job, Run, Trigger
from hasat.jobs.params import check_locations, check_params, check_values
from hasat.jobs.runs import get_run, message_columns
from hasat.messages import msg
from hasat.store import Store
from hasat.store.audit import AuditOutcome, describe_action, record_action
from hasat.store.queries import load_query

TASK = "hasat.run"
"""The one task that procrastinate knows; its argument is the run."""

PRIVATE = "run-"
"""How the queue of a run that belongs to one process begins: workers keep away from it."""


def queue_of(job: str, machine: str | None = None) -> str:
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
            "queue": queue_of(job.name, machine),
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
            remedy=msg("Watch it with `hasat jobs show {run_id}`.", run_id=run_id),
        )
    describe_action(retry_of=run_id)
    return await queue_run(store, catalogue, run.job, run.params, trigger="retry")
