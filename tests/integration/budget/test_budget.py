"""The rules of the budget, one by one, on a clock that the test controls."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from hasat.budget import Budget, EndpointLimit, Lane, Remaining, Upstream, declare, read_quota
from hasat.errors import OutOfQuotaError, UsageError
from hasat.store import Store
from support.budget_clock import (
    NOON,
    FakeBudgetClock,
    acquire,
    budget_of,
    drain,
    fake_budget_clock,
    take_all,
    verdict,
)

pytestmark = pytest.mark.anyio

HIGH = Lane("high", early=True)
BACKFILL = Lane("backfill", paced=True)


@pytest.fixture
async def clock(store: Store) -> AsyncIterator[FakeBudgetClock]:
    async with fake_budget_clock(store) as clock:
        yield clock


async def moments(store: Store) -> list[datetime]:
    async with store.connection() as conn:
        cursor = await conn.execute("SELECT at FROM budget.request ORDER BY id")
        return [row[0] for row in await cursor.fetchall()]


async def test_the_minute_window_starts_empty_and_is_never_exceeded(
    store: Store, clock: FakeBudgetClock
) -> None:
    upstream = Upstream("u", minute_limit=60, lanes=(HIGH,))
    async with budget_of(store, clock, upstream) as budget:
        began = clock.at
        for _ in range(70):
            await budget.acquire("high", job="job", timeout=1e9)
        # An hour of rest does not save up more than one slot.
        await clock.advance(3600)
        for _ in range(70):
            await budget.acquire("high", job="job", timeout=1e9)
    times = await moments(store)
    assert times[0] - began >= timedelta(seconds=1)
    for first in times:
        assert sum(first < t <= first + timedelta(seconds=60) for t in times) <= 60
    assert times[69] - times[0] < timedelta(seconds=73)


async def test_the_day_is_never_overdrawn_and_a_new_one_begins_by_itself(
    store: Store, clock: FakeBudgetClock
) -> None:
    upstream = Upstream("u", day_limit=50, lanes=(Lane("all", keep=10, early=True),))
    async with budget_of(store, clock, upstream) as budget:
        assert await take_all(budget, "all") == 40
        with pytest.raises(OutOfQuotaError) as refused:
            await budget.acquire("all", job="job")
        assert refused.value.until == datetime(2026, 3, 11, tzinfo=UTC)
        assert refused.value.exit_code == 5
        assert "2026-03-11 00:00:00 UTC" in str(refused.value)
        await clock.turn_to(datetime(2026, 3, 10, 23, 59, 59, 999_999, tzinfo=UTC))
        assert await take_all(budget, "all") == 0
        await clock.turn_to(datetime(2026, 3, 11, tzinfo=UTC))
        assert await take_all(budget, "all") == 40


async def test_costs_count_against_the_day(store: Store, clock: FakeBudgetClock) -> None:
    upstream = Upstream("u", day_limit=50, lanes=(HIGH,))
    async with budget_of(store, clock, upstream) as budget:
        await budget.acquire("high", job="job", cost=31)
        with pytest.raises(OutOfQuotaError):
            await budget.acquire("high", job="job", cost=20)
        await budget.acquire("high", job="job", cost=19)
        with pytest.raises(UsageError):
            await budget.acquire("high", job="job", cost=0)
        with pytest.raises(UsageError, match="no lane 'low'"):
            await budget.acquire("low", job="job")


@pytest.mark.parametrize(
    ("zone", "before", "length"),
    [
        ("Europe/Berlin", datetime(2026, 3, 28, 23, 0, tzinfo=UTC), 23),
        ("Europe/Berlin", datetime(2026, 10, 24, 22, 0, tzinfo=UTC), 25),
        ("America/Havana", datetime(2026, 11, 1, 4, 0, tzinfo=UTC), 25),
        ("America/Santiago", datetime(2026, 9, 6, 4, 0, tzinfo=UTC), 23),
        ("Europe/Istanbul", datetime(2026, 3, 28, 21, 0, tzinfo=UTC), 24),
    ],
)
async def test_a_quota_day_is_as_long_as_in_the_upstreams_zone(
    store: Store, clock: FakeBudgetClock, zone: str, before: datetime, length: int
) -> None:
    await clock.turn_to(before)
    upstream = Upstream("u", zone=zone, day_limit=3, lanes=(HIGH,))
    async with budget_of(store, clock, upstream) as budget:
        assert await take_all(budget, "high") == 3
        for minutes in range(0, length * 60, 50):
            await clock.turn_to(before + timedelta(minutes=minutes))
            assert await verdict(clock, "u", "high") == ("refused", "spent"), minutes
        await clock.turn_to(before + timedelta(hours=length))
        assert await take_all(budget, "high") == 3


async def test_backfill_is_spread_over_the_day_and_reaches_the_target(
    store: Store, clock: FakeBudgetClock
) -> None:
    await clock.turn_to(datetime(2026, 3, 10, tzinfo=UTC))
    lanes = (Lane("high", keep=10, early=True), Lane("backfill", keep=10, paced=True))
    upstream = Upstream("u", day_limit=300, target=0.9, minute_limit=60, lanes=lanes)
    taken = await drain(clock, upstream, "backfill")
    times = await moments(store)
    assert taken == len(times) == 270
    assert times[-1] < datetime(2026, 3, 11, tzinfo=UTC)
    by_hour = [sum(t.hour == hour for t in times) for hour in range(24)]
    assert max(by_hour) <= 13
    assert min(by_hour) >= 8
    assert times[0] >= datetime(2026, 3, 10, 0, 10, tzinfo=UTC)
    assert times[-1] >= datetime(2026, 3, 10, 23, 45, tzinfo=UTC)


async def test_backfill_that_starts_late_is_spread_over_what_is_left(
    store: Store, clock: FakeBudgetClock
) -> None:
    await clock.turn_to(datetime(2026, 3, 10, 18, tzinfo=UTC))
    upstream = Upstream("u", day_limit=200, minute_limit=60, lanes=(HIGH, BACKFILL))
    assert await drain(clock, upstream, "backfill") == 180
    times = await moments(store)
    by_hour = [sum(t.hour == hour for t in times) for hour in range(18, 24)]
    assert max(by_hour) <= 34


async def test_lanes_leave_the_needs_of_higher_lanes(store: Store, clock: FakeBudgetClock) -> None:
    lanes = (Lane("high", needs=48, early=True), Lane("low"), BACKFILL)
    upstream = Upstream("u", day_limit=100, lanes=lanes)
    async with budget_of(store, clock, upstream) as budget:
        # Noon: half of the 48 are still to come.
        assert await take_all(budget, "low") == 76
        assert await verdict(clock, "u", "low") == ("refused", "reserved")
        assert await verdict(clock, "u", "backfill") == ("refused", "reserved")
        assert await take_all(budget, "high", maximum=12) == 12
        await clock.turn_to(datetime(2026, 3, 10, 18, tzinfo=UTC))
        # 12 of the 48 are still to come, and 12 are left.
        assert await verdict(clock, "u", "low") == ("refused", "reserved")
        await clock.turn_to(datetime(2026, 3, 10, 21, tzinfo=UTC))
        assert await take_all(budget, "low") == 6
        assert await take_all(budget, "high") == 6


async def test_needs_are_learned_from_the_days_before(store: Store, clock: FakeBudgetClock) -> None:
    upstream = Upstream("u", day_limit=100, lanes=(HIGH, Lane("low", early=True)))
    async with budget_of(store, clock, upstream) as budget:
        for day in (8, 9):
            for hour, count in ((2, 10), (20, 6)):
                await clock.turn_to(datetime(2026, 3, day, hour, tzinfo=UTC))
                assert await take_all(budget, "high", maximum=count) == count
        await clock.turn_to(datetime(2026, 3, 10, 1, tzinfo=UTC))
        assert (await read_quota(store, "u")).lanes[1].kept_for_others in (0, 16)
        await budget.acquire("high", job="job")
        assert (await read_quota(store, "u")).lanes[1].kept_for_others == 16
        await clock.turn_to(datetime(2026, 3, 10, 12, tzinfo=UTC))
        assert (await read_quota(store, "u")).lanes[1].kept_for_others == 6
        assert await take_all(budget, "low") == 100 - 1 - 6


async def test_a_lane_leaves_its_reserve(store: Store, clock: FakeBudgetClock) -> None:
    lanes = (
        Lane("high", keep=15, early=True),
        Lane("verify", keep=100, paced=True, early=True),
    )
    upstream = Upstream("u", day_limit=150, minute_limit=600, lanes=lanes)
    assert await drain(clock, upstream, "verify") == 50
    assert await drain(clock, upstream, "high") == 150 - 50 - 15


async def test_a_smaller_plan_makes_reserves_and_promises_smaller(
    store: Store, clock: FakeBudgetClock
) -> None:
    lanes = (
        Lane("high", keep=7_500, keep_share=0.1, needs=1_500, early=True),
        Lane("low", keep=7_500, keep_share=0.1),
        Lane("sworn", keep=30),
    )
    upstream = Upstream("u", day_limit=75_000, lanes=lanes)
    async with budget_of(store, clock, upstream) as budget:
        grant = await budget.acquire("low", job="job")
        await grant.settle("ok", Remaining(day=99, day_limit=100))
        # Half of the day is over: one in a thousand of half of what was promised for 75,000.
        assert await take_all(budget, "sworn") == 100 - 1 - 30 - 1
        assert await take_all(budget, "low") == 30 + 1 - 10 - 1
        assert await take_all(budget, "high") == 1
    kept = {lane.name: lane.keep for lane in (await read_quota(store, "u")).lanes}
    assert kept == {"high": 10, "low": 10, "sworn": 30}


async def test_the_first_minutes_belong_to_early_lanes(
    store: Store, clock: FakeBudgetClock
) -> None:
    await clock.turn_to(datetime(2026, 3, 11, 0, 3, tzinfo=UTC))
    upstream = Upstream("u", day_limit=100, lanes=(HIGH, Lane("low"), BACKFILL))
    async with budget_of(store, clock, upstream) as budget:
        await budget.acquire("high", job="job")
        with pytest.raises(OutOfQuotaError, match="first minutes"):
            await budget.acquire("low", job="job", timeout=30)
        with pytest.raises(OutOfQuotaError):
            await budget.acquire("backfill", job="job", timeout=30)
        answer = await acquire(clock, "u", "low")
        assert answer["until"] == datetime(2026, 3, 11, 0, 10, tzinfo=UTC)
        await budget.acquire("low", job="job", timeout=1e9)
        assert clock.at >= datetime(2026, 3, 11, 0, 10, tzinfo=UTC)


async def test_a_waiting_high_lane_gets_the_next_slot(store: Store, clock: FakeBudgetClock) -> None:
    upstream = Upstream("u", minute_limit=15, lanes=(HIGH, Lane("low")))
    await declare(clock.conn, upstream)
    assert (await acquire(clock, "u", "low"))["verdict"] == "wait"
    assert (await acquire(clock, "u", "high"))["verdict"] == "wait"
    await clock.advance(4.001)
    assert await verdict(clock, "u", "low") == ("wait", "turn")
    assert await verdict(clock, "u", "high") == ("granted", None)
    await clock.advance(4.001)
    assert await verdict(clock, "u", "low") == ("granted", None)


async def test_a_dead_waiter_does_not_block_other_lanes(
    store: Store, clock: FakeBudgetClock
) -> None:
    upstream = Upstream("u", minute_limit=60, lanes=(HIGH, Lane("low")))
    await declare(clock.conn, upstream)
    assert (await acquire(clock, "u", "high"))["verdict"] == "wait"
    await clock.advance(2.1)
    assert await verdict(clock, "u", "low") == ("granted", None)


async def test_a_lower_paced_lane_has_its_share_while_the_higher_is_busy(
    store: Store, clock: FakeBudgetClock
) -> None:
    lanes = (HIGH, BACKFILL, Lane("verify", paced=True, share=0.1))
    upstream = Upstream("u", day_limit=100_000, minute_limit=600, lanes=lanes)
    await declare(clock.conn, upstream)
    granted = {"backfill": 0, "verify": 0}
    for _ in range(300):
        await clock.advance(0.5)
        for lane in granted:
            granted[lane] += await verdict(clock, "u", lane) == ("granted", None)
            # Still more to do: it waits for the next slot already.
            await verdict(clock, "u", lane)
    assert granted["backfill"] > 20
    assert 0.05 < granted["verify"] / sum(granted.values()) < 0.2


async def test_headers_lower_what_is_left_and_never_raise_it(
    store: Store, clock: FakeBudgetClock
) -> None:
    upstream = Upstream("u", day_limit=100, lanes=(HIGH,))
    async with budget_of(store, clock, upstream) as budget:

        async def left_after(headers: Remaining, outcome: str = "ok") -> int | None:
            grant = await budget.acquire("high", job="job")
            assert await grant.settle(outcome, headers)
            return (await read_quota(store, "u")).windows.remaining

        assert await left_after(Remaining(day=99)) == 99
        assert await left_after(Remaining()) == 98
        assert await left_after(Remaining(day=60)) == 60
        assert (await read_quota(store, "u")).windows.foreign_use == 37
        assert await left_after(Remaining(day=99)) == 59
        assert await left_after(Remaining(), "transient") == 58
        await clock.turn_to(NOON + timedelta(days=1))
        # The stated limit is smaller than the configured one.
        assert await left_after(Remaining(day=49, day_limit=50)) == 49
        assert await left_after(Remaining(day=9_999, day_limit=10_000)) == 48
        quota = await read_quota(store, "u")
        assert (quota.windows.plan, quota.windows.foreign_use) == (50, 0)


async def test_a_daily_limit_response_stops_the_day_whatever_the_headers_say(
    store: Store, clock: FakeBudgetClock
) -> None:
    upstream = Upstream("u", day_limit=7500, lanes=(HIGH,))
    async with budget_of(store, clock, upstream) as budget:
        grant = await budget.acquire("high", job="job")
        await grant.settle("day_exhausted", Remaining(day=7499, day_limit=7500))
        for _ in range(3):
            with pytest.raises(OutOfQuotaError, match="used up"):
                await budget.acquire("high", job="job", timeout=1e9)
        assert (await read_quota(store, "u")).windows.remaining == 0
        # Nobody restarts anything: the new day is a new row.
        await clock.turn_to(datetime(2026, 3, 11, tzinfo=UTC))
        await budget.acquire("high", job="job")


async def test_yesterdays_count_does_not_end_the_new_day(
    store: Store, clock: FakeBudgetClock
) -> None:
    upstream = Upstream("u", day_limit=1000, lanes=(HIGH,))
    async with budget_of(store, clock, upstream) as budget:
        late = await budget.acquire("high", job="job")
        await clock.turn_to(datetime(2026, 3, 11, 0, 0, 20, tzinfo=UTC))
        first = await budget.acquire("high", job="job")
        await late.settle("ok", Remaining(day=3))
        await first.settle("day_exhausted", Remaining(day=0))
        assert (await read_quota(store, "u")).windows.remaining == 999
        # The upstream's day turns a little later than ours: rest until the opening is over.
        assert await verdict(clock, "u", "high") == ("wait", "paused")
        await clock.turn_to(datetime(2026, 3, 11, 0, 10, tzinfo=UTC))
        again = await budget.acquire("high", job="job")
        await again.settle("day_exhausted")
        assert await verdict(clock, "u", "high") == ("refused", "exhausted")


async def test_a_minute_limit_response_pauses_and_slows_all_processes(
    store: Store, clock: FakeBudgetClock
) -> None:
    upstream = Upstream("u", minute_limit=101, lanes=(HIGH,))
    async with budget_of(store, clock, upstream) as budget, Budget(store, upstream) as other:
        together = [await budget.acquire("high", job="job") for _ in range(4)]
        for grant in together:
            await grant.settle("minute_limited")
        with pytest.raises(OutOfQuotaError, match="pause"):
            await other.acquire("high", job="job", timeout=1)
        await clock.advance(60)
        rates = []
        for _ in range(7):
            rates.append(round((await read_quota(store, "u")).windows.minute_rate or 0, 1))
            await clock.advance(60)
        # Halved once, not once for each answer; then a tenth more each minute.
        assert rates == [60.6, 70.7, 80.8, 90.9, 101, 101, 101]
        again = await budget.acquire("high", job="job")
        await again.settle("minute_limited", retry_after=5)
        answer = await acquire(clock, "u", "high")
        assert (answer["reason"], round(answer["wait"])) == ("paused", 5)


async def test_the_minutes_own_headers_count_too(store: Store, clock: FakeBudgetClock) -> None:
    upstream = Upstream("u", minute_limit=280, minute_hard=300, lanes=(HIGH,))
    async with budget_of(store, clock, upstream) as budget:
        grant = await budget.acquire("high", job="job")
        await grant.settle("ok", Remaining(minute=250, minute_limit=300))
        assert (await acquire(clock, "u", "high"))["wait"] < 0.25
        await clock.advance(1)
        grant = await budget.acquire("high", job="job")
        # Somebody else uses the key: hardly anything is left of the minute.
        await grant.settle("ok", Remaining(minute=2, minute_limit=150))
        answer = await acquire(clock, "u", "high")
        assert answer["verdict"] == "wait"
        assert answer["wait"] > 9
        assert (await read_quota(store, "u")).windows.minute_rate == 140


async def test_limits_that_the_upstream_states_are_shown_also_where_they_are_higher(
    store: Store, clock: FakeBudgetClock
) -> None:
    upstream = Upstream("u", day_limit=100, minute_limit=280, minute_hard=300, lanes=(HIGH,))
    async with budget_of(store, clock, upstream) as budget:
        grant = await budget.acquire("high", job="job")
        await grant.settle("ok", Remaining(199, 449, day_limit=200, minute_limit=450))
        windows = (await read_quota(store, "u")).windows
        assert (windows.plan, windows.minute_plan) == (200, 450)
        # What is configured rules where it is less.
        assert (windows.remaining, windows.minute_rate) == (99, 280)


async def test_a_small_plan_is_used_at_its_own_rate(store: Store, clock: FakeBudgetClock) -> None:
    upstream = Upstream("u", minute_limit=280, minute_hard=300, lanes=(HIGH,))
    async with budget_of(store, clock, upstream) as budget:
        grant = await budget.acquire("high", job="job")
        await grant.settle("ok", Remaining(minute=9, minute_limit=10))
        # 280 of 300 are 9.3 of 10, evenly spaced.
        assert (await acquire(clock, "u", "high"))["wait"] < 7
        await clock.advance(7)
        grant = await budget.acquire("high", job="job")
        await grant.settle("ok", Remaining(minute=0, minute_limit=10))
        assert (await acquire(clock, "u", "high"))["wait"] > 9


async def test_slow_responses_slow_all_processes(store: Store, clock: FakeBudgetClock) -> None:
    upstream = Upstream("u", minute_limit=100, lanes=(HIGH,))
    async with budget_of(store, clock, upstream) as budget:
        await budget.acquire("high", job="job")
        await budget.slow_down(0.8)
        assert (await read_quota(store, "u")).windows.minute_rate == 80


async def test_a_request_without_a_response_is_spent(store: Store, clock: FakeBudgetClock) -> None:
    upstream = Upstream("u", day_limit=3, lanes=(HIGH,))
    async with budget_of(store, clock, upstream) as budget:
        assert await take_all(budget, "high") == 3
    async with budget_of(store, clock, upstream) as another:
        assert await take_all(another, "high") == 0
    quota = await read_quota(store, "u")
    assert [(o.outcome, o.requests) for o in quota.outcomes] == [(None, 3)]


async def test_endpoints_have_their_own_daily_limit_and_spacing(
    store: Store, clock: FakeBudgetClock
) -> None:
    upstream = Upstream(
        "u",
        zone="Europe/Istanbul",
        each_endpoint=EndpointLimit(day=40, seconds=0.2),
        endpoints={"b": EndpointLimit(day=20, seconds=1)},
        lanes=(HIGH, BACKFILL),
    )
    async with budget_of(store, clock, upstream) as budget:
        await budget.acquire("high", job="job", cost=20, endpoint="a")
        assert (await acquire(clock, "u", "high", endpoint="a"))["reason"] == "endpoint"
        await budget.acquire("high", job="job", cost=20, endpoint="b")
        began = clock.at
        await budget.acquire("high", job="job", cost=20, endpoint="a")
        assert clock.at - began <= timedelta(seconds=0.21)
        for name in ("a", "b"):
            with pytest.raises(OutOfQuotaError, match="this endpoint") as refused:
                await budget.acquire("high", job="job", endpoint=name)
            assert refused.value.until == datetime(2026, 3, 10, 21, tzinfo=UTC)
        grant = await budget.acquire("high", job="job", endpoint="c")
        await grant.settle("day_exhausted")
        assert await verdict(clock, "u", "high", endpoint="c") == ("refused", "endpoint_exhausted")
        grant = await budget.acquire("high", job="job", endpoint="d")
        await grant.settle("minute_limited", retry_after=30)
        answer = await acquire(clock, "u", "high", endpoint="d")
        assert (answer["reason"], round(answer["wait"])) == ("endpoint", 30)
        await budget.acquire("high", job="job", endpoint="e")
        await clock.turn_to(datetime(2026, 3, 10, 21, tzinfo=UTC))
        for name in "abcde":
            await budget.acquire("high", job="job", endpoint=name)


async def test_shadow_mode_counts_and_refuses_nothing(store: Store, clock: FakeBudgetClock) -> None:
    upstream = Upstream("u", day_limit=5, minute_limit=60, lanes=(HIGH, BACKFILL), shadow=True)
    async with budget_of(store, clock, upstream) as budget:
        for lane in ("high", "backfill") * 5:
            assert (await budget.acquire(lane, job="job")).waited < 1
    quota = await read_quota(store, "u")
    assert (quota.windows.spent, quota.windows.remaining) == (10, 0)
    async with store.connection() as conn:
        cursor = await conn.execute("SELECT DISTINCT would_have FROM budget.request")
        assert {"minute", "spent"} <= {row[0] for row in await cursor.fetchall()}


async def test_the_ledger_shows_the_cost_of_a_job(store: Store, clock: FakeBudgetClock) -> None:
    upstream = Upstream("u", day_limit=100, lanes=(HIGH, Lane("low")))
    async with budget_of(store, clock, upstream) as budget:
        for job, lane, cost in (("a", "high", 1), ("a", "high", 2), ("b", "low", 5)):
            grant = await budget.acquire(lane, job=job, cost=cost, endpoint="/x", run=7)
            assert await grant.settle("ok", latency=0.25)
            assert not await grant.settle("broken"), "settled once"
        await take_all(budget, "low", cost=200)
    quota = await read_quota(store, "u")
    assert [(s.job, s.lane, s.spent, s.grants) for s in quota.spenders] == [
        ("b", "low", 5, 1),
        ("a", "high", 3, 2),
        ("job", "low", 0, 0),
    ]
    assert [lane.refusals for lane in quota.lanes] == [0, 1]
    assert [(o.outcome, o.requests, o.spent, o.median_ms) for o in quota.outcomes] == [
        ("ok", 3, 8, 250)
    ]


async def test_waiting_blocks_nothing_and_can_be_cancelled(store: Store) -> None:
    """The database's own clock here: the event loop has to go on while grants are waited for."""
    upstream = Upstream("u", minute_limit=60, lanes=(HIGH,))
    async with Budget(store, upstream) as budget:
        waiting = [asyncio.create_task(budget.acquire("high", job="job")) for _ in range(5)]
        turns = 0
        while not waiting[0].done():
            await asyncio.sleep(0.01)
            turns += 1
        assert turns > 3
        for task in waiting[1:]:
            task.cancel()
        for task in waiting[1:]:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        # The line is free again.
        await budget.acquire("high", job="job")


