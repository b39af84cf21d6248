"""The platform's own job: forgets old runs and old pieces set aside, and sweeps the queue."""

from hasat.jobs.context import RunContext
from hasat.jobs.model import Job, Outcome
from hasat.jobs.queue import TASK
from hasat.store.statements import statement


async def _housekeeping(context: RunContext) -> Outcome:
    days = context.settings.jobs.keep_runs_days
    detail = {}
    for what in ("forget_runs", "forget_set_aside", "drop_unwanted", "sweep_queue"):
        async with context.store.connection() as connection:
            cursor = await connection.execute(
                statement("hasat.jobs", f"housekeeping_{what}"), {"days": days, "task": TASK}
            )
            detail[what] = cursor.rowcount
    rows = sum(detail.values())
    return Outcome("done" if rows else "nothing", rows_changed=rows, detail=detail)


def platform_jobs() -> tuple[Job, ...]:
    """The jobs that every installation has."""
    return (
        Job(
            name="housekeeping",
            run=_housekeeping,
            summary="Forgets runs and set-aside parts past their keep; sweeps the queue.",
            cron="15 4 * * *",
            options={},
        ),
    )
