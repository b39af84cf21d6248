"""procrastinate, set up for this house: its worker and its locks, without its trust in clocks.

Four habits of it are replaced. It ends a worker's signs of life when a drain begins, while jobs
still run: `Pulse` gives them. It lets a worker that was given up finish rows which others work on
by now: `FencedManager` writes only to rows that are still the worker's own. It stops a worker
when PostgreSQL goes away: here a failed look into the queue is tried again. And a run occupies one
of its places to the end: here `Slots` count, which a run leaves while it waits for budget.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable

from procrastinate import App, PsycopgConnector
from procrastinate.exceptions import ConnectorException, UniqueViolation
from procrastinate.job_context import JobContext
from procrastinate.jobs import Job as Row
from procrastinate.jobs import Status
from procrastinate.manager import JobManager
from procrastinate.worker import Worker

from hasat.jobs.link import AWAY, Link
from hasat.jobs.queue import TASK
from hasat.jobs.slots import Slots
from hasat.store.queries import load_query

_NEVER = 365 * 86_400.0
_LOOK_SECONDS = 10.0
_STOP_SECONDS = 0.5
"""How soon a look that waits for a free slot notices that the worker stops."""

WorkOn = Callable[[int, int, int], Awaitable[None]]
"""Works on a run; given its number, the queue's row and the worker's number."""


class FencedManager(JobManager):
    """procrastinate's SQL, harmless in the hands of a worker that was given up."""

    def __init__(
        self,
        connector: PsycopgConnector,
        link: Link,
        on_registered: Callable[[int], None],
        slots: Slots,
        is_stopping: Callable[[], bool],
    ) -> None:
        super().__init__(connector)
        self._link = link
        self._on_registered = on_registered
        self._slots = slots
        self._is_stopping = is_stopping

    async def register_worker(self) -> int:
        worker_id = await super().register_worker()
        self._on_registered(worker_id)
        return worker_id

    async def fetch_job(self, queues: Iterable[str] | None, worker_id: int) -> Row | None:
        """A row for a free slot; the slot is the row's until its run is over."""
        while not await self._slots.take(_STOP_SECONDS):
            if self._is_stopping():
                return None
        row = None
        try:
            row = await self._look(queues, worker_id)
        finally:
            if row is None:
                self._slots.free()
        return row

    async def _look(self, queues: Iterable[str] | None, worker_id: int) -> Row | None:
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                return await super().fetch_job(queues=queues, worker_id=worker_id)
        except UniqueViolation:
            # Another worker took a run of the same job at this very moment.
            return None
        except (ConnectorException, OSError) as error:
            self._link.note_away(error.__cause__ or error)
            return None

    async def finish_job(self, job: Row, status: Status, delete_job: bool) -> None:
        """Usually the row is gone with the run's end; this is for runs that were over already."""
        if self._link.hopeless:
            return
        try:
            async with self._link.transaction() as connection:
                await connection.execute(
                    load_query("hasat.jobs", "queue_release"),
                    {"id": job.id, "worker_id": job.worker_id, "attempts": job.attempts},
                )
        except AWAY:
            # Recovery finds a row that is in nobody's hands.
            return

    async def prune_stalled_workers(self, seconds_since_heartbeat: float) -> list[int]:
        """Nothing: who has fallen silent is judged by `Recovery`, which trusts no clock alone."""
        return []

    async def unregister_worker(self, worker_id: int) -> None:
        if self._link.hopeless:
            return
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                await super().unregister_worker(worker_id)
        except (ConnectorException, OSError):
            # It falls silent and is given up.
            return


async def open_app(
    link: Link,
    work_on: WorkOn,
    on_registered: Callable[[int], None],
    slots: Slots,
    is_stopping: Callable[[], bool],
) -> App:
    """The procrastinate app over a link, with the one task there is."""
    connector = PsycopgConnector()
    await connector.open_async(link.pool)
    app = App(connector=connector)
    app.job_manager = FencedManager(connector, link, on_registered, slots, is_stopping)

    @app.task(name=TASK, pass_context=True)
    async def run(context: JobContext, *, run_id: int) -> None:
        row = context.job
        assert row.id is not None
        assert row.worker_id is not None
        await work_on(run_id, row.id, row.worker_id)

    return app


class RowWorker(Worker):
    """procrastinate's worker, with the types it does not give."""

    async def run(self) -> None:
        await super().run()  # type: ignore[no-untyped-call]

    stopping = False

    def stop(self) -> None:
        self.stopping = True
        super().stop()  # type: ignore[no-untyped-call]


def new_worker(app: App, *, name: str, queues: Collection[str], poll_seconds: float) -> RowWorker:
    """A worker that only takes rows from the queue and works on them; the rest is the engine's."""
    return RowWorker(
        app,
        queues=list(queues),
        name=name,
        # Each queue's lock allows one run at a time; the slots say how many of these work.
        concurrency=max(len(queues), 1),
        fetch_job_polling_interval=poll_seconds,
        # Both are done by the pulse.
        abort_job_polling_interval=_NEVER,
        update_heartbeat_interval=_NEVER,
        # A notification would save part of a second, for a connection that PgBouncer cannot keep.
        listen_notify=False,
        delete_jobs="always",
        install_signal_handlers=False,
    )
