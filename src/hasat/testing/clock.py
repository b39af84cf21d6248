"""A database whose clock a test holds in its hands, with the simulated upstreams' clock beside it.

Everything that decides asks the database for the time by `clock_timestamp()` or `now()`. Functions
of these names in a schema that is looked in first take their place, for every process that
connects afterwards; nothing else about the server changes. The clock stands still unless it is
turned, so that a slow machine changes nothing about what happens when.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

from psycopg import AsyncConnection, sql

from hasat.sim.clock import TurnableClock
from hasat.store.store import connect

_FUNCTION = """
CREATE FUNCTION hands.{}() RETURNS timestamptz LANGUAGE sql {} AS 'SELECT at FROM hands.clock'
"""


class Hands:
    """Turns a database's clock and those of simulations, together and never back."""

    def __init__(
        self, conn: AsyncConnection[Any], at: datetime, clocks: Sequence[TurnableClock]
    ) -> None:
        self._conn = conn
        self._clocks = clocks
        self.now = at

    async def turn_to(self, moment: datetime) -> None:
        """Jump forward to a moment; one that has passed changes nothing."""
        if moment <= self.now:
            return
        self.now = moment
        await self._conn.execute("UPDATE hands.clock SET at = %s", [moment])
        for clock in self._clocks:
            clock.turn_to(moment)

    async def sleep(self, seconds: float) -> None:
        """For whatever takes a `sleep`: the wait passes at once, and a bit for what is rounded."""
        await self.turn_to(self.now + timedelta(seconds=seconds, microseconds=1))


@asynccontextmanager
async def hands_on(url: str, start: datetime, *clocks: TurnableClock) -> AsyncIterator[Hands]:
    """Put another clock into a throw-away database, and stop those of simulations beside it."""
    async with await connect(url) as conn:
        await conn.execute("CREATE SCHEMA hands")
        await conn.execute("CREATE UNLOGGED TABLE hands.clock (at timestamptz NOT NULL)")
        await conn.execute("INSERT INTO hands.clock VALUES (%s)", [start])
        for name, volatility in (("clock_timestamp", "VOLATILE"), ("now", "STABLE")):
            await conn.execute(sql.SQL(_FUNCTION).format(sql.Identifier(name), sql.SQL(volatility)))
        await conn.execute(
            sql.SQL("ALTER DATABASE {} SET search_path = hands, pg_catalog, public").format(
                sql.Identifier(conn.info.dbname)
            )
        )
        for clock in clocks:
            clock.run_at(0)
            clock.turn_to(start)
        yield Hands(conn, start, clocks)
