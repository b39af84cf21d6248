"""A database whose clock a test holds in its hands, with the simulated upstreams' clock beside it.

Everything that decides asks the database for the time by `clock_timestamp()` or `now()`. Functions
of these names in a schema that is looked in first take their place, for every process that
connects afterwards; nothing else about the server changes.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection, sql

from hasat.sim.clock import TurnableClock
from hasat.store.store import connect

_FUNCTION = """
CREATE FUNCTION hands.{0}() RETURNS timestamptz LANGUAGE sql {1}
    AS 'SELECT base + (pg_catalog.{0}() - since) * speed FROM hands.clock'
"""


class Hands:
    """Turns a database's clock and those of simulations, together and never back."""

    def __init__(
        self, conn: AsyncConnection[Any], clocks: Sequence[TurnableClock], speed: float
    ) -> None:
        self._conn = conn
        self._clocks = clocks
        self._speed = speed

    async def now(self) -> datetime:
        cursor = await self._conn.execute("SELECT hands.clock_timestamp()")
        row = await cursor.fetchone()
        assert row is not None
        moment: datetime = row[0]
        return moment

    async def sleep(self, seconds: float) -> None:
        """For whatever takes a `sleep`: a wait passes as fast as the clock does."""
        await asyncio.sleep(seconds / self._speed)

    async def turn_to(self, moment: datetime) -> None:
        """Jump forward to a moment; one that has passed changes nothing."""
        if moment <= await self.now():
            return
        await self._conn.execute(
            "UPDATE hands.clock SET base = %s, since = pg_catalog.clock_timestamp()", [moment]
        )
        for clock in self._clocks:
            clock.turn_to(moment)


@asynccontextmanager
async def hands_on(
    url: str, start: datetime, *clocks: TurnableClock, speed: float = 1.0
) -> AsyncIterator[Hands]:
    """Put another clock into a throw-away database; a real second is `speed` seconds there."""
    async with await connect(url) as conn:
        await conn.execute("CREATE SCHEMA hands")
        await conn.execute(
            "CREATE UNLOGGED TABLE hands.clock"
            " (base timestamptz NOT NULL, since timestamptz NOT NULL, speed float8 NOT NULL)"
        )
        await conn.execute(
            "INSERT INTO hands.clock VALUES (%s, pg_catalog.clock_timestamp(), %s)", [start, speed]
        )
        for name, volatility in (("clock_timestamp", "VOLATILE"), ("now", "STABLE")):
            await conn.execute(sql.SQL(_FUNCTION).format(sql.Identifier(name), sql.SQL(volatility)))
        await conn.execute(
            sql.SQL("ALTER DATABASE {} SET search_path = hands, pg_catalog, public").format(
                sql.Identifier(conn.info.dbname)
            )
        )
        for clock in clocks:
            clock.run_at(speed)
            clock.turn_to(start)
        yield Hands(conn, clocks, speed)
