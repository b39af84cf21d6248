"""Jobs by their crons, through days that pass as fast as the jobs are done."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta

from hasat.errors import HasatError
from hasat.jobs import Catalogue, Job, Outcome
from hasat.jobs.cron import Cron
from hasat.settings import Settings
from hasat.store import Store
from hasat.testing.clock import Hands
from hasat.testing.jobs import perform


class Days:
    """What a worker does, one job after the other, with the clock turned over the idle time."""

    def __init__(
        self, jobs: Iterable[Job], store: Store, settings: Settings, hands: Hands, began: datetime
    ) -> None:
        self._catalogue = Catalogue.of(jobs, settings)
        self._crons: dict[str, Cron] = {
            job.name: cron for job in self._catalogue if (cron := self._catalogue.cron(job))
        }
        self._fired = dict.fromkeys(self._crons, began)
        self._runs = 0
        self.store = store
        self.settings = settings
        self.hands = hands
        self.outcomes: Counter[tuple[str, str]] = Counter()

    async def until(self, end: datetime, step: timedelta = timedelta(0)) -> None:
        """Fire everything that becomes due up to a moment; of missed times the newest counts.

        With a step, the clock is turned by at least so much between two looks.
        """
        while (due := max(self._next(), self.hands.now + step)) <= end:
            await self.hands.turn_to(due)
            for name, cron in self._crons.items():
                newest = cron.newest(self._fired[name], self.hands.now)
                if newest is not None:
                    self._fired[name] = newest
                    await self.run(name, newest)
        await self.hands.turn_to(end)

    async def run(self, name: str, due: datetime | None = None) -> Outcome | None:
        """Run a job, due or by hand; None if it failed, which the next time makes up for."""
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
