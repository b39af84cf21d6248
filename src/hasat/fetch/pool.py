"""Endpoints shared by all processes: which is asked next, when, and what is remembered of it."""

import asyncio
import contextlib
import hashlib
import time
from collections.abc import AsyncIterator, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self
from uuid import UUID, uuid4

import structlog

from hasat.budget import Waiting, keep_slot
from hasat.errors import DatabaseError, OutOfQuotaError
from hasat.fetch import endpoint_state
from hasat.fetch.endpoint_state import Standing, choose, usual_seconds
from hasat.fetch.endpoint_store import Claim, Done, Seen, SharedState
from hasat.fetch.fetcher import keep_broken
from hasat.fetch.health import Measured, cost_of, effect_of, note
from hasat.fetch.outcomes import DEFINITIVE, Request, RequestContext, Response, Verdict
from hasat.fetch.purse import Leave, Purse
from hasat.fetch.workers_file import Endpoint
from hasat.store import Store

_POLL_SECONDS = 1.0
_ASK_OTHERS_SECONDS = 0.1
_ANOTHER_SECONDS = 2.0
GRANT_SECONDS = 5.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Taken:
    """An endpoint that is ours for one request, and paid for."""

    standing: Standing
    claim: Claim
    leave: Leave
    hedge: bool

    @property
    def url(self) -> str:
        return self.claim.endpoint.url


