"""One attempt at a run: started, executed and recorded, with every write fenced.

The attempt's number is the fence: after another worker has taken the run over, the statements of
the earlier attempt match no row.
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
from hasat.feed.holds import (
    GuardError,
    close_approved,
    remove_decided_inputs,
    remove_stale_copies,
)
from hasat.jobs.catalogue import Job, Outcome, Run, RunOutcome
from hasat.jobs.connection import DATABASE_ERRORS, Connection, RetryingPool
from hasat.jobs.context import OnProgress, RunContext, Slot
from hasat.jobs.queue import STOPPED
from hasat.jobs.recovery import fence, terminate_replaced
from hasat.jobs.run_log import RunLog
from hasat.jobs.runs import message_columns, select_run
from hasat.logs import capture_lines, redactor
from hasat.messages import change_text, msg
from hasat.settings import Settings
from hasat.store import Store, explain
from hasat.store.home import explain_disk_full
from hasat.store.queries import load_query

_LOCK_HELD = msg("Another database session holds a lock that the job needs.")
_CANCEL_AGAIN_SECONDS = 5.0
# NaN in the detail, an unknown outcome, a list that contains itself, ...
_STORAGE_ERRORS = (
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
    """None if the job did not report it; then the committed rows count."""
    detail: Mapping[str, Any] = field(default_factory=dict)
    message: str | None = None
    error: str | None = None
    is_transient: bool = False
    """Whether PostgreSQL was unavailable, so that another attempt may succeed."""
    is_blocked: bool = False
    """Whether another session holds a lock that the job needs; it is retried until it is free."""


class Attempt:
    """The right of this process to execute a run and to write its record."""

    def __init__(self, database: RetryingPool, run: Run, context: RunContext) -> None:
        self.run = run
        self.context = context
        self._database = database
        self._redact = redactor(context.settings.secrets())
        self._log = RunLog(run.id, run.attempt, self._storable_text)

    @classmethod
    async def begin(
        cls,
        database: RetryingPool,
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
        """Start an attempt; return None if the run has finished or the queue row was taken away."""
        async with database.transaction() as connection:
            cursor = await connection.execute(
                load_query("hasat.jobs", "queue_start"),
                {"run": run_id, "queue_id": queue_id, "worker_id": worker_id, "worker": worker},
            )
            if await cursor.fetchone() is None:
                return None
            run = await select_run(connection, run_id)
        if run is None:
            return None
        await terminate_replaced(database, run_id)

        async def store_progress(progress: Mapping[str, Any] | None, requests: int) -> bool:
            async with database.transaction() as connection:
                cursor = await connection.execute(
                    load_query("hasat.jobs", "run_progress"),
                    {
                        "run": run_id,
                        "attempt": run.attempt,
                        "progress": _json(progress),
                        "requests": requests,
                    },
                )
                lines = await attempt._log.store(connection) if cursor.rowcount else []
            attempt._log.forget(lines)
            return cursor.rowcount == 1

        context = RunContext(
            run_id=run_id,
            job=job_of(run.job),
            params=run.params,
            scheduled_for=run.scheduled_for,
            settings=settings,
            store=store.fenced(fence(run_id, run.attempt)),
            store_progress=store_progress,
            conclude=lambda connection, outcome: attempt.conclude(connection, outcome),
            on_progress=on_progress,
            slot=slot,
            attempt=run.attempt,
            local=local,
        )
        attempt = cls(database, run, context)
        return attempt

    async def perform(self) -> AttemptResult:
        """Execute the job; turn every error into a result and let only a cancellation through."""
        job = self.context.job
        with (
            structlog.contextvars.bound_contextvars(
                run=self.run.id, job=job.name, source=job.source
            ),
            capture_lines(self._log.add),
        ):
            log.info("run.started", attempt=self.run.attempt, trigger=self.run.trigger)
            result = await self._await_outcome(job.run(self.context))
            await self._remove_old_input()
            log.info("run.finished", outcome=result.outcome, rows_changed=result.rows_changed)
        return result

    async def _remove_old_input(self) -> None:
        """Remove input that no hold needs; a failure does not fail the run."""
        store, settings = self.context.store, self.context.settings
        try:
            await remove_stale_copies(store, settings, self.run.id)
            await remove_decided_inputs(store, settings, self.run.id)
        except (HasatError, OSError, psycopg.Error) as error:
            log.warning("held_input.not_removed", error=str(error))

    async def _await_outcome(self, work: Awaitable[Outcome]) -> AttemptResult:
        try:
            try:
                outcome = await work
            except GuardError as error:
                outcome = await self.context.hold(error)
            if not isinstance(outcome, Outcome):
                raise TypeError(f"the job returned {outcome!r} instead of an Outcome")
            if self.context.approving is not None and outcome.kind in ("done", "nothing"):
                await close_approved(self.context.store, self.context.approving)
            return self._result(outcome)
        except NothingToDoError as error:
            return AttemptResult("nothing", message=self._storable(str(error)))
        except HeldError as error:
            return AttemptResult("held", message=self._storable(str(error)))
        except OutOfQuotaError as error:
            return AttemptResult("out_of_quota", message=self._storable(str(error)))
        except psycopg.errors.LockNotAvailable as error:
            log.warning("run.lock_held", error=str(error))
            return AttemptResult(
                "failed", message=_LOCK_HELD, error=self._storable(str(error)), is_blocked=True
            )
        except DATABASE_ERRORS as error:
            known = self._explain(error)
            if isinstance(known, HasatError):
                log.warning("run.failed", error=str(known))
            else:
                log.warning("run.failed", reason="PostgreSQL did not respond", exc_info=True)
            return self._failed(known, is_transient=True)
        except HasatError as error:
            log.warning("run.failed", error=str(error))
            return self._failed(error)
        # SystemExit would otherwise end the worker with all its other jobs.
        except (Exception, SystemExit) as error:
            known = self._explain(error)
            if isinstance(known, HasatError):
                log.warning("run.failed", error=str(known))
            else:
                log.exception("run.failed")
            return self._failed(known)

    def _explain(self, error: BaseException) -> BaseException:
        """Return a readable error for a full disk or a failing server, else the error itself."""
        store = self.context.store
        if isinstance(error, psycopg.Error):
            return explain.sentence(error, store.label, embedded=store.embedded) or error
        return explain_disk_full(error, self.context.settings.home) or error

    def _result(self, outcome: Outcome) -> AttemptResult:
        return AttemptResult(
            outcome.kind,
            outcome.rows_changed,
            outcome.detail,
            self._storable(outcome.message),
            # An earlier attempt of the same run may hold the lock: retry instead of skipping.
            is_blocked=outcome.kind == "skipped" and self.context.is_retry,
        )

    def _failed(self, error: BaseException, *, is_transient: bool = False) -> AttemptResult:
        if isinstance(error, HasatError):
            message = str(error)
        elif is_transient:
            message = msg("PostgreSQL did not respond while the job was running.")
        else:
            message = msg("The job stopped with an unexpected error; the log has its traceback.")
        return AttemptResult(
            "failed",
            message=self._storable(message),
            error=self._storable(f"{type(error).__name__}: {error}"),
            is_transient=is_transient,
        )

    async def conclude(self, connection: Connection, outcome: Outcome) -> bool:
        """Record the outcome in the job's transaction; return False if the run was taken over."""
        result = self._result(outcome)
        return await self._finish(connection, result, self.context.last_progress)

    async def finish(self, result: AttemptResult) -> bool:
        """Record the result; return False if another worker has taken the run over."""
        try:
            async with self._database.transaction() as connection:
                await self._log.store(connection)
                return await self._finish(connection, result, self.context.last_progress)
        except _STORAGE_ERRORS as error:
            log.exception("run.outcome_not_storable", run=self.run.id)
            async with self._database.transaction() as connection:
                return await self._finish(connection, self._failed(error), None)

    async def _finish(
        self, connection: Connection, result: AttemptResult, progress: Mapping[str, Any] | None
    ) -> bool:
        return await self._write(
            connection,
            "queue_finish",
            outcome=result.outcome,
            rows_changed=result.rows_changed,
            **message_columns(result.message),
            error=result.error,
            detail=_json(result.detail),
            progress=_json(progress),
        )

    async def requeue(
        self, *, counts: bool, pause: float = 0.0, message: str | None = None
    ) -> bool:
        """Queue the run again, or end it if it was asked to stop.

        Returns False if another worker has taken the run over already.
        """
        async with self._database.transaction() as connection:
            await self._log.store(connection)
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
            "requests": self.context.unsaved_requests,
        }
        cursor = await connection.execute(load_query("hasat.jobs", name), values)
        row = await cursor.fetchone()
        return row is not None and bool(row[0])

    def _storable(self, text: str | None) -> str | None:
        """Remove secrets, personal numbers and characters that PostgreSQL does not accept."""
        return None if text is None else change_text(text, self._storable_text)

    def _storable_text(self, text: str) -> str:
        text = self._redact(text).replace("\0", "")
        return text.encode("utf-8", "replace").decode("utf-8")


