"""A clock for the budget that a test turns, and short ways to ask."""

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


class Hands:
    """The hands of the clock that decides. Sleeping turns them."""

    def __init__(self, conn: AsyncConnection[TupleRow], at: datetime) -> None:
        self.conn = conn
        self.at = at

    async def turn_to(self, at: datetime) -> None:
        self.at = at
        await self.conn.execute("UPDATE budget.hands SET at = %s", [at])

    async def advance(self, seconds: float) -> None:
        await self.turn_to(self.at + timedelta(seconds=seconds))

    async def sleep(self, seconds: float) -> None:
        """For Budget: a wait passes at once. A microsecond more, for what rounding cut off."""
        await self.advance(seconds + 1e-6)


@contextlib.asynccontextmanager
async def hands_on(store: Store, at: datetime = NOON) -> AsyncIterator[Hands]:
    """Put another clock into the database, and hold its hands."""
    async with await connect(store.url) as conn:
        await conn.execute("CREATE UNLOGGED TABLE budget.hands (at timestamptz NOT NULL)")
        await conn.execute("INSERT INTO budget.hands VALUES (%s)", [at])
        await conn.execute(
            "CREATE OR REPLACE FUNCTION budget.now() RETURNS timestamptz LANGUAGE sql"
            " VOLATILE AS 'SELECT at FROM budget.hands'"
        )
        yield Hands(conn, at)


@contextlib.asynccontextmanager
async def budget_of(store: Store, hands: Hands, upstream: Upstream) -> AsyncIterator[Budget]:
    async with Budget(store, upstream, sleep=hands.sleep) as budget:
        yield budget


async def verdict(hands: Hands, upstream: str, lane: str, **more: Any) -> tuple[str, str | None]:
    """What the database says to one question, without waiting."""
    answer = await asked(hands, upstream, lane, **more)
    return answer["verdict"], answer["reason"]


async def asked(
    hands: Hands,
    upstream: str,
    lane: str,
    cost: int = 1,
    endpoint: str | None = None,
    job: str = "job",
) -> dict[str, Any]:
    cursor = await hands.conn.execute(
        "SELECT verdict, reason, wait, until, request FROM budget.acquire("
        "%s, %s, %s, %s, %s, NULL, 0)",
        [upstream, lane, cost, endpoint, job],
    )
    row = await cursor.fetchone()
    assert row is not None
    return dict(zip(("verdict", "reason", "wait", "until", "request"), row, strict=True))


async def take_all(budget: Budget, lane: str, most: int = 100_000, **more: Any) -> int:
    """Acquire until it is refused; how many there were."""
    taken = 0
    while taken < most:
        try:
            await budget.acquire(lane, job=more.pop("job", "job"), **more)
        except OutOfQuotaError:
            return taken
        taken += 1
    return taken


async def drain(hands: Hands, upstream: Upstream, lane: str) -> int:
    """Ask until it is refused, waiting exactly as long as told; how many were granted."""
    granted = 0
    await declare(hands.conn, upstream)
    while True:
        answer = await asked(hands, upstream.name, lane)
        if answer["verdict"] == "refused":
            return granted
        if answer["verdict"] == "wait":
            await hands.sleep(answer["wait"])
        granted += answer["verdict"] == "granted"
