"""Hedging over thousands of requests in virtual time: short tails, few extra requests."""

import asyncio
import math
import random
from collections.abc import Callable, Sequence
from statistics import median

import pytest

from hasat.errors import OutOfQuotaError
from hasat.fetch import Endpoint, HedgedFetcher, Request, RequestContext
from support.endpoint_pool import FakeBudget, RecordedRequest
from support.virtual_time import (
    MemoryStore,
    SimulatedEndpoints,
    run_virtually,
    simulated_pool,
    slow_tails,
)

CONTEXT = RequestContext("daily", "test")
REQUESTS = 2000
ONE_BAD = (0.3, 0.0, 0.0, 0.0, 0.0, 0.0)
SPREAD = (0.01,) * 6
SEEDS = range(1, 6)


def point(n: int = 0) -> Request:
    return Request(f"/parsel/39.{n}/32.0", timeout=15.0)


def at_999(values: Sequence[float]) -> float:
    return sorted(values)[math.ceil(0.999 * len(values)) - 1]


async def ask_one_by_one(
    fetcher: HedgedFetcher, count: int, work: Callable[[], float] = lambda: 0.004
) -> list[float]:
    """Send requests one after another, with some work in between; return their seconds."""
    clock, seconds = asyncio.get_running_loop().time, []
    for n in range(count):
        started = clock()
        await fetcher.fetch(point(n), CONTEXT)
        seconds.append(clock() - started)
        await asyncio.sleep(work())
    return seconds


async def measure(shares: Sequence[float], seed: int, jitter: float) -> tuple[float, float]:
    """Return how much better p99.9 is than with one try, and the share of extra requests."""
    draw, noise = slow_tails(shares, random.Random(seed)), random.Random(-seed)

    def delayed(seconds: float) -> float:
        return seconds + (noise.expovariate(1 / jitter) if jitter and noise.random() < 0.2 else 0)

    endpoints = SimulatedEndpoints(lambda place: delayed(draw(place)))
    async with simulated_pool(endpoints, len(shares), round_trip=lambda: delayed(0.001)) as fetcher:
        seconds = await ask_one_by_one(fetcher, REQUESTS)
    once = slow_tails(shares, random.Random(seed))
    one_try = [once(n % len(shares)) for n in range(REQUESTS)]
    extra = sum(endpoints.requests.values()) / REQUESTS - 1
    return at_999(one_try) / at_999(seconds), extra


@pytest.mark.parametrize("jitter", [0.0, 0.01], ids=["calm", "jitter"])
@pytest.mark.parametrize(("shares", "goal"), [(ONE_BAD, 20.0), (SPREAD, 12.0)])
def test_tails_are_short_at_two_percent(
    monkeypatch: pytest.MonkeyPatch, shares: Sequence[float], goal: float, jitter: float
) -> None:
    results = [run_virtually(measure(shares, seed, jitter), monkeypatch) for seed in SEEDS]
    print(results)
    assert median(ratio for ratio, _ in results) >= goal
    assert max(extra for _, extra in results) <= 0.02


def test_jitter_alone_spends_no_more_than_the_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """No response is worth a hedge here, and every tenth is late."""
    rng = random.Random(1)
    endpoints = SimulatedEndpoints(lambda _: 0.05 * (4.0 if rng.random() < 0.1 else 1.0))

    async def ask() -> None:
        async with simulated_pool(endpoints, 4) as fetcher:
            await ask_one_by_one(fetcher, 1000)

    run_virtually(ask(), monkeypatch)
    assert sum(endpoints.requests.values()) <= 1020


def test_a_slow_endpoint_is_used_again_once_it_has_recovered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_slow = True
    endpoints = SimulatedEndpoints(lambda place: 2.5 if is_slow and place == 0 else 0.05)

    async def ask() -> tuple[int, int]:
        nonlocal is_slow
        async with simulated_pool(endpoints, 3) as fetcher:
            await ask_one_by_one(fetcher, 300)
            before = endpoints.requests[0]
            is_slow = False
            # Five minutes, with a request each second.
            await ask_one_by_one(fetcher, 300, lambda: 1.0)
            return before, endpoints.requests[0] - before

    slow, recovered = run_virtually(ask(), monkeypatch)
    assert slow <= 5
    assert recovered >= 5


class HangingFirst:
    """The first request after each `arm` gets no response for an hour."""

    def __init__(self) -> None:
        self.armed = True

    def __call__(self, place: int) -> float:
        was_armed, self.armed = self.armed, False
        return 3600.0 if was_armed else 0.05


def test_the_first_request_of_a_process_is_hedged(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoints = SimulatedEndpoints(HangingFirst())

    async def ask() -> list[float]:
        async with simulated_pool(endpoints, 6) as fetcher:
            return await ask_one_by_one(fetcher, 1)

    (seconds,) = run_virtually(ask(), monkeypatch)
    assert sum(endpoints.requests.values()) == 2
    # Long before the time-out, after which it would have gone elsewhere anyway.
    assert seconds < 5.0


def test_processes_of_one_request_share_the_hedges(monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = HangingFirst()
    endpoints = SimulatedEndpoints(hanging)
    store = MemoryStore([Endpoint(f"https://e{n}.example", 10**6, 0.2) for n in range(6)])

    async def ask(processes: int) -> int:
        for _ in range(processes):
            hanging.armed = True
            async with simulated_pool(endpoints, 6, store=store) as fetcher:
                await ask_one_by_one(fetcher, 1, lambda: 20.0)
        return sum(row.hedges for row in store.rows.values())

    assert run_virtually(ask(20), monkeypatch) == 2


def test_an_unused_token_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The response arrives while its hedge waits for an endpoint: that costs no token."""
    seconds = 0.05
    endpoints = SimulatedEndpoints(lambda _: seconds)

    async def ask() -> tuple[float, float]:
        nonlocal seconds
        async with simulated_pool(endpoints, 3) as fetcher:
            await ask_one_by_one(fetcher, 200)
            await asyncio.sleep(1.0)
            saved = fetcher._hedges.saved
            # Three at once, so that a hedge finds no free endpoint before its own response.
            seconds = 0.3
            await asyncio.gather(*(fetcher.fetch(point(n), CONTEXT) for n in range(3)))
            return saved, fetcher._hedges.saved

    before, after = run_virtually(ask(), monkeypatch)
    assert sum(endpoints.requests.values()) == 203
    assert after >= before


class Stingy(FakeBudget):
    """A budget that grants the first request only."""

    async def acquire(self, *arguments: object, **options: object) -> RecordedRequest:
        if self.requests:
            raise OutOfQuotaError("no more")
        return await super().acquire(*arguments, **options)  # type: ignore[arg-type]


def test_a_hedge_needs_a_grant(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoints = SimulatedEndpoints(lambda _: 5.0)
    budget = Stingy()

    async def ask() -> float:
        async with simulated_pool(endpoints, 6, budget=budget) as fetcher:
            await fetcher.fetch(point(), CONTEXT)
            return fetcher._hedges.saved

    assert run_virtually(ask(), monkeypatch) == 2.0
    assert sum(endpoints.requests.values()) == 1
    assert budget.outcomes == ["ok"]
