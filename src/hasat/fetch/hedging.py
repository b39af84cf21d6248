"""One question over the pool: a primary, failover at once, and one second try when it is slow."""

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from hasat.errors import UnavailableError
from hasat.fetch import endpoint_state
from hasat.fetch.client import Client, NoResponseError
from hasat.fetch.endpoint_state import hedge_delay
from hasat.fetch.fetcher import Allowance
from hasat.fetch.outcomes import (
    DEFINITIVE,
    Classify,
    FetchResult,
    Outcome,
    Request,
    RequestContext,
    Response,
    Verdict,
)
from hasat.fetch.pool import EndpointPool, Taken
from hasat.messages import msg

_SOONEST_QUANTILE = 0.95
_LATEST_SHARE_OF_TIMEOUT = 0.5
_HEDGES_SAVED, _HEDGES_ENOUGH = 10.0, 2.0
_FAILOVER_SHARE, _FAILOVERS_SAVED = 0.1, 10.0
_TROUBLE, _LEARNING = 0.2, 0.05


def max_attempts(endpoints: int) -> int:
    """The upper bound of tries for one question: 1, 1, 2, 2, 3, 3, ... by number of endpoints."""
    return min(3, max(1, (endpoints + 1) // 2))


@dataclass
class _Race:
    """One question on its way: who was asked, and what is out."""

    question: Request
    asker: RequestContext
    most: int
    tried: list[str] = field(default_factory=list)
    running: set[asyncio.Task[FetchResult | None]] = field(default_factory=set)

    def start(self, sending: Coroutine[Any, Any, FetchResult | None]) -> None:
        self.running.add(asyncio.create_task(sending))

    async def some(self, patience: float | None) -> list[FetchResult]:
        """What has come back within the time; nothing if nobody has."""
        done, self.running = await asyncio.wait(
            self.running, timeout=patience, return_when=asyncio.FIRST_COMPLETED
        )
        return [fetched for task in done if (fetched := task.result())]

    def stop(self) -> None:
        """Tell the losers to stop; they do so while the winner goes on."""
        for task in self.running:
            task.cancel()


class HedgedFetcher:
    """Asks the pool, with few requests more than questions.

    A second try goes out only after the 95th percentile of the endpoint's own latency, and out of
    an allowance of `hedge_share` of all questions. While the allowance is low the percentile
    rises to what the allowance can pay for, so that it is spent on what is really slow.
    """

    def __init__(
        self, pool: EndpointPool, client: Client, classify: Classify, *, hedge_share: float = 0.02
    ) -> None:
        self._pool = pool
        self._client = client
        self._classify = classify
        self._hedges = Allowance(hedge_share, most=_HEDGES_SAVED)
        self._failovers = Allowance(_FAILOVER_SHARE, most=_FAILOVERS_SAVED, saved=_FAILOVERS_SAVED)
        self._failing = 0.0

    async def fetch(
        self, question: Request, asker: RequestContext, *, only: str | None = None
    ) -> FetchResult:
        """The first definitive answer, whatever it says; else one that could not be read.

        `only` names the one endpoint that is to be asked.
        Raises SettingsError when the key is refused, OutOfQuotaError when every endpoint has spent
        its day, UnavailableError when nobody can be asked or nobody answered.
        """
        able = sum(s.endpoint.path_for(question) is not None for s in self._pool.standings)
        race = _Race(question, asker, 1 if only else max_attempts(able))
        self._client.ready()
        first = await self._pool.take(question, asker, only=only)
        self._hedges.earn()
        self._failovers.earn()
        try:
            return await self._decided(race, first)
        finally:
            race.stop()

    async def _decided(self, race: _Race, first: Taken) -> FetchResult:
        race.tried.append(first.url)
        race.start(self._send(first, race))
        delay = self._delay(first, race)
        hedge_at = None if delay is None else time.monotonic() + delay
        last: FetchResult | None = None
        while race.running:
            patience = None if hedge_at is None else max(hedge_at - time.monotonic(), 0.0)
            came = await race.some(patience)
            for fetched in came:
                if fetched.verdict.outcome in DEFINITIVE:
                    return fetched
                if fetched.verdict.outcome is Outcome.UNAUTHORISED:
                    # Every process shall know it before anybody goes on.
                    await self._pool.written()
                    raise endpoint_state.refused(self._pool.upstream, fetched.verdict.reason)
                last = fetched
            if not race.running:
                hedge_at = None
                # Nobody has come if no other endpoint could be asked.
                if came and self._may_fail_over(race, came[-1]):
                    race.start(self._send_another(race, hedge=False))
            elif not came and hedge_at is not None:
                hedge_at = None
                if self._hedges.spend():
                    race.start(self._send_another(race, hedge=True))
        assert last is not None, "a race ends with an answer or a reason"
        if last.verdict.outcome is Outcome.BROKEN:
            return last
        raise UnavailableError(
            msg(
                "No endpoint of {upstream} answered ({count} asked): {reason}.",
                upstream=self._pool.upstream,
                count=len(race.tried),
                reason=last.verdict.reason,
            ),
            remedy=msg("Ask again later; endpoints that fail rest and come back by themselves."),
        )

    def _delay(self, first: Taken, race: _Race) -> float | None:
        """When to send a second try; None for never."""
        question, share = race.question, self._hedges.share
        if race.most < 2 or not question.hedge or not share or self._failing > _TROUBLE:
            return None
        affordable = max(_SOONEST_QUANTILE, 1.0 - share)
        poor = max(0.0, 1.0 - self._hedges.saved / _HEDGES_ENOUGH)
        quantile = _SOONEST_QUANTILE + (affordable - _SOONEST_QUANTILE) * poor
        delay = hedge_delay(first.standing, self._pool.standings, question.kind, quantile)
        latest = question.timeout * _LATEST_SHARE_OF_TIMEOUT
        return latest if delay is None else min(delay, latest)

    def _may_fail_over(self, race: _Race, last: FetchResult) -> bool:
        if len(race.tried) >= race.most:
            return False
        # Who says that it is limited rests, so that cannot go on for long; who fails may do so on.
        limited = last.verdict.outcome in (Outcome.MINUTE_LIMITED, Outcome.DAY_EXHAUSTED)
        return limited or self._failovers.spend()

    async def _send_another(self, race: _Race, *, hedge: bool) -> FetchResult | None:
        """A try at an endpoint that was not asked yet; None if none is free."""
        question, asker = race.question, race.asker
        taken = await self._pool.take_another(question, asker, race.tried, hedge=hedge)
        if taken is None:
            if hedge:
                self._hedges.give_back()
            return None
        race.tried.append(taken.url)
        return await self._send(taken, race)

    async def _send(self, taken: Taken, race: _Race) -> FetchResult:
        question = race.question
        address = f"{taken.url}{taken.claim.endpoint.path_for(question)}"
        started = time.monotonic()
        answer: Response | None = None
        verdict: Verdict | None = None
        try:
            answer = await self._client.send(address, question)
            verdict = self._classify(answer)
        except NoResponseError as error:
            verdict = error.verdict
        finally:
            # Also when the race is over and this try is cancelled: then there is no verdict.
            seconds = time.monotonic() - started
            self._pool.conclude(taken, question, race.asker, seconds, verdict, answer)
        failed = verdict.outcome not in DEFINITIVE
        self._failing += _LEARNING * (failed - self._failing)
        return FetchResult(verdict, answer, taken.url)
