"""The schedule: queues each due time once, over any number of workers and whatever their clocks."""

from datetime import datetime

import structlog
from psycopg.types.json import Jsonb

from hasat.jobs.catalogue import Catalogue, Job
from hasat.jobs.connection import Connection, RetryingPool
from hasat.jobs.cron import Due, due_now
from hasat.jobs.queue import enqueue
from hasat.jobs.runs import message_columns
from hasat.messages import msg
from hasat.store.queries import load_query

log = structlog.get_logger(__name__)


class Schedule:
    """The cron expressions of the catalogue, checked against the database's clock."""

    def __init__(self, catalogue: Catalogue, database: RetryingPool, poll_seconds: float) -> None:
        self._catalogue = catalogue
        self._database = database
        self._poll_seconds = poll_seconds
        self._timed = [
            (job, cron) for job in catalogue if job.enabled and (cron := catalogue.cron(job))
        ]
        self._on_demand = [job for job in catalogue if job.enabled and job.wanted is not None]
        self._declared = False

    async def tick(self) -> float:
        """Queue the runs that are due; return the seconds until the next check."""
        if not self._declared:
            await self._declare()
        now, fired_until = await self._read()
        if any(job.name not in fired_until for job, _ in self._timed):
            # The table was emptied; due times count from now.
            await self._declare()
            now, fired_until = await self._read()
        for job, cron in self._timed:
            due = due_now(cron, job.missed, fired_until[job.name], now)
            if due is not None:
                await self._fire(job, due, now)
        for job in self._on_demand:
            await self._queue_if_wanted(job)
        is_blocked = [(cron.after(now) - now).total_seconds() for _, cron in self._timed]
        return min([self._poll_seconds, *is_blocked])

    async def _declare(self) -> None:
        jobs = list(self._catalogue)
        async with self._database.transaction() as connection:
            await connection.execute(
                load_query("hasat.jobs", "schedule_announce"),
                {
                    "job": [job.name for job in jobs],
                    "source": [job.source for job in jobs],
                    "lane": [job.lane for job in jobs],
                    "cron": [job.cron for job in jobs],
                    "zone": [job.zone for job in jobs],
                    "enabled": [job.enabled for job in jobs],
                },
            )
        self._declared = True

    async def _read(self) -> tuple[datetime, dict[str, datetime]]:
        async with self._database.transaction() as connection:
            cursor = await connection.execute(
                load_query("hasat.jobs", "schedule_read"),
                {"jobs": [job.name for job, _ in self._timed]},
            )
            rows = await cursor.fetchall()
        return rows[0][0], {job: fired_until for _, job, fired_until in rows}

    async def _fire(self, job: Job, due: Due, now: datetime) -> None:
        async with self._database.transaction() as connection:
            cursor = await connection.execute(
                load_query("hasat.jobs", "schedule_move"), {"job": job.name, "due": due.at}
            )
            if await cursor.fetchone() is None:
                return
            if not due.fire:
                late = round((now - due.at).total_seconds())
                log.info("run.missed", job=job.name, due=due.at, seconds_late=late)
                return
            behind = await _open_run(connection, job) if job.overlap == "skip" else None
            if behind is not None:
                await _skip(connection, job, due.at, behind)
                return
            run = await enqueue(connection, job, trigger="schedule", scheduled_for=due.at)
        log.info("run.queued", job=job.name, run=run, due=due.at)

    async def _queue_if_wanted(self, job: Job) -> None:
        assert job.wanted is not None
        async with self._database.transaction() as connection:
            if not await job.wanted(connection):
                return
            # Of several workers that notice it at the same time, one queues the run.
            cursor = await connection.execute(
                "SELECT FROM jobs.schedule WHERE job = %s FOR UPDATE SKIP LOCKED", [job.name]
            )
            if not cursor.rowcount or await _open_run(connection, job) is not None:
                return
            run = await enqueue(connection, job, trigger="schedule")
        log.info("run.queued", job=job.name, run=run)


async def _open_run(connection: Connection, job: Job) -> int | None:
    cursor = await connection.execute(
        load_query("hasat.jobs", "schedule_busy_with"), {"job": job.name}
    )
    row = await cursor.fetchone()
    return row[0] if row else None


async def _skip(connection: Connection, job: Job, due: datetime, behind: int) -> None:
    cursor = await connection.execute(
        load_query("hasat.jobs", "run_refuse_again"), {"job": job.name, "behind": behind}
    )
    if await cursor.fetchone() is None:
        await connection.execute(
            load_query("hasat.jobs", "run_refuse"),
            {
                "job": job.name,
                "params": Jsonb(dict(job.params)),
                "trigger": "schedule",
                "scheduled_for": due,
                **message_columns(msg("Run {run} of this job had not finished yet.", run=behind)),
                "behind": behind,
            },
        )
    log.info("run.skipped", reason="busy", job=job.name, due=due, behind=behind)
