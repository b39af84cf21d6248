"""Manual runs in this process, under the lock of the job."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hasat.errors import DatabaseError, NotFoundError, NothingToDoError
from hasat.jobs import Catalogue, Job, Outcome, RunContext, Worker, run_in_foreground
from hasat.jobs.queue import queue_run, stop_run
from hasat.jobs.runs import count_live_workers, get_run, list_runs
from hasat.settings import Settings
from hasat.store import Store

pytestmark = pytest.mark.anyio


@pytest.fixture
def settings(settings: Settings) -> Settings:
    quick = {"heartbeat_seconds": 0.2, "stalled_seconds": 3.0}
    return settings.model_copy(update={"jobs": settings.jobs.model_copy(update=quick)})


class Gate:
    """A job that says when it is entered and waits to be let through."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.open = asyncio.Event()

    async def __call__(self, context: RunContext) -> Outcome:
        self.entered.set()
        await self.open.wait()
        return Outcome(rows_changed=1)


def build_catalogue(settings: Settings, work: Any, **job: Any) -> Catalogue:
    return Catalogue.of([Job("sample", work, "Sample.", **job)], settings)


@asynccontextmanager
async def working(catalogue: Catalogue, store: Store, settings: Settings) -> AsyncIterator[None]:
    worker = Worker(catalogue, store, settings, poll_seconds=0.05)
    task = asyncio.create_task(worker.run())
    await worker.started.wait()
    try:
        yield
    finally:
        worker.stop_now()
        await asyncio.wait_for(task, 10)


async def is_done(store: Store, run_id: int) -> None:
    for _ in range(400):
        if (await get_run(store, run_id)).outcome == "done":
            return
        await asyncio.sleep(0.03)
    raise AssertionError(f"run {run_id} is not done")


async def test_a_manual_run_needs_no_worker_and_no_enabled_job(
    store: Store, settings: Settings
) -> None:
    seen: list[tuple[float, float | None, str]] = []

    async def work(context: RunContext) -> Outcome:
        await context.progress(1, 3, "first")
        await context.progress(2, 3, "second")
        return Outcome(rows_changed=5, detail=dict(context.params))

    catalogue = build_catalogue(settings, work, enabled=False, params={"batch": 1, "days": 2})
    run = await run_in_foreground(
        catalogue, store, settings, "sample", {"days": 9}, lambda *step: seen.append(step)
    )
    assert (run.outcome, run.trigger, run.attempt, run.rows_changed) == ("done", "hand", 1, 5)
    assert run.detail == {"batch": 1, "days": 9}
    assert run.progress == {"done": 2, "total": 3, "note": "second"}
    assert seen == [(1, 3, "first"), (2, 3, "second")]
    assert await count_live_workers(store, settings) == 0


async def test_an_error_of_a_job_is_its_outcome(store: Store, settings: Settings) -> None:
    async def idle(context: RunContext) -> Outcome:
        raise NothingToDoError("All is done.")

    async def broken(context: RunContext) -> Outcome:
        raise DatabaseError("PostgreSQL is away.")

    run = await run_in_foreground(build_catalogue(settings, idle), store, settings, "sample")
    assert (run.outcome, run.message) == ("nothing", "All is done.")
    run = await run_in_foreground(build_catalogue(settings, broken), store, settings, "sample")
    assert (run.outcome, run.message) == ("failed", "PostgreSQL is away.")


async def test_a_busy_job_is_not_run_twice_and_its_run_is_named(
    store: Store, settings: Settings
) -> None:
    gate = Gate()
    catalogue = build_catalogue(settings, gate)
    async with working(catalogue, store, settings):
        working_on = await queue_run(store, catalogue, "sample")
        await gate.entered.wait()
        run = await run_in_foreground(catalogue, store, settings, "sample")
        worker = (await get_run(store, working_on.id)).worker
        assert (run.outcome, run.trigger) == ("skipped", "hand")
        assert run.message is not None
        assert f"Run {working_on.id} of sample has been running since" in run.message
        assert worker is not None
        assert worker in run.message
        assert run.detail["behind"] == working_on.id


