"""The record of runs, and the schedule with the last run of each job."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import AsyncCursor
from psycopg.rows import RowMaker, dict_row
from psycopg.types.json import Jsonb

from hasat.errors import NotFoundError
from hasat.jobs.catalogue import Catalogue, Job, Run
from hasat.jobs.connection import Connection
from hasat.messages import msg, restored, stored
from hasat.settings import Settings
from hasat.store import Store
from hasat.store.queries import load_query


@dataclass(frozen=True)
class ScheduledJob:
    """A job with its next due time and its last run."""

    job: Job
    next_due: datetime | None
    last_run: Run | None


def message_columns(message: str | None) -> dict[str, Any]:
    """Return a run's message as the columns `message` and `message_data` store it."""
    data = stored(message)
    return {"message": message, "message_data": None if data is None else Jsonb(data)}


async def list_runs(
    store: Store,
    *,
    job: str | None = None,
    bad: bool = False,
    unfinished: bool = False,
    jobs: Sequence[str] | None = None,
    statuses: Sequence[str] | None = None,
    since: datetime | None = None,
    before: int | None = None,
    limit: int = 50,
) -> list[Run]:
    """Return runs, newest first, that match all filters.

    They are of one job or several, failed, unfinished, have one of these outcomes or states, or
    were active since a time.
    """
    async with store.connection() as connection:
        return await select_runs(
            connection,
            job=job,
            bad=bad,
            unfinished=unfinished,
            jobs=jobs,
            statuses=statuses,
            since=since,
            before=before,
            limit=limit,
        )


async def get_run(store: Store, run_id: int) -> Run:
    """Return a run; raise NotFoundError if it does not exist."""
    async with store.connection() as connection:
        run = await select_run(connection, run_id)
    if run is None:
        raise NotFoundError(
            msg("There is no run {run_id}.", run_id=run_id),
            remedy=msg("`hasat jobs history` lists the runs."),
        )
    return run


async def schedule_overview(store: Store, catalogue: Catalogue) -> list[ScheduledJob]:
    """Return every job of the catalogue, with the next due time of enabled ones."""
    async with store.connection() as connection:
        cursor = connection.cursor(row_factory=_run_row)
        await cursor.execute(
            load_query("hasat.jobs", "run_last_of_each"), {"jobs": [job.name for job in catalogue]}
        )
        last = {run.job: run async for run in cursor}
    now = await store.now()
    overview = []
    for job in catalogue:
        cron = catalogue.cron(job) if job.enabled else None
        overview.append(ScheduledJob(job, cron.after(now) if cron else None, last.get(job.name)))
    return overview


async def count_live_workers(store: Store, settings: Settings) -> int:
    """Return the number of processes with a recent heartbeat."""
    async with store.connection() as connection:
        cursor = await connection.execute(
            load_query("hasat.jobs", "queue_workers"), {"seconds": settings.jobs.stalled_seconds}
        )
        row = await cursor.fetchone()
    return row[0] if row else 0


async def select_runs(
    connection: Connection,
    *,
    run_id: int | None = None,
    job: str | None = None,
    bad: bool = False,
    unfinished: bool = False,
    jobs: Sequence[str] | None = None,
    statuses: Sequence[str] | None = None,
    since: datetime | None = None,
    before: int | None = None,
    limit: int = 1,
) -> list[Run]:
    """Return runs as `list_runs` does, inside a transaction."""
    cursor = connection.cursor(row_factory=_run_row)
    await cursor.execute(
        load_query("hasat.jobs", "run_list"),
        {
            "id": run_id,
            "job": job,
            "bad": bad,
            "open": unfinished,
            "jobs": None if jobs is None else list(jobs),
            "statuses": None if statuses is None else list(statuses),
            "since": since,
            "before": before,
            "limit": limit,
        },
    )
    return await cursor.fetchall()


async def select_run(connection: Connection, run_id: int) -> Run | None:
    """Return a run inside a transaction."""
    found: Sequence[Run] = await select_runs(connection, run_id=run_id)
    return found[0] if found else None


def _run_row(cursor: AsyncCursor[Any]) -> RowMaker[Run]:
    """Convert rows to runs with translatable messages."""
    row_of = dict_row(cursor)

    def make(values: Sequence[Any]) -> Run:
        row = row_of(values)
        row["message"] = restored(row["message"], row.pop("message_data"))
        return Run(**row)

    return make


# The first responses come in a burst, and the work before a restart counts at once.
_MIN_SECONDS = 10.0


def rate_per_second(done: float, seconds: float) -> float | None:
    """Return the rate so far; None while there is too little time to measure it."""
    return done / seconds if done > 0 and seconds >= _MIN_SECONDS else None
