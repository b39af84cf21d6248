"""A connection of its own for short statements, run with the least work of this process.

A lookup takes PostgreSQL a few hundredths of a millisecond. Taking a connection from the pool, a
cursor and the conversion of values cost this process ten times as much as sending the statement
and receiving its rows. Here the connection is held, the statement is prepared once, and values and
rows are the texts that PostgreSQL sends.
"""

import asyncio
import time
from collections.abc import Sequence
from itertools import count

import psycopg
from psycopg import generators, pq
from psycopg_pool import AsyncConnectionPool

from hasat.store.session import Session, check

TextRow = tuple[bytes | None, ...]

# PostgreSQL would plan a statement with an array for each execution, which takes longer than the
# execution. A plan that is kept must not be one for the few rows that a table had at first.
_SETTINGS = b"SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off"


class Reader:
    """Runs one statement after the other on the only connection of a pool.

    They are for rows that an index finds: sequential scans are avoided. The pool opens with the
    first statement. Behind a pooler such as PgBouncer a statement is a transaction of its own,
    because only that has time-outs there and nothing can be prepared.
    """

    def __init__(self, pool: AsyncConnectionPool[Session]) -> None:
        self._pool = pool
        self._session: Session | None = None
        self._prepared: dict[bytes, bytes] = {}
        self._numbers = count()
        self._lock = asyncio.Lock()

    @property
    def is_lost(self) -> bool:
        """Whether the connection that was used last has ended."""
        return self._session is not None and self._session.closed

    async def close(self) -> None:
        """Close the connection."""
        async with self._lock:
            await self._release()
            await self._pool.close()

    async def rows(self, statement: bytes, values: Sequence[bytes]) -> list[TextRow]:
        """Return the rows of a statement with the parameters $1, $2, ...

        If the connection was lost since the last statement, it runs on a new one.
        """
        async with self._lock:
            session = await self._held()
            try:
                if session.is_direct:
                    with session.in_autocommit():
                        result = await self._run_prepared(session, statement, values)
                else:
                    async with session.transaction():
                        session.pgconn.send_query_params(statement, values)
                        result = await _result(session)
            finally:
                session.used_at = time.monotonic()
        columns = range(result.nfields)
        return [
            tuple([result.get_value(row, column) for column in columns])
            for row in range(result.ntuples)
        ]

    async def _run_prepared(
        self, session: Session, statement: bytes, values: Sequence[bytes]
    ) -> pq.abc.PGresult:
        name = self._prepared.get(statement)
        if name is None:
            # A number that is not used again: what is cancelled here may be prepared all the same.
            name = b"hasat_%d" % next(self._numbers)
            session.pgconn.send_prepare(name, statement)
            await _result(session)
            self._prepared[statement] = name
        session.pgconn.send_query_prepared(name, values)
        return await _result(session)

    async def _held(self) -> Session:
        """Return the connection, a new one if it is lost."""
        if (session := self._session) is not None:
            try:
                await check(session)
            except psycopg.Error:
                await self._release()
            else:
                return session
        if self._pool.closed:
            await self._pool.open()
        self._session = session = await self._pool.getconn()
        self._prepared.clear()
        if session.is_direct:
            with session.in_autocommit():
                session.pgconn.send_query(_SETTINGS)
                await _result(session)
        return session

    async def _release(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await self._pool.putconn(session)


async def _result(session: Session) -> pq.abc.PGresult:
    """Return the last result of what was sent; raise its error."""
    result: pq.abc.PGresult
    *_, result = await session.wait(generators.execute(session.pgconn))
    if result.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
        raise psycopg.errors.error_from_result(result, encoding=session.pgconn._encoding)
    return result
