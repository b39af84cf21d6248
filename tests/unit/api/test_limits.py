"""The rate limit: bursts pass, the mean holds over all processes, memory does not grow."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from hasat.api import rate_limits
from hasat.api.rate_limits import RateLimits, block_of, network_of
from hasat.errors import DatabaseError

pytestmark = pytest.mark.anyio


class Watch:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class SharedBuckets:
    """What `serve.lease_tokens` does, by the test's clock."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._buckets: dict[str, tuple[float, float]] = {}
        self.leases = 0
        self.is_away = False

    async def __call__(self, name: str, per_minute: int, wanted: int) -> tuple[int, float]:
        self.leases += 1
        if self.is_away:
            raise DatabaseError("PostgreSQL cannot be reached.")
        now = self._watch()
        tokens, filled_at = self._buckets.get(name, (float(per_minute), now))
        tokens = min(float(per_minute), tokens + (now - filled_at) * per_minute / 60)
        granted = min(wanted, int(tokens))
        self._buckets[name] = (tokens - granted, now)
        return granted, tokens - granted


async def admits(buckets: RateLimits, per_minute: int, name: str = "a") -> bool:
    allowance = await buckets.draw(name, per_minute)
    return allowance is None or allowance.retry_after is None


def seeded() -> random.Random:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    return random.Random(seed)


@pytest.fixture(params=["local", "shared"])
def made(request: pytest.FixtureRequest) -> Callable[[Watch], RateLimits]:
    def make(watch: Watch) -> RateLimits:
        lease = SharedBuckets(watch) if request.param == "shared" else None
        return RateLimits(lease, monotonic=watch)

    return make


async def test_a_minutes_worth_passes_at_once_and_then_the_caller_must_wait(
    made: Callable[[Watch], RateLimits],
) -> None:
    buckets = made(Watch())
    drawn = [await buckets.draw("a", 60) for _ in range(61)]
    assert [allowance.remaining for allowance in drawn if allowance] == [*range(59, -1, -1), 0]
    assert drawn[59] is not None
    assert drawn[59].retry_after is None
    assert drawn[60] is not None
    assert drawn[60].retry_after == 1


async def test_waiting_for_retry_after_is_enough(made: Callable[[Watch], RateLimits]) -> None:
    chance = seeded()
    for _ in range(200):
        watch = Watch()
        buckets, per_minute = made(watch), chance.choice([1, 7, 60, 600])
        while (allowance := await buckets.draw("a", per_minute)) and allowance.retry_after is None:
            watch.seconds += chance.random() / 100
        assert allowance is not None
        assert allowance.retry_after is not None
        watch.seconds += allowance.retry_after
        assert await admits(buckets, per_minute)


async def test_over_a_long_time_nobody_gets_more_than_the_burst_and_the_rate(
    made: Callable[[Watch], RateLimits],
) -> None:
    chance, watch = seeded(), Watch()
    buckets = made(watch)
    passed = 0
    for _ in range(20_000):
        watch.seconds += chance.expovariate(30)
        passed += await admits(buckets, 120)
    assert 2 * watch.seconds * 0.9 <= passed <= 120 + 2 * watch.seconds + 1


async def test_callers_do_not_share_a_bucket(made: Callable[[Watch], RateLimits]) -> None:
    buckets = made(Watch())
    assert await admits(buckets, 1, "a")
    assert await admits(buckets, 1, "b")
    assert not await admits(buckets, 1, "a")


async def test_reset_says_when_the_bucket_is_full_again(
    made: Callable[[Watch], RateLimits],
) -> None:
    watch = Watch()
    buckets = made(watch)
    *_, allowance = [await buckets.draw("a", 60) for _ in range(30)]
    assert allowance is not None
    assert allowance.reset_seconds == 30
    watch.seconds += allowance.reset_seconds
    full = await buckets.draw("a", 60)
    assert full is not None
    assert full.remaining == 59


async def test_zero_means_no_limit() -> None:
    assert await RateLimits().draw("a", 0) is None


async def test_memory_is_bounded_and_busy_buckets_stay() -> None:
    buckets = RateLimits(max_buckets=100, monotonic=Watch())
    for number in range(5_000):
        await buckets.draw(f"flood {number}", 2)
        await buckets.draw("busy", 2)
    assert len(buckets) == 100
    assert not await admits(buckets, 2, "busy")