async def test_of_two_manual_runs_one_is_skipped(store: Store, settings: Settings) -> None:
    gate = Gate()
    catalogue = build_catalogue(settings, gate)
    first = asyncio.create_task(run_in_foreground(catalogue, store, settings, "sample"))
    await gate.entered.wait()
    second = await run_in_foreground(catalogue, store, settings, "sample")
    gate.open.set()
    assert ((await first).outcome, second.outcome) == ("done", "skipped")


async def test_a_manual_run_overtakes_queued_runs_and_workers_wait_for_it(
    store: Store, settings: Settings
) -> None:
    gate, other = Gate(), Gate()
    other.open.set()
    catalogue = Catalogue.of(
        [Job("sample", gate, "Sample."), Job("other", other, "Other.")], settings
    )
    waiting = await queue_run(store, catalogue, "sample")
    by_hand = asyncio.create_task(run_in_foreground(catalogue, store, settings, "sample"))
    await gate.entered.wait()
    async with working(catalogue, store, settings):
        # The worker looks past the run that waits: its job is in our hands.
        await is_done(store, (await queue_run(store, catalogue, "other")).id)
        assert (await get_run(store, waiting.id)).state == "queued"
        gate.open.set()
        assert (await by_hand).outcome == "done"
        await is_done(store, waiting.id)


async def test_a_dead_holder_of_the_lock_is_replaced(store: Store, settings: Settings) -> None:
    async with store.connection() as connection:
        await connection.execute(
            "WITH worker AS (INSERT INTO procrastinate_workers DEFAULT VALUES RETURNING id),"
            " run AS (INSERT INTO jobs.run (job, trigger, state, attempt, worker, started_at)"
            "  VALUES ('sample', 'schedule', 'running', 1, 'gone:1', now()) RETURNING id),"
            " q AS (INSERT INTO procrastinate_jobs"
            "  (queue_name, task_name, lock, args, status, worker_id)"
            "  SELECT 'job:sample', 'hasat.run', 'sample', jsonb_build_object('run_id', run.id),"
            "  'doing', worker.id FROM worker, run RETURNING id)"
            " SELECT 1 FROM q"
        )
        await connection.execute(
            "UPDATE jobs.run SET queue_id = (SELECT id FROM procrastinate_jobs)"
        )
    remarks: list[str] = []

    async def work(context: RunContext) -> Outcome:
        return Outcome()

    catalogue = build_catalogue(settings, work)
    run = await run_in_foreground(catalogue, store, settings, "sample", on_remark=remarks.append)
    assert run.outcome == "done"
    assert "gone:1" in remarks[0]
    lost = (await list_runs(store, job="sample"))[-1]
    assert (lost.state, lost.attempt) == ("queued", 1)  # a worker takes it over


async def test_ctrl_c_is_recorded_as_interrupted_and_the_lock_is_free_again(
    store: Store, settings: Settings
) -> None:
    gate = Gate()
    catalogue = build_catalogue(settings, gate)
    task = asyncio.create_task(run_in_foreground(catalogue, store, settings, "sample"))
    await gate.entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (run,) = await list_runs(store)
    assert (run.state, run.outcome) == ("finished", "interrupted")
    gate.open.set()
    assert (await run_in_foreground(catalogue, store, settings, "sample")).outcome == "done"


@pytest.mark.parametrize("angry", [False, True])
async def test_a_manual_run_can_be_stopped_by_another_process(
    store: Store, settings: Settings, angry: bool
) -> None:
    gate = Gate()

    async def work(context: RunContext) -> Outcome:
        try:
            return await gate(context)
        except asyncio.CancelledError:
            if angry:
                raise ValueError("torn out of my work") from None
            raise

    catalogue = build_catalogue(settings, work)
    task = asyncio.create_task(run_in_foreground(catalogue, store, settings, "sample"))
    await gate.entered.wait()
    (run,) = await list_runs(store)
    await stop_run(store, run.id)
    over = await asyncio.wait_for(task, 10)
    assert (over.outcome, over.message) == (
        "interrupted",
        "Stopped manually before it finished.",
    )


async def test_a_job_that_does_not_exist_leaves_no_record(store: Store, settings: Settings) -> None:
    with pytest.raises(NotFoundError):
        await run_in_foreground(build_catalogue(settings, Gate()), store, settings, "sampel")
    assert await list_runs(store) == []
