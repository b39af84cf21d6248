"""Requests over a pool of endpoints: failover after a failure, a hedge for a slow response."""

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from hasat.errors import UnavailableError
from hasat.fetch.client import Client, NoResponseError
from hasat.fetch.endpoint_state import hedge_delay, key_rejected
from hasat.fetch.fetcher import TokenBudget
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
from hasat.fetch.pool import EndpointPool, Reservation
from hasat.messages import msg

_MIN_QUANTILE = 0.95
_MAX_SHARE_OF_TIMEOUT = 0.5
_HEDGES_SAVED, _HEDGES_ENOUGH = 10.0, 2.0
_FAILOVER_SHARE, _FAILOVERS_SAVED = 0.1, 10.0
_MAX_FAILURE_SHARE, _SMOOTHING = 0.2, 0.05


def max_attempts(endpoints: int) -> int:
    """Return the maximum of attempts for one request: 1, 1, 2, 2, 3, 3, ... by endpoints."""
    return min(3, max(1, (endpoints + 1) // 2))


@dataclass
class _Race:
    """One request, the endpoints that received it, and the attempts in flight."""

    request: Request
    context: RequestContext
    max_attempts: int
    tried: list[str] = field(default_factory=list)
    running: set[asyncio.Task[FetchResult | None]] = field(default_factory=set)

    def start(self, sending: Coroutine[Any, Any, FetchResult | None]) -> None:
        self.running.add(asyncio.create_task(sending))

    async def wait(self, seconds: float | None) -> list[FetchResult]:
        """Return the attempts that finished within the time."""
        done, self.running = await asyncio.wait(
            self.running, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
        )
        return [result for task in done if (result := task.result())]

    def stop(self) -> None:
        """Cancel the attempts that lost."""
        for task in self.running:
            task.cancel()


class HedgedFetcher:
    """Send requests to the pool with few extra attempts.

    A hedge is sent only after the 95th percentile of the endpoint's own latency, and only within a
    token budget of `hedge_share` of all requests. While few tokens are left the percentile rises,
    so that they are spent on the slowest requests.
    """

    def __init__(
        self, pool: EndpointPool, client: Client, classify: Classify, *, hedge_share: float = 0.02
    ) -> None:
        self._pool = pool
        self._client = client
        self._classify = classify
        self._hedges = TokenBudget(hedge_share, max_saved=_HEDGES_SAVED)
        self._failovers = TokenBudget(
            _FAILOVER_SHARE, max_saved=_FAILOVERS_SAVED, saved=_FAILOVERS_SAVED
        )
        self._failing = 0.0

    async def fetch(
        self, request: Request, context: RequestContext, *, only: str | None = None
    ) -> FetchResult:
        """Return the first definitive response, else a broken one; `only` names one endpoint.

        Raises SettingsError when the key is rejected, OutOfQuotaError when the daily quota of every
        endpoint is used up, UnavailableError when no endpoint is available or responded.
        """
        able = sum(s.endpoint.path_for(request) is not None for s in self._pool.states)
        race = _Race(request, context, 1 if only else max_attempts(able))
        self._client.ready()
        primary = await self._pool.take(request, context, only=only)
        self._hedges.earn()
        self._failovers.earn()
        try:
            return await self._run(race, primary)
        finally:
            race.stop()

    async def _run(self, race: _Race, primary: Reservation) -> FetchResult:
        race.tried.append(primary.url)
        race.start(self._send(primary, race))
        delay = self._delay(primary, race)
        hedge_at = None if delay is None else time.monotonic() + delay
        last: FetchResult | None = None
        while race.running:
            timeout = None if hedge_at is None else max(hedge_at - time.monotonic(), 0.0)
            finished = await race.wait(timeout)
            for result in finished:
                if result.verdict.outcome in DEFINITIVE:
                    return result
                if result.verdict.outcome is Outcome.UNAUTHORISED:
                    # Other processes must know it before this one continues.
                    await self._pool.written()
                    raise key_rejected(self._pool.upstream, result.verdict.reason)
                last = result
            if not race.running:
                hedge_at = None
                # Nothing finished if no other endpoint was available.
                if finished and self._may_fail_over(race, finished[-1]):
                    race.start(self._send_another(race, hedge=False))
            elif not finished and hedge_at is not None:
                hedge_at = None
                if self._hedges.spend():
                    race.start(self._send_another(race, hedge=True))
        assert last is not None, "a race ends with a response or a reason"
        if last.verdict.outcome is Outcome.BROKEN:
            return last
        raise UnavailableError(
            msg(
                "No endpoint of {upstream} responded ({count} tried): {reason}.",
                upstream=self._pool.upstream,
                count=len(race.tried),
                reason=last.verdict.reason,
            ),
            remedy=msg("Try again later; failing endpoints are retried after a cooldown."),
        )

    def _delay(self, primary: Reservation, race: _Race) -> float | None:
        """Return the seconds after which to send a hedge; None for never."""
        request, share = race.request, self._hedges.share
        if (
            race.max_attempts < 2
            or not request.hedge
            or not share
            or self._failing > _MAX_FAILURE_SHARE
        ):
            return None
        affordable = max(_MIN_QUANTILE, 1.0 - share)
        poor = max(0.0, 1.0 - self._hedges.saved / _HEDGES_ENOUGH)
        quantile = _MIN_QUANTILE + (affordable - _MIN_QUANTILE) * poor
        delay = hedge_delay(primary.state, self._pool.states, request.kind, quantile)
        latest = request.timeout * _MAX_SHARE_OF_TIMEOUT
        return latest if delay is None else min(delay, latest)

    def _may_fail_over(self, race: _Race, last: FetchResult) -> bool:
        if len(race.tried) >= race.max_attempts:
            return False
        # A limited endpoint gets a cooldown, so only failures need the token budget.
        limited = last.verdict.outcome in (Outcome.MINUTE_LIMITED, Outcome.DAY_EXHAUSTED)
        return limited or self._failovers.spend()

    async def _send_another(self, race: _Race, *, hedge: bool) -> FetchResult | None:
        """Send the request to another endpoint; return None if none is free."""
        request, context = race.request, race.context
        reservation = await self._pool.take_another(request, context, race.tried, hedge=hedge)
        if reservation is None:
            if hedge:
                self._hedges.give_back()
            return None
        race.tried.append(reservation.url)
        return await self._send(reservation, race)

    async def _send(self, reservation: Reservation, race: _Race) -> FetchResult:
        request = race.request
        address = f"{reservation.url}{reservation.claim.endpoint.path_for(request)}"
        started = time.monotonic()
        response: Response | None = None
        verdict: Verdict | None = None
        try:
            response = await self._client.send(address, request)
            verdict = self._classify(response)
        except NoResponseError as error:
            verdict = error.verdict
        finally:
            # A cancelled attempt has no verdict.
            seconds = time.monotonic() - started
            self._pool.conclude(reservation, request, race.context, seconds, verdict, response)
        failed = verdict.outcome not in DEFINITIVE
        self._failing += _SMOOTHING * (failed - self._failing)
        return FetchResult(verdict, response, reservation.url)