def _json(value: Mapping[str, Any] | None) -> Jsonb | None:
    # Dates and similar values are stored as text.
    return None if value is None else Jsonb(value, dumps=lambda v: json.dumps(v, default=str))


StopReason = Literal["manual", "silence", "shutdown"]
"""Why a job is stopped: on request, after its worker fell silent, or when the worker ends."""


class JobTask:
    """The task of a running job, which can be stopped.

    The cancellation is repeated: Python 3.11 loses one that coincides with the end of a wait with a
    time-out, such as for a free connection, and the task does not show whether that happened.
    """

    def __init__(self, work: Coroutine[Any, Any, AttemptResult]) -> None:
        self.stopped: StopReason | None = None
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(work)

    def stop(self, why: StopReason) -> bool:
        """Stop the job; return False if it was stopped before or has finished."""
        if self.stopped is not None or self._task.done():
            return False
        self.stopped = why
        self._cancel()
        return True

    def _cancel(self) -> None:
        if not self._task.done():
            self._task.cancel()
            self._loop.call_later(_CANCEL_AGAIN_SECONDS, self._cancel)

    async def ended(self) -> AttemptResult | None:
        """Wait for the result; return None if the job was stopped without a request.

        Cancelling the wait does not stop the job.
        """
        await asyncio.wait({self._task})
        result = None if self._task.cancelled() else self._task.result()
        if self.stopped is None:
            return result or AttemptResult("failed", message=msg("The job cancelled itself."))
        if result is not None and result.outcome != "failed":
            return result
        # An error of a job that was stopped does not count as its outcome.
        return AttemptResult("interrupted", message=STOPPED) if self.stopped == "manual" else None
