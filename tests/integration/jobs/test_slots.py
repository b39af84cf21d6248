"""A run that waits for budget occupies no worker slot."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import pytest

from hasat.budget import Budget, Lane, Upstream
from hasat.jobs import Catalogue, Job, Outcome, Run, RunContext, Worker, run_in_foreground
from hasat.jobs.queue import queue_run, stop_run
from hasat.jobs.runs import get_run
from hasat.settings import Settings
from hasat.store import Store

pytestmark = pytest.mark.anyio

Work = Callable[[RunContext], Awaitable[Outcome]]
# One request every three seconds: the second one of a run has to wait.
SLOW = Upstream("slow", minute_limit=20, lanes=(Lane("daily", early=True),), opening_seconds=0)


class BudgetedJob:
    """A job that needs several grants of a slow budget."""

    def __init__(self, requests: int, upstream: Upstream = SLOW) -> None:
        self._requests = requests
        self._upstream = upstream
        self.granted = 0

    async def __call__(self, context: RunContext) -> Outcome:
        async with Budget(context.store, self._upstream, waiting=context.waiting) as budget:
            for number in range(self._requests):
                grant = await budget.acquire("daily", job=context.job.name, timeout=600)
                await grant.settle("ok")
                context.count_requests()
                self.granted += 1
                await context.progress(number + 1, self._requests, "requests")
        return Outcome()


async def pause_upstream(store: Store, seconds: float) -> None:
    async with store.connection() as conn:
        await conn.execute("SELECT budget.slow_down('slow', 1, %s, NULL)", [seconds])


async def end_pause(store: Store) -> None:
    async with store.connection() as conn:
        await conn.execute("UPDATE budget.day SET paused_until = 'epoch'")


def one_slot(settings: Settings, **more: Any) -> Settings:
    values = {
        "heartbeat_seconds": 0.2,
        "stalled_seconds": 3.0,
        "drain_seconds": 5.0,
        "concurrency": 1,
    }
    return settings.model_copy(update={"jobs": settings.jobs.model_copy(update=values | more)})


def catalogue_with(settings: Settings, **works: Work) -> Catalogue:
    return Catalogue.of(
        [Job(name, work, f"The job {name}.") for name, work in works.items()], settings
    )


@asynccontextmanager
async def running(catalogue: Catalogue, store: Store, settings: Settings) -> AsyncIterator[Worker]:
    worker = Worker(catalogue, store, settings, poll_seconds=0.05, schedule_seconds=0.1)
    task = asyncio.create_task(worker.run())
    try:
        await asyncio.wait_for(worker.started.wait(), 10)
        yield worker
    finally:
        worker.stop_now()
        await asyncio.wait_for(task, 20)


async def eventually(store: Store, run: Run, condition: Callable[[Run], Any]) -> Run:
    async with asyncio.timeout(30):
        while True:
            if condition(found := await get_run(store, run.id)):
                return found
            await asyncio.sleep(0.03)


def waits(run: Run) -> bool:
    return run.state == "running" and "waitingUntil" in (run.progress or {})


def is_finished(run: Run) -> bool:
    return run.state == "finished"


async def done(context: RunContext) -> Outcome:
    return Outcome()


@pytest.fixture
async def paused(store: Store) -> None:
    """The upstream asked for a long pause: every grant waits for it."""
    async with Budget(store, SLOW) as budget:
        await (await budget.acquire("daily", job="first")).settle("ok")
    await pause_upstream(store, 500)


@pytest.mark.usefixtures("paused")
async def test_another_run_executes_at_once_while_one_waits_for_budget(
    store: Store, settings: Settings
) -> None:
    settings = one_slot(settings)
    asking = BudgetedJob(2)
    catalogue = catalogue_with(settings, asks=asking, quick=done)
    async with running(catalogue, store, settings):
        asks = await eventually(store, await queue_run(store, catalogue, "asks"), waits)
        assert asks.progress is not None
        assert "waiting for budget until" in asks.progress["note"]
        assert datetime.fromisoformat(asks.progress["waitingUntil"]).tzinfo is not None
        for _ in range(3):
            quick = await eventually(store, await queue_run(store, catalogue, "quick"), is_finished)
            assert quick.outcome == "done"
        assert waits(await get_run(store, asks.id))
        # The same run goes on when the window opens: one record, one attempt, each request once.
        await end_pause(store)
        asks = await eventually(store, asks, is_finished)
    assert (asks.outcome, asks.attempt, asks.requests, asking.granted) == ("done", 1, 2, 2)
    assert asks.progress == {"done": 2, "total": 2, "note": "requests"}


@pytest.mark.usefixtures("paused")
async def test_a_run_that_waited_works_only_when_a_slot_is_free(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hasat.budget.budget._POLL_SECONDS", 0.1)
    settings = one_slot(settings)
    working, may_end = asyncio.Event(), asyncio.Event()
    asking = BudgetedJob(1)

    async def works(context: RunContext) -> Outcome:
        working.set()
        await may_end.wait()
        assert asking.granted == 0
        return Outcome()

    catalogue = catalogue_with(settings, asks=asking, works=works)
    async with running(catalogue, store, settings):
        asks = await eventually(store, await queue_run(store, catalogue, "asks"), waits)
        other = await queue_run(store, catalogue, "works")
        await asyncio.wait_for(working.wait(), 20)
        await end_pause(store)
        # Several looks at the budget: a grant would be taken now if the slot did not count.
        await asyncio.sleep(0.6)
        may_end.set()
        assert (await eventually(store, other, is_finished)).outcome == "done"
        assert (await eventually(store, asks, is_finished)).outcome == "done"


@pytest.mark.usefixtures("paused")
async def test_runs_that_wait_do_not_delay_the_takeover_of_a_dead_workers_run(
    store: Store, settings: Settings
) -> None:
    settings = one_slot(settings)
    catalogue = catalogue_with(settings, one=BudgetedJob(1), two=BudgetedJob(1), lost=done)
    lost = await queue_run(store, catalogue, "lost")
    async with store.connection() as conn:
        # As a worker leaves it that was killed and has been given up.
        await conn.execute(
            "UPDATE procrastinate_jobs SET status = 'doing', worker_id = NULL WHERE lock = 'lost'"
        )
        await conn.execute(
            "UPDATE jobs.run SET state = 'running', attempt = 1, worker = 'killed', "
            "started_at = now() WHERE id = %s",
            [lost.id],
        )
    for name in ("one", "two"):
        await queue_run(store, catalogue, name)
    async with running(catalogue, store, settings):
        lost = await eventually(store, lost, is_finished)
        assert (lost.outcome, lost.attempt) == ("done", 2)


@pytest.mark.usefixtures("paused")
async def test_a_run_that_waits_can_be_stopped_and_leaves_all_slots(
    store: Store, settings: Settings
) -> None:
    settings = one_slot(settings)
    busy = asyncio.Event()
    at_once: list[int] = []

    async def counts(context: RunContext) -> Outcome:
        at_once.append(1)
        busy.set()
        await asyncio.sleep(0.3)
        assert sum(at_once) == 1
        at_once.append(-1)
        return Outcome()

    catalogue = catalogue_with(settings, asks=BudgetedJob(1), first=counts, second=counts)
    async with running(catalogue, store, settings):
        for _ in range(3):
            asks = await eventually(store, await queue_run(store, catalogue, "asks"), waits)
            await stop_run(store, asks.id)
            assert (await eventually(store, asks, is_finished)).outcome == "interrupted"
        # Still one slot, not one more for each run that ended without it.
        runs = [await queue_run(store, catalogue, name) for name in ("first", "second")]
        for run in runs:
            assert (await eventually(store, run, is_finished)).outcome == "done"


@pytest.mark.usefixtures("paused")
async def test_a_stopped_worker_requeues_a_waiting_run(store: Store, settings: Settings) -> None:
    settings = one_slot(settings)
    catalogue = catalogue_with(settings, asks=BudgetedJob(1))
    async with running(catalogue, store, settings):
        asks = await eventually(store, await queue_run(store, catalogue, "asks"), waits)
    asks = await get_run(store, asks.id)
    assert (asks.state, asks.attempt) == ("queued", 0)
    await end_pause(store)
    async with running(catalogue, store, settings):
        assert (await eventually(store, asks, is_finished)).outcome == "done"


@pytest.mark.usefixtures("paused")
async def test_a_foreground_run_waits_with_a_progress_line(
    store: Store, settings: Settings
) -> None:
    settings = one_slot(settings)
    notes: asyncio.Queue[str] = asyncio.Queue()
    catalogue = catalogue_with(settings, asks=BudgetedJob(1))
    task = asyncio.create_task(
        run_in_foreground(
            catalogue,
            store,
            settings,
            "asks",
            on_progress=lambda *progress: notes.put_nowait(progress[2]),
        )
    )
    assert (await asyncio.wait_for(notes.get(), 20)).startswith("waiting for budget until")
    await end_pause(store)
    assert (await asyncio.wait_for(task, 30)).outcome == "done"
