"""Fencing: an attempt that was replaced can neither write nor keep its locks.

Each transaction of an attempt is marked with its run and refused once the run was taken over
(`fence`). The process that takes a run over ends the sessions of the attempt it replaces
(`terminate_replaced`); it needs no other right than to have the same database role.
"""

import psycopg
import structlog

from hasat.errors import ConflictError
from hasat.jobs.link import Connection, Link
from hasat.messages import msg
from hasat.store.queries import load_query
from hasat.store.store import Fence

_WAIT_MS = 2000

log = structlog.get_logger(__name__)


def replaced_error(run: int) -> ConflictError:
    """Return the error of an attempt whose run another worker has taken over."""
    return ConflictError(
        msg("Run {run} was taken over by another worker while this one was silent.", run=run)
    )


def fence(run: int, attempt: int) -> Fence:
    """Return the fence of an attempt's transactions."""

    async def enter(connection: Connection) -> None:
        cursor = await connection.execute("SELECT jobs.enter(%s, %s)", [run, attempt])
        if await cursor.fetchone() != (True,):
            raise replaced_error(run)

    return enter


async def terminate_replaced(link: Link, run: int | None = None) -> None:
    """End the sessions of a run's replaced attempts, or of all replaced attempts.

    Call it after the replacement is committed: a session that enters later is refused.
    """
    try:
        async with link.transaction() as connection:
            cursor = await connection.execute(
                load_query("hasat.jobs", "run_terminate_replaced"),
                {"run": run, "wait_ms": _WAIT_MS},
            )
            ended = await cursor.fetchall()
    except psycopg.errors.InsufficientPrivilege as error:
        log.error("run.session_not_terminated", run=run, reason=str(error))
        return
    for of_run, pid, is_gone in ended:
        log.warning("run.session_terminated", run=of_run, pid=pid, is_gone=is_gone)
