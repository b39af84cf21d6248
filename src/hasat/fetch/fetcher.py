"""Requests to an upstream with one address: a grant for every attempt, few retries."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta

from hasat.budget import Budget, Remaining, Waiting, keep_slot
from hasat.clock import system_clock
from hasat.errors import OutOfQuotaError, UnavailableError
from hasat.fetch.client import Client, NoResponseError
from hasat.fetch.endpoint_state import key_rejected
from hasat.fetch.health import Throttle
from hasat.fetch.outcomes import (
    Classify,
    FetchResult,
    Outcome,
    Request,
    RequestContext,
    Response,
    Verdict,
)
from hasat.messages import msg
from hasat.store import Store
from hasat.store.quarantine import QuarantinedRecord, quarantine


class TokenBudget:
    """A token bucket for extra requests: each request earns a share of a token, an extra costs one.

    Retries and hedges thus stay a share of all requests, and an outage cannot multiply the load.
    The bucket starts with `saved` tokens; `owed` of them are earned before others are added.
    """

    def __init__(
        self, share: float, *, max_saved: float, saved: float = 0.0, owed: float = 0.0
    ) -> None:
        self.share = share
        self._max_saved = max_saved
        self._saved = min(saved, max_saved)
        self._owed = owed

    @property
    def saved(self) -> float:
        """The tokens that are available."""
        return self._saved

    def earn(self) -> None:
        if self._owed > 0.0:
            self._owed -= self.share
            return
        self._saved = min(self._max_saved, self._saved + self.share)

    def spend(self) -> bool:
        """Take a token; return False if there is none."""
        if self._saved < 1.0:
            return False
        self._saved -= 1.0
        return True

    def give_back(self) -> None:
        """Return a token that was not used."""
        self._saved = min(self._max_saved, self._saved + 1.0)


async def quarantine_broken(
    store: Store, upstream: str, run: int | None, origin: str, verdict: Verdict, response: Response
) -> None:
    """Quarantine the response verbatim if its outcome is `broken`."""
    if verdict.outcome is not Outcome.BROKEN:
        return
    async with store.connection() as conn:
        await quarantine(
            conn, upstream, run, [QuarantinedRecord(origin, verdict.reason, response.body)]
        )


# The outcomes that a retry may change, and the attempts for each.
_MAX_ATTEMPTS = {Outcome.TRANSIENT: 3, Outcome.MINUTE_LIMITED: 3, Outcome.BROKEN: 2}
_RETRY_SHARE, _RETRIES_SAVED = 0.05, 10.0
_LIMITED_SECONDS = 60.0
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 1.0, 30.0
_SLOWER = 0.8

Sleep = Callable[[float], Awaitable[None]]


class Fetcher:
    """Send requests to an upstream; return its responses and raise on failure.

    `remaining` reads the remaining quota from the headers. Responses that take longer than usual
    reduce the rate of every process before a limit is hit.
    """

    def __init__(
        self,
        store: Store,
        budget: Budget,
        client: Client,
        upstream: str,
        base_url: str,
        classify: Classify,
        remaining: Callable[[Mapping[str, str]], Remaining],
        *,
        sleep: Sleep = asyncio.sleep,
        waiting: Waiting = keep_slot,
    ) -> None:
        self._store = store
        self._budget = budget
        self._client = client
        self._upstream = upstream
        self._base_url = base_url
        self._classify = classify
        self._remaining = remaining
        self._sleep = sleep
        self._waiting = waiting
        self._retries = TokenBudget(_RETRY_SHARE, max_saved=_RETRIES_SAVED, saved=_RETRIES_SAVED)
        self._throttle = Throttle()
        self.sent = 0
        """The number of requests sent, retries included."""

    async def fetch(
        self,
        request: Request,
        context: RequestContext,
        *,
        patience: float = 60.0,
        pass_limits: bool = False,
    ) -> FetchResult:
        """Return a result that is `ok`, `empty`, `not_in_plan`, `bad_request` or `broken`.

        `patience` is how long each attempt waits for its grant. Raises OutOfQuotaError when the
        day's quota is used up, SettingsError when the key is rejected, UnavailableError when there
        is no response after the retries. With `pass_limits` a request that came too fast is not
        repeated: OutOfQuotaError has the time until which the upstream asks to wait.
        """
        self._retries.earn()
        attempt = 0
        while True:
            attempt += 1
            result = await self._attempt(request, context, patience)
            outcome, reason = result.verdict.outcome, result.verdict.reason.rstrip(".")
            if outcome is Outcome.UNAUTHORISED:
                raise key_rejected(self._upstream, reason)
            if outcome is Outcome.DAY_EXHAUSTED:
                raise OutOfQuotaError(
                    msg(
                        "{upstream} reports that the daily quota is used up: {reason}.",
                        upstream=self._upstream,
                        reason=reason,
                    ),
                    remedy=msg("`hasat quota` shows when it resets."),
                )
            if outcome not in _MAX_ATTEMPTS:
                return result
            limited = outcome is Outcome.MINUTE_LIMITED
            if limited and pass_limits:
                pause = result.verdict.retry_after or _LIMITED_SECONDS
                raise OutOfQuotaError(
                    msg(
                        "{upstream} asks for a pause: {reason}.",
                        upstream=self._upstream,
                        reason=reason,
                    ),
                    until=system_clock() + timedelta(seconds=pause),
                )
            # After a minute limit the budget pauses, and the next grant waits for that.
            if attempt == _MAX_ATTEMPTS[outcome] or not (limited or self._retries.spend()):
                if outcome is Outcome.BROKEN:
                    return result
                raise UnavailableError(
                    msg(
                        "{upstream} did not respond to {path} ({attempts}): {reason}.",
                        upstream=self._upstream,
                        path=request.path,
                        attempts=msg("one attempt")
                        if attempt == 1
                        else msg("{count} attempts", count=attempt),
                        reason=reason,
                    ),
                    remedy=msg("Try again later."),
                )
            if not limited:
                pause = _pause(attempt, result.verdict.retry_after)
                async with self._waiting(pause):
                    await self._sleep(pause)

    async def _attempt(
        self, request: Request, context: RequestContext, patience: float
    ) -> FetchResult:
        grant = await self._budget.acquire(
            context.lane,
            job=context.job,
            cost=request.points,
            endpoint=request.path,
            run=context.run,
            timeout=patience,
        )
        self._client.ready()
        self.sent += 1
        started = time.monotonic()
        response: Response | None = None
        verdict: Verdict | None = None
        try:
            response = await self._client.send(f"{self._base_url}{request.path}", request)
            verdict = self._classify(response)
        except NoResponseError as error:
            verdict = error.verdict
        finally:
            seconds = time.monotonic() - started
            # Shielded, so that a cancelled request is in the ledger too.
            await asyncio.shield(
                grant.settle(
                    verdict.outcome.value if verdict is not None else "cancelled",
                    headers=self._remaining(response.headers if response else {}),
                    latency=seconds,
                    retry_after=verdict.retry_after if verdict is not None else None,
                )
            )
        if response:
            await quarantine_broken(
                self._store, self._upstream, context.run, request.path, verdict, response
            )
            if self._throttle.note(seconds):
                await self._budget.slow_down(_SLOWER)
        return FetchResult(verdict, response, self._base_url)


def _pause(attempt: int, requested: float | None) -> float:
    """Return the seconds before the next attempt: as requested, else doubling, with jitter."""
    usual = min(_FIRST_PAUSE_SECONDS * 2 ** (attempt - 1), _MAX_PAUSE_SECONDS)
    return (requested or usual) * random.uniform(1.0, 1.5)  # noqa: S311 - spreads load
