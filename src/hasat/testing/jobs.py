"""Jobs executed without a worker: one at a time, or by their crons over simulated days."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from hasat.errors import HasatError
from hasat.feed.holds import GuardError
from hasat.jobs import Catalogue, Job, Outcome, RunContext
from hasat.jobs.cron import Cron
from hasat.settings import Settings
from hasat.store import Store
from hasat.testing.database import FakeDatabaseClock


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
    try:
        return await job.run(context)
    except GuardError as error:
        return await context.hold(error)


class SimulatedWorker:
    """Runs jobs when they are due, one after the other, and skips the idle time."""

    def __init__(
        self,
        jobs: Iterable[Job],
        store: Store,
        settings: Settings,
        clock: FakeDatabaseClock,
        start: datetime,
    ) -> None:
        self._catalogue = Catalogue.of(jobs, settings)
        self._crons: dict[str, Cron] = {
            job.name: cron
            for job in self._catalogue
            if job.enabled and (cron := self._catalogue.cron(job))
        }
        self._fired = dict.fromkeys(self._crons, start)
        self._runs = 0
        self.store = store
        self.settings = settings
        self.clock = clock
        self.outcomes: Counter[tuple[str, str]] = Counter()

    async def run_until(self, end: datetime, step: timedelta = timedelta(0)) -> None:
        """Run everything that becomes due up to a moment; of missed times only the newest.

        With a step, at least that much time passes between two checks.
        """
        while (due := max(self._next(), self.clock.now + step)) <= end:
            await self.clock.set_time(due)
            for name, cron in self._crons.items():
                newest = cron.newest(self._fired[name], self.clock.now)
                if newest is not None:
                    self._fired[name] = newest
                    await self.run(name, newest)
        await self.clock.set_time(end)

    async def run(self, name: str, due: datetime | None = None) -> Outcome | None:
        """Run a job, scheduled or manual, and return its outcome; None if it failed."""
        job = self._catalogue.get(name)
        self._runs += 1
        try:
            outcome = await perform(job, self.store, self.settings, run_id=self._runs, due=due)
        except HasatError:
            self.outcomes[name, "failed"] += 1
            return None
        self.outcomes[name, outcome.kind] += 1
        return outcome

    def _next(self) -> datetime:
        return min(cron.after(self._fired[name]) for name, cron in self._crons.items())
