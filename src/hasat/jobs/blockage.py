"""What keeps runs from working: sessions stuck with their locks, and jobs that only skip."""

from dataclasses import dataclass

from hasat.jobs.link import Connection
from hasat.messages import join, msg
from hasat.store.queries import load_query

STUCK_SECONDS = 60
"""Longer than a frozen or cut-off process can keep a session by itself."""

MIN_SKIPS = 3


@dataclass(frozen=True)
class Blockages:
    """Stuck sessions, described, and the names of the jobs whose newest runs were all skipped."""

    sessions: tuple[str, ...] = ()
    skipped_jobs: tuple[str, ...] = ()

    def __str__(self) -> str:
        found = [
            msg("A session holds locks and does nothing: {session}.", session=one)
            for one in self.sessions
        ]
        found += [
            msg("The last {count} runs of {job} were skipped.", count=MIN_SKIPS, job=job)
            for job in self.skipped_jobs
        ]
        return join(found)

    def __bool__(self) -> bool:
        return bool(self.sessions or self.skipped_jobs)

    @property
    def remedy(self) -> str:
        return msg(
            "Find who holds the lock in pg_locks and pg_stat_activity; end an abandoned session "
            "with pg_terminate_backend(process)."
        )


async def find_blockages(connection: Connection) -> Blockages:
    """Return what is stuck at this moment."""
    cursor = await connection.execute(
        load_query("hasat.jobs", "stuck_sessions"), {"seconds": STUCK_SECONDS}
    )
    sessions = tuple(session for (session,) in await cursor.fetchall())
    cursor = await connection.execute(
        load_query("hasat.jobs", "run_repeatedly_skipped"), {"times": MIN_SKIPS}
    )
    return Blockages(sessions, tuple(job for (job,) in await cursor.fetchall()))
