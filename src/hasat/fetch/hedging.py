"""Requests over a pool of endpoints: failover after a failure, a hedge for a slow response."""

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

from hasat.errors import UnavailableError
from hasat.fetch.client import Client, NoResponseError
from hasat.fetch.endpoint_state import hedge_delay, key_rejected
from hasat.fetch.endpoint_store import EndpointUse
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
_LATE, _VERY_LATE = 1.6, 2.2
_MAX_SHARE_OF_TIMEOUT = 0.5
_MIN_SECONDS = 0.05
_HEDGES_SAVED, _HEDGES_ENOUGH, _FIRST_HEDGES = 10.0, 4.0, 2.0
_FAILOVER_SHARE, _FAILOVERS_SAVED = 0.1, 10.0
_MAX_FAILURE_SHARE, _SMOOTHING = 0.2, 0.05


def max_attempts(endpoints: int) -> int:
    """Return the maximum of attempts for one request: 1, 1, 2, 2, 3, 3, ... by endpoints."""
    return min(3, max(1, (endpoints + 1) // 2))


@dataclass
class _Race:
    """One request, the endpoints that received it, and the attempts in flight.

    All attempts share the time-out of the request, which ends at `deadline`.
    """

    request: Request
    context: RequestContext
    max_attempts: int
    deadline: float
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


@dataclass(frozen=True)
class _Late:
    """A time after which a request is sent to another endpoint too, if a token is left."""

    at: float
    tokens: TokenBudget


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
        self._hedges = _hedge_budget(hedge_share, pool.use)
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
        self._client.ready()
        primary = await self._pool.take(request, context, only=only)
        deadline = time.monotonic() + request.timeout
        race = _Race(request, context, 1 if only else max_attempts(able), deadline)
        self._hedges.earn()
        self._failovers.earn()
        try:
            return await self._run(race, primary)
        finally:
            race.stop()

    async def _run(self, race: _Race, primary: Reservation) -> FetchResult:
        race.tried.append(primary.url)
        race.start(self._send(primary, race))
        late = iter(self._late_at(primary, race))
        late_at = next(late, None)
        last: FetchResult | None = None
        while race.running:
            timeout = None if late_at is None else max(late_at.at - time.monotonic(), 0.0)
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
                late_at = None
                # Nothing finished if no other endpoint was available.
                if finished and self._may_fail_over(race, finished[-1]):
                    race.start(self._send_another(race))
            elif not finished and late_at is not None:
                if len(race.tried) == 1 and late_at.tokens.spend():
                    race.start(self._send_another(race, late_at.tokens))
                late_at = next(late, None)
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

    def _late_at(self, primary: Reservation, race: _Race) -> list["_Late"]:
        """Return when to send a late request to another endpoint, and what pays for that.

        First a hedge. Halfway to the time-out the request has probably failed, and a failover may
        still succeed.
        """
        request, share = race.request, self._hedges.share
        if race.max_attempts < 2:
            return []
        # The last tokens are for the slowest requests.
        poor = min(max((_HEDGES_ENOUGH - self._hedges.saved) / (_HEDGES_ENOUGH - 1.0), 0.0), 1.0)
        quantile = _MIN_QUANTILE + (max(_MIN_QUANTILE, 1.0 - share) - _MIN_QUANTILE) * poor
        late = _LATE + (_VERY_LATE - _LATE) * poor
        delay = hedge_delay(primary.state, self._pool.states, request.kind, quantile, late)
        began, halfway = time.monotonic(), request.timeout * _MAX_SHARE_OF_TIMEOUT
        times = []
        if request.hedge and share and self._failing <= _MAX_FAILURE_SHARE:
            times.append(_Late(began + min(delay, halfway), self._hedges))
        if max(delay, halfway) < request.timeout:
            times.append(_Late(began + max(delay, halfway), self._failovers))
        return times

    def _may_fail_over(self, race: _Race, last: FetchResult) -> bool:
        if len(race.tried) >= race.max_attempts or time.monotonic() >= race.deadline:
            return False
        # A limited endpoint gets a cooldown, so only failures need the token budget.
        limited = last.verdict.outcome in (Outcome.MINUTE_LIMITED, Outcome.DAY_EXHAUSTED)
        return limited or self._failovers.spend()

    async def _send_another(
        self, race: _Race, tokens: TokenBudget | None = None
    ) -> FetchResult | None:
        """Send the request to another endpoint; return None if none is free.

        `tokens` has paid for it while the first attempt continues.
        """
        request, context, reservation = race.request, race.context, None
        try:
            reservation = await self._pool.take_another(
                request, context, race.tried, hedge=tokens is self._hedges
            )
        finally:
            # Also when the first response arrives while this waits for an endpoint.
            if tokens is not None and reservation is None:
                tokens.give_back()
        if reservation is None:
            return None
        race.tried.append(reservation.url)
        return await self._send(reservation, race)

    async def _send(self, reservation: Reservation, race: _Race) -> FetchResult:
        started = time.monotonic()
        request = replace(race.request, timeout=max(race.deadline - started, _MIN_SECONDS))
        address = f"{reservation.url}{reservation.claim.endpoint.path_for(request)}"
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


def _hedge_budget(share: float, use: EndpointUse) -> TokenBudget:
    """Return the token budget of a process: of all requests, at most a share are hedges.

    The first hundred requests may have two, also where each process sends only one request.
    """
    if not share:
        return TokenBudget(0.0, max_saved=0.0)
    earned = share * use.requests
    saved = max(earned, _FIRST_HEDGES) - use.hedges
    owed = max(_FIRST_HEDGES - earned, 0.0)
    return TokenBudget(
        share, max_saved=_HEDGES_SAVED, saved=min(max(saved, 0.0), _FIRST_HEDGES), owed=owed
    )
