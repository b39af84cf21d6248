"""A replaced attempt cannot write and loses its session; its successor is not skipped."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from hasat.errors import ConflictError, DatabaseError
from hasat.jobs import Catalogue, Job, Outcome, Run, RunContext, Worker
from hasat.jobs import worker as worker_module
from hasat.jobs.connection import open_retrying_pool
from hasat.jobs.queue import queue_run
from hasat.jobs.recovery import Recovery
from hasat.jobs.runs import get_run
from hasat.settings import Settings
from hasat.store import Store

pytestmark = pytest.mark.anyio

Work = Callable[[RunContext], Awaitable[Outcome]]


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "_RETRY_PAUSE_SECONDS", 0.05)


@asynccontextmanager
async def working(store: Store, settings: Settings, work: Work) -> AsyncIterator[int]:
    """An worker that works on one run of a job; the number of the run."""
    catalogue = Catalogue.of([Job("mirror", work, "Mirrors.")], settings)
    worker = Worker(catalogue, store, settings, poll_seconds=0.05, schedule_seconds=0.1)
    run = await queue_run(store, catalogue, "mirror")
    task = asyncio.create_task(worker.run())
    try:
        yield run.id
    finally:
        worker.stop_now()
        await asyncio.wait_for(task, 20)


async def finished(store: Store, run_id: int) -> Run:
    async with asyncio.timeout(30):
        while (run := await get_run(store, run_id)).state != "finished":  # noqa: ASYNC110
            await asyncio.sleep(0.03)
    return run


async def test_a_replaced_attempt_is_refused_at_its_next_transaction(
    store: Store, settings: Settings
) -> None:
    refused = asyncio.Event()

    async def work(context: RunContext) -> Outcome:
        async with context.store.connection() as conn:
            await conn.execute("CREATE TABLE IF NOT EXISTS written (run bigint)")
        async with store.connection() as conn:
            await conn.execute("UPDATE jobs.run SET attempt = attempt + 1")
        with pytest.raises(ConflictError, match="taken over"):
            async with context.store.connection() as conn:
                await conn.execute("INSERT INTO written VALUES (1)")
        refused.set()
        return Outcome()

    async with working(store, settings, work):
        await asyncio.wait_for(refused.wait(), 30)
    async with store.connection() as conn:
        assert await (await conn.execute("SELECT count(*) FROM written")).fetchone() == (0,)


async def test_a_job_reads_a_snapshot(store: Store, settings: Settings) -> None:
    async def work(context: RunContext) -> Outcome:
        async with context.store.snapshot() as conn:
            seen = [await (await conn.execute("SELECT count(*) FROM jobs.run")).fetchone()]
            async with store.connection() as other:
                await other.execute("INSERT INTO jobs.run (job, trigger) VALUES ('x', 'hand')")
            seen.append(await (await conn.execute("SELECT count(*) FROM jobs.run")).fetchone())
        return Outcome(detail={"seen": seen})

    async with working(store, settings, work) as run_id:
        run = await finished(store, run_id)
    assert (run.outcome, run.detail) == ("done", {"seen": [[1], [1]]})


@pytest.mark.parametrize("outcome", ["interrupted", "set_aside", None])
async def test_recovery_ends_the_session_of_a_run_that_was_taken_over(
    store: Store, settings: Settings, outcome: str | None
) -> None:
    """`None` stands for a run that waits for its next attempt."""
    ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def work(context: RunContext) -> Outcome:
        try:
            async with context.store.connection() as conn:
                await conn.execute("SELECT pg_advisory_xact_lock(77)")
                async with store.connection() as other:
                    await other.execute(
                        "UPDATE jobs.run SET state = %s, outcome = %s,"
                        " finished_at = CASE WHEN %s THEN now() END",
                        ["finished" if outcome else "queued", outcome, outcome is not None],
                    )
                async with open_retrying_pool(store) as database:
                    await Recovery(database, settings).check()
                await conn.execute("SELECT 1")
        except DatabaseError:
            ended.set_result(True)
            raise
        ended.set_result(False)
        return Outcome()

    async with working(store, settings, work):
        assert await asyncio.wait_for(ended, 30)
    async with store.connection() as conn:
        cursor = await conn.execute("SELECT pg_try_advisory_xact_lock(77)")
        assert await cursor.fetchone() == (True,)


async def test_recovery_does_not_touch_the_session_of_a_running_run(
    store: Store, settings: Settings
) -> None:
    async def work(context: RunContext) -> Outcome:
        async with context.store.connection() as conn:
            async with open_retrying_pool(store) as database:
                await Recovery(database, settings).check()
            await conn.execute("SELECT 1")
        return Outcome()

    async with working(store, settings, work) as run_id:
        run = await finished(store, run_id)
    assert (run.outcome, run.attempt) == ("done", 1)


async def test_a_retried_run_is_not_skipped_behind_the_locks_of_its_first_attempt(
    store: Store, settings: Settings
) -> None:
    steps = iter([DatabaseError("gone"), Outcome("skipped"), Outcome("skipped"), Outcome()])

    async def work(context: RunContext) -> Outcome:
        step = next(steps)
        if isinstance(step, DatabaseError):
            raise step
        return step

    async with working(store, settings, work) as run_id:
        run = await finished(store, run_id)
    assert (run.outcome, run.attempt) == ("done", 2)


async def test_a_first_attempt_is_skipped_behind_a_running_run(
    store: Store, settings: Settings
) -> None:
    async def work(context: RunContext) -> Outcome:
        return Outcome("skipped", message="Another run works.")

    async with working(store, settings, work) as run_id:
        assert (await finished(store, run_id)).outcome == "skipped"


async def test_a_run_that_cannot_get_a_lock_is_retried_without_counting(
    store: Store, settings: Settings
) -> None:
    tries = 0

    async def work(context: RunContext) -> Outcome:
        nonlocal tries
        tries += 1
        async with store.connection() as holder, context.store.connection() as conn:
            if tries <= 4:
                await holder.execute("SELECT pg_advisory_xact_lock(78)")
            await conn.execute("SET LOCAL lock_timeout = '50ms'")
            await conn.execute("SELECT pg_advisory_xact_lock(78)")
        return Outcome()

    async with working(store, settings, work) as run_id:
        run = await finished(store, run_id)
    assert (run.outcome, run.attempt, tries) == ("done", 1, 5)
