"""An event loop whose clock jumps to the next timer, and an endpoint pool that runs on it."""

import asyncio
import random
import selectors
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, TypeVar
from uuid import UUID

import httpx2
import pytest

from hasat.fetch import Client, ClientOptions, Endpoint, EndpointPool, HedgedFetcher, hedging, pool
from hasat.fetch import client as client_module
from hasat.fetch.endpoint_store import Claim, EndpointRow, EndpointUse, Settlement
from hasat.fetch.health import CostEstimate, EndpointRecord, LatencySketch
from hasat.fetch.outcomes import Request
from hasat.sources.tkgm.registry.wire import classify
from support.endpoint_pool import FakeBudget

T = TypeVar("T")

FEATURE = b'{"type":"Feature","geometry":null,"properties":{}}'


class _JumpingSelector(selectors.SelectSelector):
    """Never wait: move the clock forward by the time that would have passed."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now += max(timeout or 0.0, 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on which waiting takes no time."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return 1_000.0 + self._jumping.now


def run_virtually(work: Coroutine[Any, Any, T], monkeypatch: pytest.MonkeyPatch) -> T:
    """Run a coroutine over an endpoint pool in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        clock = SimpleNamespace(monotonic=runner.get_loop().time)
        for module in (pool, hedging, client_module):
            monkeypatch.setattr(module, "time", clock)
        return runner.run(work)


@dataclass
class _Row:
    holder: UUID | None = None
    next_at: float = 0.0
    points: int = 0
    learned: int | None = None
    streak: int = 0
    rest_level: int = 0
    rest_until: float = 0.0
    rest_cause: str | None = None
    requests: int = 0
    hedges: int = 0
    mean: float = 0.0
    weight: float = 0.0
    measured_at: float = 0.0
    sketch: bytes | None = None


@dataclass
class MemoryStore:
    """The state of endpoints in memory, as `EndpointStore` keeps it in PostgreSQL."""

    endpoints: Sequence[Endpoint]
    round_trip: Callable[[], float] = lambda: 0.001
    rows: dict[str, _Row] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rows = {one.url: _Row() for one in self.endpoints}

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        yield

    async def use(self) -> EndpointUse:
        rows = self.rows.values()
        return EndpointUse(sum(row.requests for row in rows), sum(row.hedges for row in rows))

    async def read(self, kind: str) -> list[EndpointRow]:
        now = await self._now()
        return [
            EndpointRow(
                url, row.holder is not None, row.next_at - now, row.rest_until - now,
                row.rest_cause, row.points, row.learned, row.mean, row.weight,
                now - row.measured_at, row.sketch, 0.0, None, 0, None, 1e6,
            )
            for url, row in self.rows.items()
        ]  # fmt: skip

    async def claim(
        self, url: str, holder: UUID, request: Request, interval: float
    ) -> Claim | None:
        now = await self._now()
        row, (endpoint,) = self.rows[url], [one for one in self.endpoints if one.url == url]
        is_busy = row.holder is not None or max(row.next_at, row.rest_until) > now
        if is_busy or row.points + request.points > endpoint.daily:
            return None
        row.holder, row.next_at = holder, now + interval
        row.points += request.points
        record = EndpointRecord(row.points, row.learned, row.streak, row.rest_level)
        cost = CostEstimate(row.mean, row.weight).after(now - row.measured_at)
        return Claim(endpoint, holder, record, cost, LatencySketch.from_bytes(row.sketch))

    async def release(self, holder: UUID, request: Request) -> None:
        for row in self.rows.values():
            if row.holder == holder:
                row.holder, row.next_at = None, 0.0
                row.points -= request.points

    async def settle(
        self, claim: Claim, request: Request, settlement: Settlement, *, opening: bool
    ) -> None:
        now, row = await self._now(), self.rows[claim.endpoint.url]
        effect = settlement.effect
        row.holder = None
        if settlement.verdict:
            row.streak, row.rest_level = effect.streak, effect.rest_level
            row.learned = effect.learned
            row.rest_until, row.rest_cause = now + (effect.rest or 0.0), effect.cause
        row.requests += 1
        row.hedges += settlement.hedge
        row.mean, row.weight, row.measured_at = settlement.cost.mean, settlement.cost.weight, now
        row.sketch = claim.sketch.to_bytes()

    async def _now(self) -> float:
        await asyncio.sleep(self.round_trip())
        return asyncio.get_running_loop().time()


class SimulatedEndpoints(httpx2.AsyncBaseTransport):
    """Endpoints that respond after a drawn time; `requests` counts what each received."""

    def __init__(self, seconds: Callable[[int], float]) -> None:
        self._seconds = seconds
        self.requests: dict[int, int] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        place = int(request.url.host.removeprefix("e").removesuffix(".example"))
        self.requests[place] = self.requests.get(place, 0) + 1
        await asyncio.sleep(self._seconds(place))
        return httpx2.Response(200, content=FEATURE)


@asynccontextmanager
async def simulated_pool(
    endpoints: SimulatedEndpoints,
    places: int,
    *,
    hedge_share: float = 0.02,
    round_trip: Callable[[], float] = lambda: 0.001,
    store: MemoryStore | None = None,
    budget: FakeBudget | None = None,
) -> AsyncIterator[HedgedFetcher]:
    """Open a fetcher over simulated endpoints with the default interval of 200 ms."""
    declared = [Endpoint(f"https://e{n}.example", 10**6, 0.2) for n in range(places)]
    budget = budget or FakeBudget()
    opened: Any = EndpointPool(None, budget, "tkgm", declared, key="key")  # type: ignore[arg-type]
    opened._state = store or MemoryStore(declared, round_trip)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(ClientOptions("test"), endpoints))
        await stack.enter_async_context(opened.opened())
        yield HedgedFetcher(opened, client, classify, hedge_share=hedge_share)


def slow_tails(
    shares: Sequence[float], rng: random.Random, *, base: float = 0.05, slower: float = 50.0
) -> Callable[[int], float]:
    """Return a function that draws how long a place takes: a share of responses is slower."""

    def draw(place: int) -> float:
        seconds = base * rng.uniform(0.9, 1.1)
        return seconds * (slower if rng.random() < shares[place] else 1.0)

    return draw
