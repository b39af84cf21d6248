"""One wrong response does not stop requests for a day; an exhausted day is rarely re-checked."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from hasat.budget import Budget, Grant, Lane, Upstream, read_quota, reopen
from hasat.errors import OutOfQuotaError
from hasat.store import Store
from support.budget_clock import NOON, FakeBudgetClock, fake_budget_clock

pytestmark = pytest.mark.anyio

UPSTREAM = Upstream("u", day_limit=1_000, lanes=(Lane("high", early=True),))
MINUTES = timedelta(minutes=1)


@pytest.fixture
async def clock(store: Store) -> AsyncIterator[FakeBudgetClock]:
    async with fake_budget_clock(store) as clock:
        yield clock


class Status:
    """The upstream's free status request."""

    def __init__(self, *, used_up: bool) -> None:
        self.used_up = used_up
        self.asked = 0

    async def __call__(self) -> bool:
        self.asked += 1
        return self.used_up


def budget_of(store: Store, clock: FakeBudgetClock, status: Status | None = None) -> Budget:
    return Budget(store, UPSTREAM, sleep=clock.sleep, is_used_up=status)


async def grant_of(budget: Budget) -> Grant | None:
    try:
        return await budget.acquire("high", job="job")
    except OutOfQuotaError:
        return None


async def close_the_day(budget: Budget) -> None:
    grant = await budget.acquire("high", job="job")
    await grant.settle("day_exhausted")


async def test_a_wrong_response_closes_the_day_for_a_quarter_of_an_hour(
    store: Store, clock: FakeBudgetClock
) -> None:
    status = Status(used_up=False)
    async with budget_of(store, clock, status) as budget:
        await close_the_day(budget)
        windows = (await read_quota(store, "u")).windows
        assert (windows.remaining, windows.recheck_at) == (0, NOON + 15 * MINUTES)
        await clock.turn_to(NOON + 14 * MINUTES)
        assert await grant_of(budget) is None
        assert status.asked == 0
        await clock.turn_to(NOON + 15 * MINUTES)
        first = await grant_of(budget)
        assert first is not None
        # Until its response is there the day stays closed for all others.
        assert await grant_of(budget) is None
        await first.settle("ok")
        assert await grant_of(budget) is not None
        assert (await read_quota(store, "u")).windows.recheck_at is None
    assert status.asked == 1


async def test_a_day_that_is_used_up_is_rechecked_a_handful_of_times_without_a_request(
    store: Store, clock: FakeBudgetClock
) -> None:
    status = Status(used_up=True)
    async with budget_of(store, clock, status) as budget:
        await clock.turn_to(NOON.replace(hour=0, minute=30))
        await close_the_day(budget)
        for minute in range(31, 24 * 60, 5):
            await clock.turn_to(NOON.replace(hour=0) + minute * MINUTES)
            assert await grant_of(budget) is None
        assert 4 <= status.asked <= 6
        assert (await read_quota(store, "u")).windows.spent == 1


async def test_without_a_status_request_one_request_rechecks_and_the_intervals_grow(
    store: Store, clock: FakeBudgetClock
) -> None:
    async with budget_of(store, clock) as budget:
        await clock.turn_to(NOON.replace(hour=0, minute=30))
        await close_the_day(budget)
        closed, granted = clock.at, []
        for minute in range(31, 24 * 60):
            await clock.turn_to(NOON.replace(hour=0) + minute * MINUTES)
            if grant := await grant_of(budget):
                granted.append(round((clock.at - closed) / MINUTES))
                await grant.settle("day_exhausted")
        assert granted == [15, 45, 105, 225, 465, 945]


async def test_after_a_second_closing_the_next_recheck_waits_longer(
    store: Store, clock: FakeBudgetClock
) -> None:
    async with budget_of(store, clock) as budget:
        await close_the_day(budget)
        await clock.turn_to(NOON + 15 * MINUTES)
        grant = await grant_of(budget)
        assert grant is not None
        await grant.settle("ok")
        await close_the_day(budget)
        assert (await read_quota(store, "u")).windows.recheck_at == NOON + 45 * MINUTES


@pytest.mark.parametrize("outcome", ["transient", "broken", "minute_limited", "cancelled"])
async def test_only_a_successful_response_reopens_the_day(
    store: Store, clock: FakeBudgetClock, outcome: str
) -> None:
    async with budget_of(store, clock) as budget:
        await close_the_day(budget)
        await clock.turn_to(NOON + 15 * MINUTES)
        grant = await grant_of(budget)
        assert grant is not None
        await grant.settle(outcome)
        assert await grant_of(budget) is None


async def test_several_processes_recheck_once_and_a_restart_does_not_begin_again(
    store: Store, clock: FakeBudgetClock
) -> None:
    statuses = [Status(used_up=False) for _ in range(4)]
    budgets = [budget_of(store, clock, status) for status in statuses]
    await close_the_day(budgets[0])
    await clock.turn_to(NOON + 20 * MINUTES)
    grants = await asyncio.gather(*(grant_of(budget) for budget in budgets for _ in range(5)))
    assert sum(grant is not None for grant in grants) == 1
    assert sum(status.asked for status in statuses) == 1
    # The process with the grant dies; another one continues at the next re-check.
    for budget in budgets:
        await budget.close()
    async with budget_of(store, clock, statuses[0]) as budget:
        assert await grant_of(budget) is None
        await clock.turn_to(NOON + 50 * MINUTES)
        grant = await grant_of(budget)
        assert grant is not None
        await grant.settle("empty")
        assert await grant_of(budget) is not None


async def test_a_recheck_never_exceeds_the_local_count(
    store: Store, clock: FakeBudgetClock
) -> None:
    async with budget_of(store, clock) as budget:
        last = await budget.acquire("high", job="job", cost=1_000)
        await last.settle("day_exhausted")
        await clock.turn_to(NOON + 30 * MINUTES)
        assert await grant_of(budget) is None
        assert (await read_quota(store, "u")).windows.spent == 1_000


async def test_an_operator_reopens_a_day(store: Store, clock: FakeBudgetClock) -> None:
    async with budget_of(store, clock) as budget:
        assert not await reopen(store, "u")
        await close_the_day(budget)
        assert await grant_of(budget) is None
        assert await reopen(store, "u")
        assert await grant_of(budget) is not None
        assert not await reopen(store, "u")
