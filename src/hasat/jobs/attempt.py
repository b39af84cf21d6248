"""One attempt at a run: begun, performed, and ended in the records; each write is fenced.

The attempt's number is the fence: a worker that was silent for so long that its run was begun anew
finds no row to write to.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import psycopg
import structlog
from psycopg.types.json import Jsonb

from hasat.errors import HasatError, HeldError, NothingToDoError, OutOfQuotaError
from hasat.jobs.catalogue import Job, Outcome, Run, RunOutcome
from hasat.jobs.connection import DATABASE_ERRORS, Connection, RetryingPool
from hasat.jobs.context import OnProgress, RunContext, Slot
from hasat.jobs.queue import STOPPED
from hasat.jobs.recovery import fence, terminate_replaced
from hasat.jobs.runs import message_columns, select_run
from hasat.logs import redactor
from hasat.messages import change_text, msg
from hasat.settings import Settings
from hasat.store import Store, explain
from hasat.store.home import explain_disk_full
from hasat.store.queries import load_query

_LOCK_HELD = msg("Another database session holds a lock that the job needs.")
_TELL_AGAIN_SECONDS = 5.0
# A detail with NaN in it, an unknown kind of outcome, a list that contains itself, ...
_NOT_STORABLE = (
    psycopg.DataError,
    psycopg.IntegrityError,
    psycopg.ProgrammingError,
    TypeError,
    ValueError,
    RecursionError,
)

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class AttemptResult:
    """How an attempt ended."""

    outcome: RunOutcome
    rows_changed: int | None = None
    """None where the job could not say it: then what it committed counts."""
    detail: Mapping[str, Any] = field(default_factory=dict)
    message: str | None = None
    error: str | None = None
    passing: bool = False
    """PostgreSQL was away: another attempt may well succeed."""
    waits: bool = False
    """Another session holds a lock that the job needs: it is tried again until the lock is free."""


class Attempt:
    """What entitles this process to work on a run and to write about it."""

    def __init__(self, link: RetryingPool, run: Run, context: RunContext) -> None:
        self.run = run
        self.context = context
        self._link = link
        self._redact = redactor(context.settings.secrets())

    @classmethod
    async def begin(
        cls,
        link: RetryingPool,
        *,
        run_id: int,
        queue_id: int,
        worker_id: int,
        worker: str,
        job_of: Callable[[str], Job],
        settings: Settings,
        store: Store,
        on_progress: OnProgress | None = None,
        slot: Slot | None = None,
        local: bool = False,
    ) -> "Attempt | None":
        """The attempt, or None if the run is over or the queue's row is no longer ours."""
        async with link.transaction() as connection:
            cursor = await connection.execute(
                load_query("hasat.jobs", "queue_start"),
                {"run": run_id, "queue_id": queue_id, "worker_id": worker_id, "worker": worker},
            )
            if await cursor.fetchone() is None:
                return None
            run = await select_run(connection, run_id)
        if run is None:
            return None
        await terminate_replaced(link, run_id)

        async def keep(progress: Mapping[str, Any] | None, requests: int) -> bool:
            async with link.transaction() as connection:
                cursor = await connection.execute(
                    load_query("hasat.jobs", "run_progress"),
                    {
                        "run": run_id,
                        "attempt": run.attempt,
                        "progress": _json(progress),
                        "requests": requests,
                    },
                )
                return cursor.rowcount == 1

        context = RunContext(
            run_id=run_id,
            job=job_of(run.job),
            params=run.params,
            scheduled_for=run.scheduled_for,
            settings=settings,
            store=store.fenced(fence(run_id, run.attempt)),
            keep=keep,
            conclude=lambda connection, outcome: attempt.conclude(connection, outcome),
            on_progress=on_progress,
            slot=slot,
            attempt=run.attempt,
            local=local,
        )
        attempt = cls(link, run, context)
        return attempt

    async def perform(self) -> AttemptResult:
        """Do the job; whatever it raises becomes an ending, only a cancellation goes through."""
        job = self.context.job
        with structlog.contextvars.bound_contextvars(
            run=self.run.id, job=job.name, source=job.source
        ):
            log.info("run started", attempt=self.run.attempt, trigger=self.run.trigger)
            ending = await self._ending_of(job.run(self.context))
            log.info("run ended", outcome=ending.outcome, rows_changed=ending.rows_changed)
        return ending

    async def _ending_of(self, work: Awaitable[Outcome]) -> AttemptResult:
        try:
            outcome = await work
            if not isinstance(outcome, Outcome):
                raise TypeError(f"the job returned {outcome!r} instead of an Outcome")
            return self._ending(outcome)
        except NothingToDoError as error:
            return AttemptResult("nothing", message=self._storable(str(error)))
        except HeldError as error:
            return AttemptResult("held", message=self._storable(str(error)))
        except OutOfQuotaError as error:
            return AttemptResult("out_of_quota", message=self._storable(str(error)))
        except psycopg.errors.LockNotAvailable as error:
            log.warning("run.lock_held", error=str(error))
            return AttemptResult(
                "failed", message=_LOCK_HELD, error=self._storable(str(error)), waits=True
            )
        except DATABASE_ERRORS as error:
            known = self._explained(error)
            if isinstance(known, HasatError):
                log.warning("run failed", error=str(known))
            else:
                log.warning("run failed because PostgreSQL did not answer", exc_info=True)
            return self._failed(known, passing=True)
        except HasatError as error:
            log.warning("run failed", error=str(error))
            return self._failed(error)
        # SystemExit too: left alone, it would end the worker with all its other jobs.
        except (Exception, SystemExit) as error:
            known = self._explained(error)
            if isinstance(known, HasatError):
                log.warning("run failed", error=str(known))
            else:
                log.exception("run failed unexpectedly")
            return self._failed(known)

    def _explained(self, error: BaseException) -> BaseException:
        """Return what a full disk or a server in trouble means, else the error itself."""
        store = self.context.store
        if isinstance(error, psycopg.Error):
            return explain.sentence(error, store.label, embedded=store.embedded) or error
        return explain_disk_full(error, self.context.settings.home) or error

    def _ending(self, outcome: Outcome) -> AttemptResult:
        return AttemptResult(
            outcome.kind,
            outcome.rows_changed,
            outcome.detail,
            self._storable(outcome.message),
            # Not skipped behind what its own earlier attempt may have left.
            waits=outcome.kind == "skipped" and self.context.is_retry,
        )

    def _failed(self, error: BaseException, *, passing: bool = False) -> AttemptResult:
        if isinstance(error, HasatError):
            message = str(error)
        elif passing:
            message = msg("PostgreSQL did not answer while the job was running.")
        else:
            message = msg("The job stopped with an unexpected error; the log has its traceback.")
        return AttemptResult(
            "failed",
            message=self._storable(message),
            error=self._storable(f"{type(error).__name__}: {error}"),
            passing=passing,
        )

    async def conclude(self, connection: Connection, outcome: Outcome) -> bool:
        """Record the end in the job's own transaction; False if the run was begun anew."""
        ending = self._ending(outcome)
        return await self._finish(connection, ending, self.context.last_progress)

    async def finish(self, ending: AttemptResult) -> bool:
        """Record the end; False if the run was begun anew elsewhere, so that this end is void."""
        try:
            async with self._link.transaction() as connection:
                return await self._finish(connection, ending, self.context.last_progress)
        except _NOT_STORABLE as error:
            log.exception("the outcome of a run cannot be stored", run=self.run.id)
            async with self._link.transaction() as connection:
                return await self._finish(connection, self._failed(error), None)

    async def _finish(
        self, connection: Connection, ending: AttemptResult, progress: Mapping[str, Any] | None
    ) -> bool:
        return await self._write(
            connection,
            "queue_finish",
            outcome=ending.outcome,
            rows_changed=ending.rows_changed,
            **message_columns(ending.message),
            error=ending.error,
            detail=_json(ending.detail),
            progress=_json(progress),
        )

    async def give_back(
        self, *, counts: bool, pause: float = 0.0, message: str | None = None
    ) -> bool:
        """Let another worker begin the run anew, unless it was asked to stop.

        False if that has happened already.
        """
        async with self._link.transaction() as connection:
            return await self._write(
                connection,
                "queue_give_back",
                counts=counts,
                pause=pause,
                **message_columns(message),
                stopped=STOPPED,
                stopped_data=message_columns(STOPPED)["message_data"],
            )

    async def _write(self, connection: Connection, name: str, **values: Any) -> bool:
        values |= {
            "run": self.run.id,
            "attempt": self.run.attempt,
            "requests": self.context.unkept_requests,
        }
        cursor = await connection.execute(load_query("hasat.jobs", name), values)
        row = await cursor.fetchone()
        return row is not None and bool(row[0])

    def _storable(self, text: str | None) -> str | None:
        """Without secrets, personal numbers and what PostgreSQL does not take."""
        return None if text is None else change_text(text, self._storable_text)

    def _storable_text(self, text: str) -> str:
        text = self._redact(text).replace("\0", "")
        return text.encode("utf-8", "replace").decode("utf-8")


