"""The platform's own jobs: archives, and housekeeping of old runs, raw pieces and the queue."""

from collections.abc import Sequence
from datetime import timedelta

from hasat.feed.dataset import Dataset
from hasat.jobs.archives import archive_job
from hasat.jobs.context import RunContext
from hasat.jobs.model import Job, Outcome
from hasat.jobs.queue import TASK
from hasat.messages import template
from hasat.store.queries import load_query

_UNCLAIMED = template("No worker took it up for {days} days.")


async def _housekeeping(context: RunContext) -> Outcome:
    days = context.settings.jobs.keep_runs_days
    detail = {}
    for what in ("forget_runs", "forget_set_aside", "drop_unwanted", "sweep_queue"):
        async with context.store.connection() as connection:
            cursor = await connection.execute(
                load_query("hasat.jobs", f"housekeeping_{what}"),
                {"days": days, "task": TASK, "unclaimed": _UNCLAIMED},
            )
            detail[what] = cursor.rowcount
    async with context.store.connection() as connection:
        cursor = await connection.execute(
            "SELECT jobs.forget_audit(%s)", [context.settings.jobs.keep_audit_days]
        )
        detail["forget_audit"] = cursor.rowcount
    rows = sum(detail.values())
    return Outcome("done" if rows else "nothing", rows_changed=rows, detail=detail)


def platform_jobs(
    datasets: Sequence[Dataset] = (), min_interval: timedelta = timedelta(hours=1)
) -> tuple[Job, ...]:
    """The jobs that every installation has; archives only where there are datasets."""
    return (
        *([archive_job(datasets, min_interval)] if datasets else ()),
        Job(
            name="housekeeping",
            run=_housekeeping,
            summary="Forgets runs and set-aside parts past their keep; sweeps the queue.",
            cron="15 4 * * *",
            options={},
        ),
    )