class EndpointPool:
    """The endpoints of one upstream as this process uses them; open it before use.

    `patience` is how long a question waits for an endpoint before it is told that none is there.
    """

    def __init__(
        self,
        store: Store,
        purse: Purse,
        upstream: str,
        endpoints: Sequence[Endpoint],
        *,
        key: str,
        zone: str = "Europe/Istanbul",
        cooldown: float = 300.0,
        patience: float = 60.0,
        waiting: Waiting = keep_slot,
    ) -> None:
        self.upstream = upstream
        self.standings = [Standing(endpoint) for endpoint in endpoints]
        self._store = store
        self._purse = purse
        self._zone = zone
        self._cooldown = cooldown
        self._patience = patience
        self._waiting = waiting
        # A name for the key that tells nothing about it.
        self._key = hashlib.sha256(f"hasat:{key}".encode()).hexdigest()[:16]
        self._state = SharedState(store, upstream, endpoints, zone, self._key)
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()
        self._chores: set[asyncio.Task[None]] = set()
        self._looked_at: dict[str, float] = {}
        self._upstream_seen: tuple[Seen, float] | None = None
        self._uses = 0

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Self]:
        """The pool with its rows in the database; at the end, all is written that is to be."""
        async with self._state.opened():
            try:
                yield self
            finally:
                await self.written()

    async def written(self) -> None:
        """Wait until all that came of earlier requests is in the database."""
        while self._chores:
            await asyncio.wait(self._chores)

    def most_left(self) -> int:
        """The points that the endpoint with the most still has today, as far as we know."""
        now = time.monotonic()
        return max((s.left for s in self.standings if not s.day_is_over(1, now)), default=0)

    def set_aside(self, url: str) -> None:
        """Leaves an endpoint alone that cannot be believed, unless it is the last one."""
        rest = [standing for standing in self.standings if standing.endpoint.url != url]
        self.standings = rest or self.standings

    async def take(
        self, question: Request, asker: RequestContext, *, only: str | None = None
    ) -> Taken:
        """The endpoint of choice, as soon as it may be asked; who waits is served in order."""
        urls = {standing.endpoint.url for standing in self.standings}
        refused = urls - {only} if only else set[str]()
        last: OutOfQuotaError | None = None
        while True:
            async with self._turn:
                standing = await self._awaited(question, refused, last)
            try:
                taken = await self._claimed(standing, question, asker, hedge=False)
            except OutOfQuotaError as error:
                # Perhaps only this endpoint's share of the budget is spent.
                refused.add(standing.endpoint.url)
                last = error
                continue
            if taken:
                return taken
            if self._half_open():
                # Another process finds out whether the upstream is back.
                await asyncio.sleep(_ASK_OTHERS_SECONDS)

    async def take_another(
        self, question: Request, asker: RequestContext, tried: Collection[str], *, hedge: bool
    ) -> Taken | None:
        """Another endpoint, if one is free soon; before all who wait for their first."""
        excluded = set(tried)
        if hedge:
            excluded |= {s.endpoint.url for s in self.standings if s.scarce}
        deadline = time.monotonic() + _ANOTHER_SECONDS
        while True:
            now = time.monotonic()
            choice = choose(self.standings, question, excluded=excluded, now=now)
            if choice is None or now + choice[1] > deadline:
                return None
            standing, wait = choice
            if wait > 0.0:
                await self._until_freed(wait)
                continue
            self._mark(standing)
            try:
                taken = await self._claimed(standing, question, asker, hedge=hedge)
            except OutOfQuotaError:
                return None
            if taken or self._half_open():
                return taken
            await self._look(question.kind)

    def conclude(
        self,
        taken: Taken,
        question: Request,
        asker: RequestContext,
        seconds: float,
        verdict: Verdict | None,
        answer: Response | None,
    ) -> None:
        """Take in what came of a request, and write it down while others go on.

        Without a verdict it was cancelled.
        """
        now, standing, claim = time.monotonic(), taken.standing, taken.claim
        answered = verdict is not None and verdict.outcome in DEFINITIVE
        measured = Measured(seconds, answered, lost=verdict is None)
        usual = usual_seconds(self.standings, question.kind)
        worth = claim.worth.with_cost(cost_of(measured, usual))
        note(claim.sketch, measured)
        status = answer.status if answer else None
        effect = effect_of(claim.record, verdict, status, question.points, self._cooldown)
        known = standing.known[question.kind]
        known.worth, known.at, known.sketch = worth, now, claim.sketch
        if answered:
            known.pace.note(seconds)
        if verdict:
            standing.feel(effect, now + self._day_ends_in(), now)
        done = Done(verdict, effect, worth, taken.hedge)
        origin = f"{taken.url}{claim.endpoint.path_for(question)}"
        opening = self._half_open()

        async def write() -> None:
            try:
                await self._state.settle(claim, question, done, opening=opening)
            finally:
                self._let_go(standing)
                outcome = verdict.outcome.value if verdict else "cancelled"
                # How long an endpoint rests is decided here, so the budget adds nothing to it.
                await taken.leave.settle(outcome, latency=seconds, retry_after=0.0)
            if verdict and answer:
                await keep_broken(self._store, self.upstream, asker.run, origin, verdict, answer)

        self._chore(write())

    async def _awaited(
        self, question: Request, excluded: Collection[str], last: OutOfQuotaError | None
    ) -> Standing:
        """The endpoint of choice, once it is free; marked as ours so that nobody else takes it."""
        patience = self._patience
        certain = False
        while True:
            await self._look(question.kind)
            self._check_upstream()
            now = time.monotonic()
            choice = choose(self.standings, question, excluded=excluded, now=now)
            if choice is None or choice[1] > patience:
                if certain:
                    raise last or self._nobody(question)
                # What we know may be old: another process, or what is being written, knows better.
                certain = True
                await self.written()
                self._looked_at.clear()
                continue
            standing, wait = choice
            if wait <= 0.0:
                self._mark(standing)
                return standing
            async with self._waiting(wait):
                await self._until_freed(wait)
                patience -= time.monotonic() - now
            if standing.theirs:
                # Only the database knows when another process is done.
                self._looked_at.clear()

    def _mark(self, standing: Standing) -> None:
        """Make it ours, so that nobody else in this process takes it."""
        standing.ours = True
        standing.since = time.monotonic()

    async def _until_freed(self, seconds: float) -> None:
        """Wait until one of ours is done, but not longer than it is worth to look again."""
        freed = self._freed
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, _ASK_OTHERS_SECONDS)):
                await freed.wait()

    async def _claimed(
        self, standing: Standing, question: Request, asker: RequestContext, *, hedge: bool
    ) -> Taken | None:
        """The endpoint, claimed and paid for; None if another process was faster."""
        holder, url, apart = uuid4(), standing.endpoint.url, standing.apart(question.kind)
        try:
            if self._half_open():
                await self._state.probe(holder, question)
            claim = await self._state.claim(url, holder, question, apart)
            if claim is None:
                if self._half_open():
                    await self._state.release(holder, question)
                self._let_go(standing)
                self._looked_at.clear()
                return None
            self._uses += 1
            standing.used = self._uses
            standing.points = claim.record.points
            standing.free_at = time.monotonic() + apart
            leave = await self._purse.acquire(
                asker.lane,
                job=asker.job,
                cost=question.points,
                endpoint=url,
                run=asker.run,
                timeout=GRANT_SECONDS,
            )
        except BaseException:
            self._chore(self._give_back(standing, holder, question))
            raise
        return Taken(standing, claim, leave, hedge)

    async def _give_back(self, standing: Standing, holder: UUID, question: Request) -> None:
        try:
            await self._state.release(holder, question)
        finally:
            self._let_go(standing)

    def _let_go(self, standing: Standing) -> None:
        standing.ours = False
        self._freed.set()
        self._freed = asyncio.Event()

    async def _look(self, kind: str) -> None:
        """Take over from the database what others did, at most once a second."""
        if time.monotonic() - self._looked_at.get(kind, -1e9) < _POLL_SECONDS:
            return
        rows = {row.url: row for row in await self._state.look(kind)}
        now = time.monotonic()
        self._looked_at[kind] = now
        for standing in self.standings:
            # What we have a request at, we know better.
            if not standing.ours:
                standing.see(rows[standing.endpoint.url], kind, now)
        self._upstream_seen = next(iter(rows.values())), now

    def _half_open(self) -> bool:
        return self._upstream_seen is not None and self._upstream_seen[0].upstream_level > 0

    def _check_upstream(self) -> None:
        if self._upstream_seen is None:
            return
        seen, at = self._upstream_seen
        rest = at + seen.upstream_rest_in - time.monotonic()
        if rest <= 0.0:
            return
        if seen.refused_key is None:
            raise endpoint_state.all_alike(
                self.upstream, seen.upstream_cause or "", rest, self._zone
            )
        if seen.refused_key == self._key:
            raise endpoint_state.refused(self.upstream, seen.upstream_cause or "")

    def _nobody(self, question: Request) -> Exception:
        return endpoint_state.nobody(
            self.upstream,
            self.standings,
            question,
            now=time.monotonic(),
            day_ends_in=self._day_ends_in(),
            zone_name=self._zone,
        )

    def _day_ends_in(self) -> float:
        if self._upstream_seen is None:
            return 0.0
        seen, at = self._upstream_seen
        return at + seen.day_ends_in - time.monotonic()

    def _chore(self, work: Coroutine[Any, Any, None]) -> None:
        """Something to write while others go on; what fails is known by the lease that runs out."""

        async def doing() -> None:
            try:
                await work
            except DatabaseError as error:
                log.warning("an endpoint's state could not be written", reason=str(error))

        task = asyncio.create_task(doing())
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)
