"""The endpoint pool, shared by all processes: which endpoint is next, when, and its state."""

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

from hasat.budget import Budget, Grant, Waiting, keep_slot
from hasat.errors import DatabaseError, OutOfQuotaError
from hasat.fetch.endpoint_state import (
    EndpointState,
    all_failing,
    choose,
    key_rejected,
    none_available,
    usual_seconds,
)
from hasat.fetch.endpoint_store import (
    Claim,
    EndpointRow,
    EndpointStore,
    EndpointUse,
    Settlement,
)
from hasat.fetch.fetcher import quarantine_broken
from hasat.fetch.health import Measurement, cost_of, effect_of, note
from hasat.fetch.outcomes import DEFINITIVE, Request, RequestContext, Response, Verdict
from hasat.fetch.workers_file import Endpoint
from hasat.store import Store

_REFRESH_SECONDS = 1.0
_POLL_SECONDS = 0.1
_MAX_WAIT_FOR_ANOTHER = 2.0
GRANT_SECONDS = 5.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Reservation:
    """An endpoint reserved for one request, with its grant."""

    state: EndpointState
    claim: Claim
    grant: Grant
    hedge: bool

    @property
    def url(self) -> str:
        return self.claim.endpoint.url


class EndpointPool:
    """The endpoints of one upstream as this process uses them; open it before use.

    `patience` is how long a request waits for an endpoint.
    """

    def __init__(
        self,
        store: Store,
        budget: Budget,
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
        self.states = [EndpointState(endpoint) for endpoint in endpoints]
        self._store = store
        self._budget = budget
        self._zone = zone
        self._cooldown = cooldown
        self._patience = patience
        self._waiting = waiting
        # Identifies the key without revealing it.
        self._key = hashlib.sha256(f"hasat:{key}".encode()).hexdigest()[:16]
        self._state = EndpointStore(store, upstream, endpoints, zone, self._key)
        self._queue = asyncio.Lock()
        self._freed = asyncio.Event()
        self._background: set[asyncio.Task[None]] = set()
        self._refreshed_at: dict[str, float] = {}
        self._upstream_row: tuple[EndpointRow, float] | None = None
        self._uses = 0
        self.use = EndpointUse(0, 0)
        """What all processes had sent when the pool was opened."""

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Self]:
        """Open the pool; at the end, wait until its state is written."""
        async with self._state.opened():
            self.use = await self._state.use()
            try:
                yield self
            finally:
                await self.written()

    async def written(self) -> None:
        """Wait until the results of earlier requests are in the database."""
        while self._background:
            await asyncio.wait(self._background)

    def max_remaining(self) -> int:
        """Return the most points that any endpoint has left today, as last seen."""
        now = time.monotonic()
        return max((s.left for s in self.states if not s.day_is_over(1, now)), default=0)

    def exclude(self, url: str) -> None:
        """Stop using an endpoint that is not trusted, unless it is the last one."""
        rest = [state for state in self.states if state.endpoint.url != url]
        self.states = rest or self.states

    async def take(
        self, request: Request, context: RequestContext, *, only: str | None = None
    ) -> Reservation:
        """Reserve the best endpoint as soon as it is free; requests wait in order."""
        urls = {state.endpoint.url for state in self.states}
        refused = urls - {only} if only else set[str]()
        last: OutOfQuotaError | None = None
        while True:
            async with self._queue:
                state = await self._wait_for_best(request, refused, last)
            try:
                reservation = await self._claim(state, request, context, hedge=False)
            except OutOfQuotaError as error:
                # Perhaps only this endpoint is out of quota.
                refused.add(state.endpoint.url)
                last = error
                continue
            if reservation:
                return reservation
            if self._half_open():
                # Another process is probing the upstream.
                await asyncio.sleep(_POLL_SECONDS)

    async def take_another(
        self, request: Request, context: RequestContext, tried: Collection[str], *, hedge: bool
    ) -> Reservation | None:
        """Reserve another endpoint if one is free soon, ahead of requests that wait in order."""
        excluded = set(tried)
        if hedge:
            excluded |= {s.endpoint.url for s in self.states if s.scarce}
        deadline = time.monotonic() + _MAX_WAIT_FOR_ANOTHER
        while True:
            now = time.monotonic()
            choice = choose(self.states, request, excluded=excluded, now=now)
            if choice is None or now + choice[1] > deadline:
                return None
            state, wait = choice
            if wait > 0.0:
                await self._until_freed(wait)
                continue
            self._mark(state)
            try:
                reservation = await self._claim(state, request, context, hedge=hedge)
            except OutOfQuotaError:
                return None
            if reservation or self._half_open():
                return reservation
            await self._refresh(request.kind)

    def conclude(
        self,
        reservation: Reservation,
        request: Request,
        context: RequestContext,
        seconds: float,
        verdict: Verdict | None,
        response: Response | None,
    ) -> None:
        """Record the result of a request and write it in the background.

        A cancelled request has no verdict.
        """
        now, state, claim = time.monotonic(), reservation.state, reservation.claim
        answered = verdict is not None and verdict.outcome in DEFINITIVE
        measurement = Measurement(seconds, answered, lost=verdict is None)
        usual = usual_seconds(self.states, request.kind)
        cost = claim.cost.with_cost(cost_of(measurement, usual))
        note(claim.sketch, measurement)
        status = response.status if response else None
        effect = effect_of(claim.record, verdict, status, request.points, self._cooldown)
        known = state.stats[request.kind]
        known.cost, known.at, known.sketch = cost, now, claim.sketch
        if answered:
            known.throttle.note(seconds)
        if verdict:
            state.apply(effect, now + self._day_ends_in(), now)
        done = Settlement(verdict, effect, cost, reservation.hedge)
        origin = f"{reservation.url}{claim.endpoint.path_for(request)}"
        opening = self._half_open()

        async def write() -> None:
            try:
                await self._state.settle(claim, request, done, opening=opening)
            finally:
                self._free(state)
                outcome = verdict.outcome.value if verdict else "cancelled"
                # The cooldown is decided here, so the budget must add none.
                await reservation.grant.settle(outcome, latency=seconds, retry_after=0.0)
            if verdict and response:
                await quarantine_broken(
                    self._store, self.upstream, context.run, origin, verdict, response
                )

        self._in_background(write())

    async def _wait_for_best(
        self, request: Request, excluded: Collection[str], last: OutOfQuotaError | None
    ) -> EndpointState:
        """Wait for the best endpoint and mark it as used by this process."""
        patience = self._patience
        certain = False
        while True:
            await self._refresh(request.kind)
            self._check_upstream()
            now = time.monotonic()
            choice = choose(self.states, request, excluded=excluded, now=now)
            if choice is None or choice[1] > patience:
                if certain:
                    raise last or self._none_available(request)
                # The local state may be old: read the database once more.
                certain = True
                await self.written()
                self._refreshed_at.clear()
                continue
            state, wait = choice
            if wait <= 0.0:
                self._mark(state)
                return state
            async with self._waiting(wait):
                await self._until_freed(wait)
                patience -= time.monotonic() - now
            if state.theirs:
                # Only the database knows when another process has finished.
                self._refreshed_at.clear()

    def _mark(self, state: EndpointState) -> None:
        """Mark the endpoint as used by this process."""
        state.ours = True
        state.since = time.monotonic()

    async def _until_freed(self, seconds: float) -> None:
        """Wait until a request of this process ends, for a short time at most."""
        freed = self._freed
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, _POLL_SECONDS)):
                await freed.wait()

    async def _claim(
        self, state: EndpointState, request: Request, context: RequestContext, *, hedge: bool
    ) -> Reservation | None:
        """Claim the endpoint and get a grant; return None if another process was faster."""
        holder, url, interval = uuid4(), state.endpoint.url, state.min_interval(request.kind)
        try:
            if self._half_open():
                await self._state.probe(holder, request)
            claim = await self._state.claim(url, holder, request, interval)
            if claim is None:
                if self._half_open():
                    await self._state.release(holder, request)
                self._free(state)
                self._refreshed_at.clear()
                return None
            self._uses += 1
            state.used = self._uses
            state.points = claim.record.points
            state.free_at = time.monotonic() + interval
            grant = await self._budget.acquire(
                context.lane,
                job=context.job,
                cost=request.points,
                endpoint=url,
                run=context.run,
                timeout=GRANT_SECONDS,
            )
        except BaseException:
            self._in_background(self._release(state, holder, request))
            raise
        return Reservation(state, claim, grant, hedge)

    async def _release(self, state: EndpointState, holder: UUID, request: Request) -> None:
        try:
            await self._state.release(holder, request)
        finally:
            self._free(state)

    def _free(self, state: EndpointState) -> None:
        state.ours = False
        self._freed.set()
        self._freed = asyncio.Event()

    async def _refresh(self, kind: str) -> None:
        """Refresh the state from the database, at most once a second."""
        if time.monotonic() - self._refreshed_at.get(kind, -1e9) < _REFRESH_SECONDS:
            return
        rows = {row.url: row for row in await self._state.read(kind)}
        now = time.monotonic()
        self._refreshed_at[kind] = now
        for state in self.states:
            # Where this process has a request, its own state is newer.
            if not state.ours:
                state.refresh(rows[state.endpoint.url], kind, now)
        self._upstream_row = next(iter(rows.values())), now

    def _half_open(self) -> bool:
        return self._upstream_row is not None and self._upstream_row[0].upstream_level > 0

    def _check_upstream(self) -> None:
        if self._upstream_row is None:
            return
        seen, at = self._upstream_row
        rest = at + seen.upstream_rest_in - time.monotonic()
        if rest <= 0.0:
            return
        if seen.refused_key is None:
            raise all_failing(self.upstream, seen.upstream_cause or "", rest, self._zone)
        if seen.refused_key == self._key:
            raise key_rejected(self.upstream, seen.upstream_cause or "")

    def _none_available(self, request: Request) -> Exception:
        return none_available(
            self.upstream,
            self.states,
            request,
            now=time.monotonic(),
            day_ends_in=self._day_ends_in(),
            zone_name=self._zone,
        )

    def _day_ends_in(self) -> float:
        if self._upstream_row is None:
            return 0.0
        seen, at = self._upstream_row
        return at + seen.day_ends_in - time.monotonic()

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Write in the background; if that fails, the lease of the claim runs out."""

        async def run() -> None:
            try:
                await work
            except DatabaseError as error:
                log.warning("endpoint.state_not_written", reason=str(error))

        task = asyncio.create_task(run())
        self._background.add(task)
        task.add_done_callback(self._background.discard)
