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
    """Do a job's work once, as if it were due or, without `due`, by hand; no run is recorded."""
    context = RunContext(
        run_id=run_id,
        job=job,
        params={**job.params, **(params or {})},
        scheduled_for=due,
        settings=settings,
        store=store,
    )
    return await job.run(context)
