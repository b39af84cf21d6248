"""A job as a worker runs it, without one."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from hasat.jobs import Job, Outcome, RunContext
from hasat.settings import Settings
from hasat.store import Store


async def perform(
    job: Job,
    store: Store,
    settings: Settings,
    params: Mapping[str, Any] | None = None,
    *,
    run_id: int = 1,
    due: datetime | None = None,
) -> Outcome:
    """Execute a job once, as a scheduled run or, without `due`, a manual one; none is recorded."""
    context = RunContext(
        run_id=run_id,
        job=job,
        params={**job.params, **(params or {})},
        scheduled_for=due,
        settings=settings,
        store=store,
        local=due is None,
    )
    return await job.run(context)
