"""A controlled clock for the budget, and helpers to acquire grants."""

import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from hasat.budget import Budget, Upstream, declare
from hasat.errors import OutOfQuotaError
from hasat.store import Store
from hasat.store.store import connect

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)


class FakeBudgetClock:
    """The clock of the budget functions; sleeping advances it."""

    def __init__(self, conn: AsyncConnection[TupleRow], at: datetime) -> None:
        self.conn = conn
        self.at = at

    async def turn_to(self, at: datetime) -> None:
        self.at = at
        await self.conn.execute("UPDATE budget.fake_clock SET at = %s", [at])

    async def advance(self, seconds: float) -> None:
        await self.turn_to(self.at + timedelta(seconds=seconds))

    async def sleep(self, seconds: float) -> None:
        """Advance the clock instead of waiting, by a microsecond more to cover rounding."""
        await self.advance(seconds + 1e-6)


@contextlib.asynccontextmanager
async def fake_budget_clock(store: Store, at: datetime = NOON) -> AsyncIterator[FakeBudgetClock]:
    """Replace the clock of the budget functions in the database."""
    async with await connect(store.url) as conn:
        await conn.execute("CREATE UNLOGGED TABLE budget.fake_clock (at timestamptz NOT NULL)")
        await conn.execute("INSERT INTO budget.fake_clock VALUES (%s)", [at])
        await conn.execute(
            "CREATE OR REPLACE FUNCTION budget.now() RETURNS timestamptz LANGUAGE sql"
            " VOLATILE AS 'SELECT at FROM budget.fake_clock'"
        )
        yield FakeBudgetClock(conn, at)


@contextlib.asynccontextmanager
async def budget_of(
    store: Store, clock: FakeBudgetClock, upstream: Upstream
) -> AsyncIterator[Budget]:
    async with Budget(store, upstream, sleep=clock.sleep) as budget:
        yield budget


async def verdict(
    clock: FakeBudgetClock, upstream: str, lane: str, **more: Any
) -> tuple[str, str | None]:
    """Return verdict and reason for one request, without waiting."""
    response = await acquire(clock, upstream, lane, **more)
    return response["verdict"], response["reason"]


async def acquire(
    clock: FakeBudgetClock,
    upstream: str,
    lane: str,
    cost: int = 1,
    endpoint: str | None = None,
    job: str = "job",
) -> dict[str, Any]:
    cursor = await clock.conn.execute(
        "SELECT verdict, reason, wait, until, request FROM budget.acquire("
        "%s, %s, %s, %s, %s, NULL, 0)",
        [upstream, lane, cost, endpoint, job],
    )
    row = await cursor.fetchone()
    assert row is not None
    return dict(zip(("verdict", "reason", "wait", "until", "request"), row, strict=True))


async def take_all(budget: Budget, lane: str, maximum: int = 100_000, **more: Any) -> int:
    """Acquire until it is refused; return the number of grants."""
    taken = 0
    while taken < maximum:
        try:
            await budget.acquire(lane, job=more.pop("job", "job"), **more)
        except OutOfQuotaError:
            return taken
        taken += 1
    return taken


async def drain(clock: FakeBudgetClock, upstream: Upstream, lane: str) -> int:
    """Request until it is refused, waiting exactly as long as stated; return the grants."""
    granted = 0
    await declare(clock.conn, upstream)
    while True:
        response = await acquire(clock, upstream.name, lane)
        if response["verdict"] == "refused":
            return granted
        if response["verdict"] == "wait":
            await clock.sleep(response["wait"])
        granted += response["verdict"] == "granted"