def _json(value: Mapping[str, Any] | None) -> Jsonb | None:
    # Dates and the like are stored as text rather than lost with the run that reports them.
    return None if value is None else Jsonb(value, dumps=lambda v: json.dumps(v, default=str))


StopReason = Literal["hand", "silence", "engine"]
"""Who stops a job: somebody asked for it, its worker fell silent, or the engine ends."""


class JobTask:
    """A job at work, which can be told to stop.

    One that was told is told again: Python 3.11 loses a cancellation that meets the end of a wait
    with a time-out, such as a connection coming free. Nothing can be learnt from the task about
    that: a time-out of the job's own cancels it for a moment, too.
    """

    def __init__(self, work: Coroutine[Any, Any, AttemptResult]) -> None:
        self.stopped: StopReason | None = None
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(work)

    def stop(self, why: StopReason) -> bool:
        """Tell it to stop; False if it has been told before, or is over."""
        if self.stopped is not None or self._task.done():
            return False
        self.stopped = why
        self._tell()
        return True

    def _tell(self) -> None:
        if not self._task.done():
            self._task.cancel()
            self._loop.call_later(_TELL_AGAIN_SECONDS, self._tell)

    async def ended(self) -> AttemptResult | None:
        """How it ended; None if it was stopped and nobody asked for that.

        A cancelled waiter leaves it running.
        """
        await asyncio.wait({self._task})
        ending = None if self._task.cancelled() else self._task.result()
        if self.stopped is None:
            return ending or AttemptResult("failed", message=msg("The job cancelled itself."))
        if ending is not None and ending.outcome != "failed":
            return ending
        # What a job says when it is torn out of its work is no verdict on it.
        return AttemptResult("interrupted", message=STOPPED) if self.stopped == "hand" else None
