"""A small allowance that regular work earns: for retries, and for second tries."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping

from hasat.budget import Remaining, Waiting, keep_slot
from hasat.errors import OutOfQuotaError, UnavailableError
from hasat.fetch import endpoint_state
from hasat.fetch.client import Client, NoResponseError
from hasat.fetch.health import Pace
from hasat.fetch.outcomes import (
    Classify,
    FetchResult,
    Outcome,
    Request,
    RequestContext,
    Response,
    Verdict,
)
from hasat.fetch.purse import Purse
from hasat.messages import msg
from hasat.store import Store
from hasat.store.aside import Aside, keep_aside


class Allowance:
    """Each request earns a share of a token, each extra one spends a whole one.

    So extra requests stay a share of all, and an outage cannot multiply the load.
    """

    def __init__(self, share: float, *, most: float, saved: float = 0.0) -> None:
        self.share = share
        self._most = most
        self._saved = min(saved, most)

    @property
    def saved(self) -> float:
        """How many tokens are there."""
        return self._saved

    def earn(self) -> None:
        self._saved = min(self._most, self._saved + self.share)

    def spend(self) -> bool:
        """Take a token, if a whole one is there."""
        if self._saved < 1.0:
            return False
        self._saved -= 1.0
        return True

    def give_back(self) -> None:
        """Return a token that bought nothing."""
        self._saved = min(self._most, self._saved + 1.0)


async def keep_broken(
    store: Store, upstream: str, run: int | None, origin: str, verdict: Verdict, answer: Response
) -> None:
    """Keep the answer verbatim if its verdict is `broken`."""
    if verdict.outcome is not Outcome.BROKEN:
        return
    async with store.connection() as conn:
        await keep_aside(conn, upstream, run, [Aside(origin, verdict.reason, answer.body)])


# What may be otherwise when it is asked again, and after how many attempts that is given up.
_PASSING = {Outcome.TRANSIENT: 3, Outcome.MINUTE_LIMITED: 3, Outcome.BROKEN: 2}
_RETRY_SHARE, _RETRIES_SAVED = 0.05, 10.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 30.0
_SLOWER = 0.8

Sleep = Callable[[float], Awaitable[None]]


class Fetcher:
    """Asks an upstream. What comes back is the upstream's word; what went wrong is raised.

    `remaining` reads what the headers say is left. Answers that take longer than usual slow the
    upstream's rate down for every process, before a limit is hit.
    """

    def __init__(
        self,
        store: Store,
        purse: Purse,
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
        self._purse = purse
        self._client = client
        self._upstream = upstream
        self._base_url = base_url
        self._classify = classify
        self._remaining = remaining
        self._sleep = sleep
        self._waiting = waiting
        self._retries = Allowance(_RETRY_SHARE, most=_RETRIES_SAVED, saved=_RETRIES_SAVED)
        self._pace = Pace()
        self.sent = 0
        """How many requests have left, second tries included."""

    async def fetch(
        self, question: Request, asker: RequestContext, *, patience: float = 60.0
    ) -> FetchResult:
        """The answer, if it is `ok`, `empty`, `not_in_plan`, `bad_request` or `broken`.

        `patience` is how long each attempt waits for its grant. Raises OutOfQuotaError when the
        day is spent, SettingsError when the key is refused, UnavailableError when there is no
        answer after the retries that are allowed.
        """
        self._retries.earn()
        attempt = 0
        while True:
            attempt += 1
            fetched = await self._attempt(question, asker, patience)
            outcome, reason = fetched.verdict.outcome, fetched.verdict.reason.rstrip(".")
            if outcome is Outcome.UNAUTHORISED:
                raise endpoint_state.refused(self._upstream, reason)
            if outcome is Outcome.DAY_EXHAUSTED:
                raise OutOfQuotaError(
                    msg(
                        "{upstream} says that the day's requests are used up: {reason}.",
                        upstream=self._upstream,
                        reason=reason,
                    ),
                    remedy=msg("`hasat quota` shows when the next day begins."),
                )
            if outcome not in _PASSING:
                return fetched
            # After a minute's limit the next grant waits for the pause that the budget made of it.
            limited = outcome is Outcome.MINUTE_LIMITED
            if attempt == _PASSING[outcome] or not (limited or self._retries.spend()):
                if outcome is Outcome.BROKEN:
                    return fetched
                raise UnavailableError(
                    msg(
                        "{upstream} did not answer {path} ({attempts}): {reason}.",
                        upstream=self._upstream,
                        path=question.path,
                        attempts=msg("one attempt")
                        if attempt == 1
                        else msg("{count} attempts", count=attempt),
                        reason=reason,
                    ),
                    remedy=msg("Ask again later."),
                )
            if not limited:
                pause = _pause(attempt, fetched.verdict.retry_after)
                async with self._waiting(pause):
                    await self._sleep(pause)

    async def _attempt(
        self, question: Request, asker: RequestContext, patience: float
    ) -> FetchResult:
        leave = await self._purse.acquire(
            asker.lane,
            job=asker.job,
            cost=question.points,
            endpoint=question.path,
            run=asker.run,
            timeout=patience,
        )
        self._client.ready()
        self.sent += 1
        started = time.monotonic()
        answer: Response | None = None
        verdict: Verdict | None = None
        try:
            answer = await self._client.send(f"{self._base_url}{question.path}", question)
            verdict = self._classify(answer)
        except NoResponseError as error:
            verdict = error.verdict
        finally:
            seconds = time.monotonic() - started
            # Shielded, so that also a request that is cancelled is in the ledger.
            await asyncio.shield(
                leave.settle(
                    verdict.outcome.value if verdict is not None else "cancelled",
                    headers=self._remaining(answer.headers if answer else {}),
                    latency=seconds,
                    retry_after=verdict.retry_after if verdict is not None else None,
                )
            )
        if answer:
            await keep_broken(
                self._store, self._upstream, asker.run, question.path, verdict, answer
            )
            if self._pace.note(seconds):
                await self._purse.slow_down(_SLOWER)
        return FetchResult(verdict, answer, self._base_url)


def _pause(attempt: int, asked_for: float | None) -> float:
    """Seconds before the next attempt: what was asked for, else doubling, and never in step."""
    usual = min(_FIRST_PAUSE_SECONDS * 2 ** (attempt - 1), _LONGEST_PAUSE_SECONDS)
    return (asked_for or usual) * random.uniform(1.0, 1.5)  # noqa: S311 - spreads load