async def test_new_rules_keep_the_count_and_lost_ones_are_declared_again(
    store: Store, clock: FakeBudgetClock
) -> None:
    lanes = (HIGH,)
    async with budget_of(store, clock, Upstream("u", day_limit=10, lanes=lanes)) as budget:
        assert await take_all(budget, "high") == 10
        async with budget_of(store, clock, Upstream("u", day_limit=15, lanes=lanes)) as later:
            assert await take_all(later, "high") == 5
        async with store.connection() as conn:
            await conn.execute("DELETE FROM budget.upstream")
        with pytest.raises(OutOfQuotaError):
            await budget.acquire("high", job="job")


async def test_connections_that_are_cut_one_after_another_lose_no_response(
    store: Store, clock: FakeBudgetClock
) -> None:
    upstream = Upstream("u", minute_limit=600, lanes=(HIGH,))
    async with budget_of(store, clock, upstream) as budget:
        grant = await budget.acquire("high", job="job")
        async with store.connection() as conn:
            # A sequence remembers what a transaction that was cut off did.
            await conn.execute("""
                CREATE SEQUENCE cut;
                CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN
                    IF nextval('cut') <= 3 THEN
                        PERFORM pg_terminate_backend(pg_backend_pid());
                    END IF;
                    RETURN NEW;
                END $$;
                CREATE TRIGGER cut BEFORE UPDATE ON budget.request
                FOR EACH ROW EXECUTE FUNCTION cut();
            """)
        assert await grant.settle("ok")
        async with store.connection() as conn:
            cursor = await conn.execute("SELECT last_value FROM cut")
            assert await cursor.fetchone() == (4,)
        quota = await read_quota(store, "u")
        assert [(o.outcome, o.requests) for o in quota.outcomes] == [("ok", 1)]


