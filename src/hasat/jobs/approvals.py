"""Approvals: a run of the same job on the stored input of a hold, which the guard lets pass."""

from collections.abc import Mapping
from typing import Any

from psycopg.types.json import Jsonb

from hasat.feed.holds import GuardError, record_approver, waiting_hold
from hasat.jobs.catalogue import Catalogue, Job, Run
from hasat.jobs.context import OnProgress, RunContext
from hasat.jobs.foreground import OnRemark, run_in_foreground
from hasat.jobs.queue import queue_run
from hasat.jobs.runs import message_columns
from hasat.settings import Settings
from hasat.store import Store
from hasat.store.home import machine_of
from hasat.store.queries import load_query


async def hold_command(
    store: Store, settings: Settings, job: Job, params: Mapping[str, Any], error: GuardError
) -> int:
    """Hold the work of a command that is not a run; return the id of the hold.

    A run of the job is recorded for it, which an approval repeats on the stored input.
    """
    async with store.connection() as connection:
        cursor = await connection.execute(
            load_query("hasat.jobs", "run_insert_held"),
            {"job": job.name, "params": Jsonb(dict(params)), **message_columns(error.message)},
        )
        [(run,)] = await cursor.fetchall()
    context = RunContext(
        run_id=run, job=job, params=params, scheduled_for=None, settings=settings, store=store
    )
    outcome = await context.hold(error)
    return int(outcome.detail["hold"])


async def queue_approval(store: Store, catalogue: Catalogue, hold: int) -> Run:
    """Queue the run that applies a hold, for the machine that has its input."""
    async with store.connection() as connection:
        found = await waiting_hold(connection, hold)
    return await queue_run(store, catalogue, found.job, found.params, approving=found.id)


async def apply_hold(
    store: Store,
    settings: Settings,
    catalogue: Catalogue,
    hold: int,
    on_progress: OnProgress | None = None,
    on_remark: OnRemark = lambda sentence: None,
) -> Run:
    """Apply a hold in this process; queue it if only another machine has its input."""
    async with store.connection() as connection:
        found = await waiting_hold(connection, hold)
    if found.machine not in (None, machine_of(settings.home)):
        return await queue_approval(store, catalogue, hold)
    async with store.connection() as connection:
        await record_approver(connection, found)
    return await run_in_foreground(
        catalogue,
        store,
        settings,
        found.job,
        found.params,
        on_progress,
        on_remark,
        approving=found.id,
    )