@pytest.mark.parametrize("per_minute", [1, 7, 60, 600, 5_000])
@pytest.mark.parametrize("processes", [2, 5])
async def test_processes_together_stay_within_the_documented_bound(
    per_minute: int, processes: int
) -> None:
    """At most L + L * t / 60 + P * B in any interval, and L + L * t / 60 from the beginning."""
    chance, watch = seeded(), Watch()
    database = SharedBuckets(watch)
    servers = [RateLimits(database, monotonic=watch) for _ in range(processes)]
    block, rate = block_of(per_minute), per_minute / 60
    admitted: list[float] = []
    requests = 0
    while requests < 6_000:
        watch.seconds += chance.choice(
            [0.0, 0.0, 0.0, chance.random() / rate, 30 * chance.random()]
        )
        server = chance.choice(servers)
        for _ in range(chance.randint(1, 3 * block)):
            requests += 1
            if await admits(server, per_minute):
                admitted.append(watch.seconds)
    slack = 1e-6
    # The tightest lower envelope so far stands for every interval that ends now.
    lowest = float("inf")
    for count, at in enumerate(admitted):
        lowest = min(lowest, count - rate * at)
        in_interval = count + 1 - rate * at - lowest
        assert in_interval <= per_minute + processes * block + slack
        assert count + 1 <= per_minute + rate * at + slack
    assert len(admitted) >= min(per_minute, requests) - processes * block


async def test_most_requests_cost_no_round_trip() -> None:
    watch = Watch()
    database = SharedBuckets(watch)
    buckets = RateLimits(database, monotonic=watch)
    for _ in range(600):
        assert await admits(buckets, 600)
    assert database.leases == 20
    for _ in range(1_000):
        watch.seconds += 0.0005
        await admits(buckets, 600)
    assert database.leases <= 26


async def test_refusals_by_other_processes_cost_one_round_trip_a_second() -> None:
    watch = Watch()
    database = SharedBuckets(watch)
    busy, other = (RateLimits(database, monotonic=watch) for _ in range(2))
    while await admits(busy, 600):
        pass
    database.leases = 0
    assert not any([await admits(other, 600) for _ in range(500)])
    assert database.leases == 1


async def test_without_the_database_each_process_applies_the_limit_itself() -> None:
    watch = Watch()
    database = SharedBuckets(watch)
    database.is_away = True
    servers = [RateLimits(database, monotonic=watch) for _ in range(2)]
    for server in servers:
        assert [await admits(server, 5) for _ in range(7)] == [True] * 5 + [False] * 2
    assert database.leases == 2
    # The outage ends: the shared limit applies again after the pause.
    database.is_away = False
    watch.seconds += 60
    passed = [await admits(server, 5) for _ in range(5) for server in servers]
    assert sum(passed) == 5


async def test_a_database_that_hangs_blocks_nobody_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rate_limits, "MAX_WAIT_SECONDS", 0.01)
    released = asyncio.Event()
    leases = 0

    async def hanging(name: str, per_minute: int, wanted: int) -> tuple[int, float]:
        nonlocal leases
        leases += 1
        await released.wait()
        return wanted, 0.0

    watch = Watch()
    buckets = RateLimits(hanging, monotonic=watch)
    assert [await admits(buckets, 3) for _ in range(4)] == [True, True, True, False]
    assert leases == 1
    released.set()


async def test_concurrent_requests_share_a_lease() -> None:
    watch = Watch()
    database = SharedBuckets(watch)
    buckets = RateLimits(slowly(database), monotonic=watch)
    passed = await asyncio.gather(*(admits(buckets, 600) for _ in range(700)))
    assert sum(passed) == 600
    assert database.leases == 20


def slowly(lease: rate_limits.Lease) -> rate_limits.Lease:
    async def later(name: str, per_minute: int, wanted: int) -> tuple[int, float]:
        await asyncio.sleep(0)
        answer: Awaitable[tuple[int, float]] = lease(name, per_minute, wanted)
        return await answer

    return later


async def test_a_new_limit_applies_at_once() -> None:
    watch = Watch()
    buckets = RateLimits(SharedBuckets(watch), monotonic=watch)
    while await admits(buckets, 2):
        pass
    watch.seconds += 1
    assert [await admits(buckets, 120) for _ in range(3)] == [True, True, False]
    watch.seconds += 60
    raised = await buckets.draw("a", 120)
    assert raised is not None
    assert (raised.limit, raised.remaining) == (120, 119)
    lowered = await buckets.draw("a", 10)
    assert lowered is not None
    assert (lowered.limit, lowered.remaining) == (10, 9)


@pytest.mark.parametrize(
    ("address", "counts_as"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("not an address", "not an address"),
        ("x" * 10_000, "x" * 64),
    ],
)
async def test_one_network_of_an_ipv6_user_counts_as_one_address(
    address: str, counts_as: str
) -> None:
    assert network_of(address) == counts_as
