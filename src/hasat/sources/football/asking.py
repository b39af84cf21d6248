"""The API as one run of a job asks it, and what it says brought into the mirror."""

from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from hasat.budget import Budget
from hasat.errors import OutOfQuotaError, SettingsError
from hasat.fetch import Asker, Client, Fetcher, Outcome, Question, Rules
from hasat.jobs import Outcome as JobOutcome
from hasat.jobs import RunContext
from hasat.settings.source_tree import Football
from hasat.sources import upstreams
from hasat.sources.football.datasets import SOURCE
from hasat.sources.football.leagues import Followed, resolve
from hasat.sources.football.loading import load
from hasat.sources.football.outcomes import classify, remaining
from hasat.sources.football.raw import Answer
from hasat.store import Store

# A job waits for its turn in the minute, never for the next day.
_PATIENCE_SECONDS = 300.0
_KEPT = (Outcome.OK, Outcome.EMPTY, Outcome.NOT_IN_PLAN, Outcome.BAD_REQUEST)


class Api:
    """What a job asks, within its lane; counts what that costs and changes."""

    def __init__(self, context: RunContext, fetcher: Fetcher, now: datetime) -> None:
        self.context = context
        self._fetcher = fetcher
        self.now = now
        self.requests = 0
        self.changed = 0
        self.remarks: set[str] = set()

    @property
    def store(self) -> Store:
        return self.context.store

    @property
    def settings(self) -> Football:
        return self.context.settings.football

    @property
    def params(self) -> Mapping[str, Any]:
        return self.context.params

    async def leagues(self) -> Sequence[Followed]:
        """Those that are followed; by hand, perhaps only one of them."""
        only = self.context.params.get("only_league_id") or self.settings.only_league_id
        found = await resolve(self.store, self.settings.tracked_leagues, only)
        for remark in set(found.remarks) - self.remarks:
            self.context.log.warning("a league is not followed", reason=remark)
        self.remarks |= set(found.remarks)
        return found.leagues

    @property
    def _lane(self) -> str:
        """By hand a backfill waits for the minute only, not for its share of the day."""
        by_hand = self.context.scheduled_for is None
        return (
            "details" if by_hand and self.context.job.lane == "backfill" else self.context.job.lane
        )

    async def ask(self, endpoint: str, **parameters: str | int) -> Answer | None:
        """The API's answer; None if there is none that says anything."""
        asked = {name.rstrip("_"): str(value) for name, value in parameters.items()}
        question = Question(f"/{endpoint}", self.settings.timeout_seconds, params=asked)
        asker = Asker(self._lane, self.context.job.name, self.context.run_id)
        self.requests += 1
        self.context.spent()
        fetched = await self._fetcher.ask(question, asker, patience=_PATIENCE_SECONDS)
        outcome, reason = fetched.verdict.outcome, fetched.verdict.reason
        if outcome not in (Outcome.OK, Outcome.EMPTY):
            self.context.log.warning(
                "the API did not say what was asked",
                endpoint=endpoint,
                parameters=asked,
                outcome=outcome,
                reason=reason,
            )
        if fetched.answer is None or not fetched.body or outcome not in _KEPT:
            return None
        headers = {k: v for k, v in fetched.answer.headers.items() if "ratelimit" in k}
        return Answer(endpoint, asked, fetched.body, fetched.answer.status, headers)

    async def load(self, *answers: Answer | None, leagues: Collection[int] | None = None) -> None:
        """Bring the mirror to what the answers say; committed before anything else counts."""
        told = [answer for answer in answers if answer is not None]
        if not told:
            return
        version = await load(
            self.store,
            told,
            run=self.context.run_id,
            retention_days=self.settings.change_retention_days,
            leagues=leagues,
        )
        if version is not None:
            self.changed += sum(count.total for count in version.counts.values())

    async def progress(self, done: int, total: int | None, note: str) -> None:
        await self.context.progress(done, total, note)


@asynccontextmanager
async def _asking(context: RunContext) -> AsyncIterator[Api]:
    football = context.settings.football
    if football.api_key is None:
        raise SettingsError(
            "There is no key for API-Football.",
            remedy="Set API_FOOTBALL_KEY, or football.api_key in a file.",
        )
    rules = Rules("Hasat", {"x-apisports-key": football.api_key.get_secret_value()})
    budget = Budget(context.store, upstreams.football(context.settings))
    async with Client(rules) as client:
        fetcher = Fetcher(
            context.store, budget, client, SOURCE, football.base_url, classify, remaining
        )
        try:
            yield Api(context, fetcher, await context.store.now())
        finally:
            await budget.close()


Collecting = Callable[[Api], Awaitable[None]]


def collects(collect: Collecting) -> Callable[[RunContext], Awaitable[JobOutcome]]:
    """A job's function out of one that asks: its cost, and the ways in which it can end."""

    async def run(context: RunContext) -> JobOutcome:
        async with _asking(context) as api:
            try:
                await collect(api)
            except OutOfQuotaError as error:
                return JobOutcome("out_of_quota", api.changed, message=error.message)
        message = " ".join(sorted(api.remarks)) or None
        return JobOutcome("done" if api.requests else "nothing", api.changed, message=message)

    return run