async def test_old_rows_are_deleted_when_a_day_begins(store: Store, clock: FakeBudgetClock) -> None:
    async with budget_of(store, clock, Upstream("u", day_limit=10, lanes=(HIGH,))) as budget:
        await budget.acquire("high", job="job")
        await clock.advance(86_400 * 15)
        await budget.acquire("high", job="job")
        assert len(await moments(store)) == 1
        await clock.advance(86_400 * 401)
        await budget.acquire("high", job="job")
    async with store.connection() as conn:
        cursor = await conn.execute("SELECT count(*) FROM budget.day")
        assert await cursor.fetchone() == (1,)


async def test_concurrent_first_requests_of_a_day_do_not_deadlock(store: Store) -> None:
    async with contextlib.AsyncExitStack() as stack:
        connections = [
            await stack.enter_async_context(
                await psycopg.AsyncConnection.connect(store.url, autocommit=True)
            )
            for _ in range(6)
        ]
        for number in range(60):
            upstream = Upstream(f"u{number}", lanes=(HIGH,))
            async with store.connection() as conn:
                await declare(conn, upstream)
            verdicts = await asyncio.gather(
                *(
                    connection.execute(
                        "SELECT verdict FROM budget.acquire(%s, 'high', 1, NULL, 'job', NULL, 0)",
                        [upstream.name],
                    )
                    for connection in connections
                )
            )
            assert [await cursor.fetchone() for cursor in verdicts] == [("granted",)] * 6
