"""The worker on a real PostgreSQL: the outcome of a run, whatever its job does."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
import structlog

from hasat.errors import (
    ConflictError,
    DatabaseError,
    HasatError,
    HeldError,
    NotFoundError,
    NothingToDoError,
    OutOfQuotaError,
)
from hasat.feed.reconcile import Reconcile, Record
from hasat.jobs import Catalogue, Job, Outcome, Run, RunContext, Worker, platform_jobs
from hasat.jobs.attempt import Attempt
from hasat.jobs.connection import RetryingPool, open_retrying_pool
from hasat.jobs.queue import enqueue, queue_run, retry_run, stop_run
from hasat.jobs.runs import count_live_workers, get_run, list_runs, schedule_overview
from hasat.messages import Message, msg
from hasat.settings import Settings
from hasat.store import Store
from support import feed_toys

pytestmark = pytest.mark.anyio

Work = Callable[[RunContext], Awaitable[Outcome]]


def quick(settings: Settings, **jobs: Any) -> Settings:
    values = {"heartbeat_seconds": 0.2, "stalled_seconds": 3.0, "drain_seconds": 5.0} | jobs
    return settings.model_copy(update={"jobs": settings.jobs.model_copy(update=values)})


def catalogue_with(settings: Settings, **works: Work) -> Catalogue:
    jobs = [Job(name, work, f"The job {name}.", source="sample") for name, work in works.items()]
    return Catalogue.of(jobs, settings)


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


async def until(
    condition: Callable[[], Awaitable[Any]], what: str = "the condition", seconds: float = 20
) -> Any:
    deadline = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < deadline:
        if found := await condition():
            return found
        await asyncio.sleep(0.03)
    raise AssertionError(f"waited {seconds} s for {what}")


async def finished(store: Store, run_id: int) -> Run:
    async def look() -> Run | None:
        run = await get_run(store, run_id)
        return run if run.state == "finished" else None

    run: Run = await until(look, f"run {run_id} to finish")
    return run


async def rows(store: Store, query: Any, *values: Any) -> list[tuple[Any, ...]]:
    async with store.connection() as connection:
        cursor = await connection.execute(query, values)
        return await cursor.fetchall() if cursor.description else []


async def queue_length(store: Store) -> int:
    return int((await rows(store, "SELECT count(*) FROM procrastinate_jobs"))[0][0])


async def done(context: RunContext) -> Outcome:
    return Outcome()


async def test_a_run_is_recorded_with_the_outcome_of_its_job(
    store: Store, settings: Settings
) -> None:
    async def work(context: RunContext) -> Outcome:
        context.count_requests(2)
        await context.progress(1, 2, "half-way")
        context.count_requests()
        return Outcome(
            rows_changed=7, detail={"at": datetime(2026, 1, 1, tzinfo=UTC)}, message="ok"
        )

    settings = quick(settings)
    catalogue = catalogue_with(settings, sample=work)
    async with running(catalogue, store, settings):
        queued = await queue_run(store, catalogue, "sample", {"league": 39})
        run = await finished(store, queued.id)
    assert (run.outcome, run.rows_changed, run.requests, run.message) == ("done", 7, 3, "ok")
    assert (run.attempt, run.trigger, run.params) == (1, "hand", {"league": 39})
    assert run.detail == {"at": "2026-01-01 00:00:00+00:00"}
    assert run.progress == {"done": 1, "total": 2, "note": "half-way"}
    assert run.started_at is not None
    assert run.finished_at is not None
    assert run.queued_at <= run.started_at <= run.finished_at
    assert await queue_length(store) == 0


async def test_a_stored_message_keeps_its_template_without_secrets(
    store: Store, settings: Settings
) -> None:
    async def work(context: RunContext) -> Outcome:
        raise HasatError(msg("No user {number}.", number="12345678901"), remedy=msg("Add one."))

    settings = quick(settings)
    catalogue = catalogue_with(settings, sample=work)
    async with running(catalogue, store, settings):
        queued = await queue_run(store, catalogue, "sample")
        run = await finished(store, queued.id)
    assert run.message == "No user 123******01. Add one."
    assert isinstance(run.message, Message)
    assert [getattr(part, "template", "") for part in run.message.params.values()] == [
        "No user {number}.",
        "Add one.",
    ]


RAISED: dict[str, tuple[BaseException, str, str]] = {
    "nothing": (NothingToDoError("All is done."), "nothing", "All is done."),
    "held": (HeldError("Held.", remedy="Approve it."), "held", "Held. Approve it."),
    "quota": (OutOfQuotaError("Spent until noon."), "out_of_quota", "Spent until noon."),
    "known": (HasatError("It broke.", remedy="Repair it."), "failed", "It broke. Repair it."),
    "bug": (ValueError("a\0b 12345678901"), "failed", "The job stopped with an unexpected error"),
    "exit": (SystemExit(3), "failed", "The job stopped with an unexpected error"),
    "cancels": (asyncio.CancelledError(), "failed", "The job cancelled itself."),
    "file": (FileNotFoundError("x"), "failed", "The job stopped with an unexpected error"),
}


def raiser(error: BaseException) -> Work:
    async def work(context: RunContext) -> Outcome:
        raise error

    return work


def returner(outcome: Any) -> Work:
    async def work(context: RunContext) -> Outcome:
        assert outcome is None or isinstance(outcome, Outcome)
        return outcome  # type: ignore[return-value]

    return work


async def test_any_error_of_a_job_becomes_an_outcome_and_the_worker_continues(
    store: Store, settings: Settings
) -> None:
    settings = quick(settings)
    works = {name: raiser(error) for name, (error, _, _) in RAISED.items()}
    catalogue = catalogue_with(settings, **works, last=done)
    async with running(catalogue, store, settings):
        queued = {name: await queue_run(store, catalogue, name) for name in works}
        runs = {name: await finished(store, run.id) for name, run in queued.items()}
        last = await finished(store, (await queue_run(store, catalogue, "last")).id)
    for name, (_, outcome, message) in RAISED.items():
        assert (runs[name].outcome, runs[name].attempt) == (outcome, 1), name
        assert (runs[name].message or "").startswith(message), name
    assert runs["bug"].error == "ValueError: ab 123******01"
    assert last.outcome == "done"


async def test_an_outcome_that_cannot_be_stored_fails_the_run_and_not_the_worker(
    store: Store, settings: Settings
) -> None:
    odd = {
        "nan": Outcome(detail={"ratio": float("nan")}),
        "nul": Outcome(detail={"name": "\0"}),
        "surrogate": Outcome(detail={"name": "\ud800"}),
        "unknown_kind": Outcome(kind="splendid"),  # type: ignore[arg-type]
        "huge": Outcome(rows_changed=2**70),
        "none": None,
    }
    settings = quick(settings)
    works = {name: returner(outcome) for name, outcome in odd.items()}
    catalogue = catalogue_with(settings, **works)
    async with running(catalogue, store, settings):
        queued = [await queue_run(store, catalogue, name) for name in odd]
        for run in [await finished(store, run.id) for run in queued]:
            assert run.outcome == "failed", run.job
            assert run.error, run.job
    assert await queue_length(store) == 0


async def test_a_run_that_failed_with_the_database_has_three_attempts_at_most(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hasat.jobs.worker._RETRY_PAUSE_SECONDS", 0.05)
    attempts: list[int] = []

    async def recovers(context: RunContext) -> Outcome:
        attempts.append(context.run_id)
        context.count_requests()
        if len(attempts) < 3:
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return Outcome()

    settings = quick(settings)
    catalogue = catalogue_with(settings, recovers=recovers, never=raiser(DatabaseError("Gone.")))
    async with running(catalogue, store, settings):
        good = await finished(store, (await queue_run(store, catalogue, "recovers")).id)
        bad = await finished(store, (await queue_run(store, catalogue, "never")).id)
    assert (good.outcome, good.attempt, good.requests) == ("done", 3, 3)
    assert (bad.outcome, bad.attempt, bad.message) == ("failed", 3, "Gone.")


async def test_log_events_of_a_run_have_run_job_and_source(
    store: Store, settings: Settings
) -> None:
    async def work(context: RunContext) -> Outcome:
        structlog.get_logger("deep.inside").warning("from below")
        context.log.warning("from the job")
        return Outcome()

    settings = quick(settings)
    catalogue = catalogue_with(settings, sample=work)
    with structlog.testing.capture_logs(
        processors=[structlog.contextvars.merge_contextvars]
    ) as lines:
        async with running(catalogue, store, settings):
            run = await finished(store, (await queue_run(store, catalogue, "sample")).id)
    said = {line["event"]: line for line in lines}
    for event in ("from below", "from the job"):
        assert said[event]["run"] == run.id
        assert said[event]["job"] == "sample"
        assert said[event]["source"] == "sample"


async def test_runs_of_one_job_take_turns_and_those_of_others_do_not_wait(
    store: Store, settings: Settings
) -> None:
    gate, entered = asyncio.Event(), []

    async def slow(context: RunContext) -> Outcome:
        entered.append(context.run_id)
        await gate.wait()
        return Outcome()

    settings = quick(settings)
    catalogue = catalogue_with(settings, slow=slow, other=done)
    async with running(catalogue, store, settings):
        first = await queue_run(store, catalogue, "slow")
        second = await queue_run(store, catalogue, "slow")
        other = await queue_run(store, catalogue, "other")
        await finished(store, other.id)
        assert entered == [first.id]
        assert (await get_run(store, second.id)).state == "queued"
        gate.set()
        await finished(store, second.id)
    assert entered == [first.id, second.id]


async def test_draining_lets_running_work_finish_and_takes_nothing_new(
    store: Store, settings: Settings
) -> None:
    gate, entered = asyncio.Event(), asyncio.Event()

    async def slow(context: RunContext) -> Outcome:
        entered.set()
        await gate.wait()
        return Outcome(rows_changed=1)

    # The drain lasts longer than a silent worker is waited for: its pulse must go on.
    settings = quick(settings, stalled_seconds=2.5, drain_seconds=60.0)
    catalogue = catalogue_with(settings, slow=slow, other=done)
    async with running(catalogue, store, settings) as draining:
        first = await queue_run(store, catalogue, "slow")
        await entered.wait()
        draining.drain()
        later = await queue_run(store, catalogue, "other")
        again = await queue_run(store, catalogue, "slow")
        async with running(catalogue_with(settings, slow=slow), store, settings):
            drained_at = await store.now()
            await until(lambda: is_past(store, drained_at, 2 * 2.5), "time to pass")
            assert (await get_run(store, first.id)).state == "running"
            assert (await get_run(store, later.id)).state == "queued"
            gate.set()
            run = await finished(store, first.id)
            await finished(store, again.id)
    assert (run.outcome, run.attempt, run.rows_changed) == ("done", 1, 1)


async def test_a_run_fetched_after_the_drain_began_is_requeued(
    store: Store, settings: Settings
) -> None:
    settings = quick(settings)
    catalogue = catalogue_with(settings, other=done)
    async with running(catalogue, store, settings) as draining:
        async with store.connection() as connection:
            await connection.execute("LOCK TABLE procrastinate_jobs")
            run_id = await enqueue(connection, catalogue.get("other"), trigger="hand")
            await until(lambda: is_looking(store), "a look that waits for the lock")
            draining.drain()
        left = "SELECT status FROM procrastinate_jobs WHERE attempts > 0"
        assert await until(lambda: rows(store, left), "the run to come back") == [("todo",)]
    assert run_id is not None
    run = await get_run(store, run_id)
    assert (run.state, run.attempt) == ("queued", 0)


async def is_looking(store: Store) -> bool:
    waiting = (
        "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ 'fetch_job'"
    )
    return bool(await rows(store, waiting))


async def is_past(store: Store, moment: datetime, seconds: float) -> bool:
    return (await store.now() - moment).total_seconds() > seconds


async def test_a_run_that_outlasts_the_drain_is_requeued_without_counting(
    store: Store, settings: Settings
) -> None:
    entered = asyncio.Event()

    async def stubborn(context: RunContext) -> Outcome:
        context.count_requests()
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
        return Outcome()

    async def angry(context: RunContext) -> Outcome:
        try:
            return await stubborn(context)
        except asyncio.CancelledError:
            raise ValueError("torn out of my work") from None

    settings = quick(settings, drain_seconds=0.2)
    catalogue = catalogue_with(settings, stubborn=stubborn, angry=angry)
    queued = [await queue_run(store, catalogue, name) for name in ("stubborn", "angry")]
    worker = Worker(catalogue, store, settings, poll_seconds=0.05)
    task = asyncio.create_task(worker.run())
    await entered.wait()
    await until(lambda: both_running(store), "both runs to work")
    worker.drain()
    await asyncio.wait_for(task, 10)
    for run in [await get_run(store, run.id) for run in queued]:
        assert (run.state, run.attempt, run.worker, run.requests) == ("queued", 0, None, 1)
    catalogue = catalogue_with(settings, stubborn=done, angry=done)
    async with running(catalogue, store, settings):
        for run in queued:
            taken_up = await finished(store, run.id)
            assert (taken_up.outcome, taken_up.attempt) == ("done", 1)


async def both_running(store: Store) -> bool:
    open_runs = await list_runs(store, unfinished=True)
    return [run.state for run in open_runs] == ["running", "running"]


async def test_a_cancelled_worker_requeues_its_runs(store: Store, settings: Settings) -> None:
    entered = asyncio.Event()

    async def slow(context: RunContext) -> Outcome:
        entered.set()
        await asyncio.Event().wait()
        return Outcome()

    catalogue = catalogue_with(quick(settings), slow=slow)
    queued = await queue_run(store, catalogue, "slow")
    task = asyncio.create_task(Worker(catalogue, store, quick(settings), poll_seconds=0.05).run())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await get_run(store, queued.id)).state == "queued"
    assert await count_live_workers(store, settings) == 0


async def test_a_worker_ignores_unknown_jobs(store: Store, settings: Settings) -> None:
    settings = quick(settings)
    new = catalogue_with(settings, old_job=done, new_job=done)
    queued = await queue_run(store, new, "new_job")
    old = catalogue_with(settings, old_job=done)
    async with running(old, store, settings):
        await finished(store, (await queue_run(store, old, "old_job")).id)
        assert (await get_run(store, queued.id)).state == "queued"
    async with running(new, store, settings):
        assert (await finished(store, queued.id)).outcome == "done"


async def test_a_worker_that_was_given_up_stops_its_run_and_cannot_overwrite_the_new_attempt(
    store: Store, settings: Settings
) -> None:
    """A worker that was only slow: the others act as if it had died, then it comes back."""
    entered, stopped = asyncio.Queue[int](), asyncio.Event()
    gate = asyncio.Event()

    async def slow(context: RunContext) -> Outcome:
        entered.put_nowait(context.run_id)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.set()
            # It finishes all the same, and reports an end that must not count.
            return Outcome(rows_changed=666)
        return Outcome()

    async def second(context: RunContext) -> Outcome:
        entered.put_nowait(context.run_id)
        await gate.wait()
        return Outcome(rows_changed=1)

    settings = quick(settings, heartbeat_seconds=0.5, drain_seconds=60.0)
    slow_catalogue = catalogue_with(settings, sample=slow)
    async with running(slow_catalogue, store, settings) as first:
        queued = await queue_run(store, slow_catalogue, "sample")
        await entered.get()
        first.drain()  # so that it does not take the run again itself
        await rows(store, "DELETE FROM procrastinate_workers")
        async with running(catalogue_with(settings, sample=second), store, settings):
            await asyncio.wait_for(entered.get(), 10)
            await asyncio.wait_for(stopped.wait(), 10)
            begun_anew = await get_run(store, queued.id)
            assert (begun_anew.state, begun_anew.attempt) == ("running", 2)
            gate.set()
            run = await finished(store, queued.id)
    assert (run.outcome, run.attempt, run.rows_changed) == ("done", 2, 1)
    assert await queue_length(store) == 0


async def test_a_worker_that_was_given_up_registers_again_and_continues(
    store: Store, settings: Settings
) -> None:
    settings = quick(settings)
    catalogue = catalogue_with(settings, sample=done)
    async with running(catalogue, store, settings):
        before = await rows(store, "DELETE FROM procrastinate_workers RETURNING id")
        await until(lambda: count_live_workers(store, settings), "a new number")
        assert await rows(store, "SELECT id FROM procrastinate_workers") != before
        run = await finished(store, (await queue_run(store, catalogue, "sample")).id)
    assert run.outcome == "done"


async def test_a_row_whose_assignment_was_lost_is_recovered(
    store: Store, settings: Settings
) -> None:
    settings = quick(settings)
    catalogue = catalogue_with(settings, sample=done)
    async with running(catalogue, store, settings):
        async with store.connection() as connection:
            # Handed out in the same transaction: the worker never sees it waiting.
            queued = await _queued_as_doing(connection)
        run = await finished(store, queued)
    assert (run.outcome, run.attempt) == ("done", 1)


async def _queued_as_doing(connection: Any) -> int:
    cursor = await connection.execute(
        "INSERT INTO jobs.run (job, trigger) VALUES ('sample', 'hand') RETURNING id"
    )
    (run_id,) = await cursor.fetchone()
    await connection.execute(
        "WITH q AS (INSERT INTO procrastinate_jobs"
        " (queue_name, task_name, lock, args, status, worker_id)"
        " SELECT 'job:sample', 'hasat.run', 'sample', %s::jsonb, 'doing', max(id)"
        " FROM procrastinate_workers RETURNING id)"
        " UPDATE jobs.run SET queue_id = q.id FROM q WHERE jobs.run.id = %s",
        [json.dumps({"run_id": run_id}), run_id],
    )
    return int(run_id)


async def _started(
    database: RetryingPool,
    catalogue: Catalogue,
    settings: Settings,
    store: Store,
    run_id: int,
    queue_id: int,
    worker_id: int,
) -> Attempt | None:
    """An attempt in the hands of a worker that does not exist."""
    return await Attempt.begin(
        database,
        run_id=run_id,
        queue_id=queue_id,
        worker_id=worker_id,
        worker="somewhere:1",
        job_of=catalogue.get,
        settings=settings,
        store=store,
    )


@asynccontextmanager
async def _taken_over(
    catalogue: Catalogue, settings: Settings, store: Store
) -> AsyncIterator[Attempt]:
    """A run of `sample` that a worker has begun which gives no sign of life."""
    await rows(store, "INSERT INTO procrastinate_workers DEFAULT VALUES")
    async with store.connection() as connection:
        run_id = await _queued_as_doing(connection)
    ((queue_id, worker_id),) = await rows(store, "SELECT id, worker_id FROM procrastinate_jobs")
    async with open_retrying_pool(store) as database:
        attempt = await _started(database, catalogue, settings, store, run_id, queue_id, worker_id)
        assert attempt is not None
        yield attempt


async def test_a_worker_that_lost_its_row_starts_nothing(store: Store, settings: Settings) -> None:
    settings = quick(settings)
    catalogue = catalogue_with(settings, sample=done)
    ((late,), (current,)) = await rows(
        store, "INSERT INTO procrastinate_workers SELECT FROM generate_series(1, 2) RETURNING id"
    )
    async with store.connection() as connection:
        run_id = await _queued_as_doing(connection)  # the newest worker has it
    ((queue_id,),) = await rows(store, "SELECT id FROM procrastinate_jobs")
    async with open_retrying_pool(store) as database:
        begun = [
            await _started(database, catalogue, settings, store, run_id, queue_id, worker_id)
            # The second time stands for a start whose answer got lost: it counts once.
            for worker_id in (late, current, current)
        ]
    assert [attempt and attempt.run.attempt for attempt in begun] == [None, 1, 1]


async def test_a_run_missing_from_the_queue_does_not_block_its_job(
    store: Store, settings: Settings
) -> None:
    settings = quick(settings)
    catalogue = catalogue_with(settings, sample=done)
    stray = await queue_run(store, catalogue, "sample")
    await rows(store, "DELETE FROM procrastinate_jobs")
    with pytest.raises(ConflictError, match="missing from the queue"):
        await stop_run(store, stray.id)
    async with running(catalogue, store, settings):
        run = await finished(store, stray.id)
    assert run.outcome == "interrupted"
    assert run.message is not None
    assert f"hasat jobs retry {stray.id}" in run.message


async def test_only_a_finished_run_can_be_retried(store: Store, settings: Settings) -> None:
    settings = quick(settings)
    catalogue = catalogue_with(settings, sample=done)
    first = await queue_run(store, catalogue, "sample", {"league": 39})
    with pytest.raises(ConflictError, match="not finished"):
        await retry_run(store, catalogue, first.id)
    with pytest.raises(NotFoundError):
        await retry_run(store, catalogue, first.id + 1000)
    async with running(catalogue, store, settings):
        await finished(store, first.id)
        again = await retry_run(store, catalogue, first.id)
        run = await finished(store, again.id)
    assert (run.trigger, run.params, run.outcome) == ("retry", {"league": 39}, "done")


async def test_a_queued_run_is_stopped_at_once(store: Store, settings: Settings) -> None:
    settings = quick(settings)
    catalogue = catalogue_with(settings, sample=done)
    waiting = await queue_run(store, catalogue, "sample")
    stopped = await stop_run(store, waiting.id)
    assert (stopped.state, stopped.outcome) == ("finished", "interrupted")
    assert stopped.message == "Stopped manually while queued."
    assert await queue_length(store) == 0
    with pytest.raises(ConflictError, match="already finished"):
        await stop_run(store, waiting.id)
    with pytest.raises(NotFoundError):
        await stop_run(store, waiting.id + 1000)


async def test_a_running_run_is_stopped_by_its_worker(store: Store, settings: Settings) -> None:
    async def endless(context: RunContext) -> Outcome:
        context.count_requests()
        await asyncio.Event().wait()
        return Outcome()

    async def angry(context: RunContext) -> Outcome:
        try:
            return await endless(context)
        except asyncio.CancelledError:
            raise ValueError("torn out of my work") from None

    settings = quick(settings)
    catalogue = catalogue_with(settings, endless=endless, angry=angry)
    queued = [await queue_run(store, catalogue, name) for name in ("endless", "angry")]
    async with running(catalogue, store, settings):
        await until(lambda: both_running(store), "both runs to work")
        for run in queued:
            asked = await stop_run(store, run.id)
            assert (asked.state, asked.message) == ("running", "Stopping on request.")
            with suppress(ConflictError):  # it may have ended meanwhile
                await stop_run(store, run.id)
            over = await finished(store, run.id)
            assert (over.outcome, over.requests) == ("interrupted", 1)
            assert over.message == "Stopped manually before it finished."
        assert await queue_length(store) == 0
        again = await retry_run(store, catalogue, queued[0].id)
        await until(lambda: is_running(store, again.id), "the job's lock to be free")
        await stop_run(store, again.id)
        await finished(store, again.id)


async def is_running(store: Store, run_id: int) -> bool:
    return (await get_run(store, run_id)).state == "running"


@pytest.mark.parametrize("way", ["drained", "died"])
async def test_a_run_that_was_asked_to_stop_is_not_retried(
    store: Store, settings: Settings, way: str
) -> None:
    settings = quick(settings)
    catalogue = catalogue_with(settings, sample=done)
    async with _taken_over(catalogue, settings, store) as attempt:
        run_id = attempt.run.id
        await stop_run(store, run_id)
        if way == "drained":
            assert await attempt.requeue(counts=False)
        else:
            await rows(store, "DELETE FROM procrastinate_workers")
    async with running(catalogue, store, settings):
        run = await finished(store, run_id)
    assert (run.outcome, run.attempt, run.worker) == ("interrupted", 1, "somewhere:1")
    assert run.message == "Stopped manually before it finished."
    assert await queue_length(store) == 0


@pytest.mark.parametrize("way", ["stopped", "failed", "drained", "died"])
async def test_what_a_run_committed_counts_however_it_ends(
    store: Store, settings: Settings, way: str
) -> None:
    await feed_toys.make_table(store)

    async def commits(context: RunContext) -> Outcome:
        await feed_toys.run(store, {"ball": {}, "kite": {}}, run_id=context.run_id)
        await feed_toys.run(store, {"ball": {"red": True}}, run_id=context.run_id)
        if way == "failed":
            raise HasatError("And then it fails.")
        await stop_run(store, context.run_id)
        asked.set()
        await asyncio.Event().wait()
        return Outcome()

    asked = asyncio.Event()
    settings = quick(settings)
    catalogue = catalogue_with(settings, sample=commits)
    if way in ("stopped", "failed"):
        async with running(catalogue, store, settings):
            run = await finished(store, (await queue_run(store, catalogue, "sample")).id)
    else:
        async with _taken_over(catalogue, settings, store) as attempt:
            work = asyncio.create_task(attempt.perform())
            await asyncio.wait_for(asked.wait(), 20)
            work.cancel()
            if way == "drained":
                assert await attempt.requeue(counts=False)
            else:
                await rows(store, "DELETE FROM procrastinate_workers")
        async with running(catalogue, store, settings):
            run = await finished(store, attempt.run.id)
    assert run.outcome == ("failed" if way == "failed" else "interrupted")
    assert run.rows_changed == 4


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_run_ends_with_its_commit_unless_it_was_taken_over(
    store: Store, settings: Settings, replaced: bool
) -> None:
    await feed_toys.make_table(store)

    async def commits(context: RunContext) -> Outcome:
        outcome = Outcome(rows_changed=1, detail={"toys": 1})
        async with Reconcile.begin(store, [feed_toys.TOYS]) as work:
            await work.stage(feed_toys.TOYS, [Record("ball", b"{}")])
            await work.diff(feed_toys.TOYS)
            await work.write(run=context.run_id, retention_days=30)
            await context.conclude(work.connection, outcome)
        return outcome

    settings = quick(settings)
    catalogue = catalogue_with(settings, sample=commits)
    async with _taken_over(catalogue, settings, store) as attempt:
        if replaced:
            await rows(store, "UPDATE jobs.run SET attempt = attempt + 1")
        ending = await attempt.perform()
        run = await get_run(store, attempt.run.id)
        if replaced:
            assert (ending.outcome, run.state, run.rows_changed) == ("failed", "running", 0)
            assert await feed_toys.mirror(store) == {}
            return
        assert (run.state, run.outcome, run.rows_changed) == ("finished", "done", 1)
        assert run.detail == {"toys": 1}
        assert await queue_length(store) == 0
        assert await attempt.finish(ending), "the end that is recorded already counts"


async def test_a_run_taken_over_by_another_worker_is_not_requeued(
    store: Store, settings: Settings
) -> None:
    """Not even if that happens while the statement waits for the queue's row."""
    settings = quick(settings)
    in_hand = "SELECT status, worker_id FROM procrastinate_jobs"

    async def waits() -> bool:
        waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
        return bool(await rows(store, waiting))

    catalogue = catalogue_with(settings, sample=done)
    async with _taken_over(catalogue, settings, store) as late:
        before = await rows(store, in_hand)
        async with store.connection() as connection:
            await connection.execute("SELECT FROM procrastinate_jobs FOR UPDATE")
            giving = asyncio.create_task(late.requeue(counts=False))
            await until(waits, "the statement to wait")
            await connection.execute("UPDATE jobs.run SET attempt = 2, worker = 'elsewhere:2'")
        assert not await giving
    ((status, worker_id),) = before
    assert (status, worker_id is None) == ("doing", False)
    assert await rows(store, in_hand) == before
    run = await get_run(store, late.run.id)
    assert (run.state, run.attempt, run.worker) == ("running", 2, "elsewhere:2")


async def test_history_and_overview_filter_runs(store: Store, settings: Settings) -> None:
    settings = quick(settings)
    catalogue = Catalogue.of(
        [
            Job("good", done, "Good.", cron="0 4 * * *"),
            Job("bad", raiser(ValueError()), "Bad.", cron="0 5 * * *"),
            Job("off", done, "Off.", cron="0 6 * * *", enabled=False),
        ],
        settings,
    )
    async with running(catalogue, store, settings):
        good = await finished(store, (await queue_run(store, catalogue, "good")).id)
        bad = await finished(store, (await queue_run(store, catalogue, "bad")).id)
    assert [run.id for run in await list_runs(store)] == [bad.id, good.id]
    assert [run.id for run in await list_runs(store, bad=True)] == [bad.id]
    assert [run.id for run in await list_runs(store, job="good")] == [good.id]
    assert [run.id for run in await list_runs(store, before=bad.id, limit=1)] == [good.id]
    overview = {item.job.name: item for item in await schedule_overview(store, catalogue)}
    assert overview["off"].next_due is None
    assert overview["off"].last_run is None
    assert overview["bad"].last_run == bad
    next_due = overview["good"].next_due
    assert next_due is not None
    assert next_due > await store.now()
    assert (next_due.astimezone(UTC).hour, next_due.minute) == (1, 0)  # 04:00 in Istanbul


async def test_housekeeping_deletes_expired_runs_except_the_last_of_each_job(
    store: Store, settings: Settings
) -> None:
    settings = quick(settings, keep_runs_days=30)
    catalogue = Catalogue.of([*platform_jobs(), Job("sample", done, "Sample.")], settings)
    old = [await queue_run(store, catalogue, "sample") for _ in range(3)]
    async with running(catalogue, store, settings):
        for run in old:
            await finished(store, run.id)
        await rows(
            store,
            "UPDATE jobs.run SET finished_at = clock_timestamp() - interval '31 days'",
        )
        await rows(
            store,
            "INSERT INTO procrastinate_jobs (queue_name, task_name, status, args) VALUES"
            " ('job:x', 'hasat.run', 'failed', '{}'), ('job:x', 'hasat.run', 'todo', '{}')",
        )
        await rows(
            store,
            "INSERT INTO raw.set_aside (source, origin, reason, content, at)"
            " SELECT 'sample', origin, '', '', clock_timestamp() - age FROM (VALUES"
            " ('old', interval '31 days'), ('new', interval '29 days')) AS t (origin, age)",
        )
        kept = await finished(store, (await queue_run(store, catalogue, "housekeeping")).id)
        assert (kept.outcome, kept.rows_changed) == ("done", 5)
        assert await rows(store, "SELECT origin FROM raw.set_aside") == [("new",)]
        assert [run.id for run in await list_runs(store, job="sample")] == [old[-1].id]
        assert await queue_length(store) == 0
        idle = await finished(store, (await queue_run(store, catalogue, "housekeeping")).id)
    assert idle.outcome == "nothing"


async def test_a_run_is_stopped_while_a_worker_takes_it(store: Store, settings: Settings) -> None:
    async def idle(context: RunContext) -> Outcome:
        return Outcome()

    run = await queue_run(store, catalogue_with(settings, touchy=idle), "touchy")
    waits = (
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        " AND datname = current_database())"
    )
    async with store.connection() as taking:
        await taking.execute("UPDATE procrastinate_jobs SET status = 'doing'")
        stopping = asyncio.create_task(stop_run(store, run.id))
        async with asyncio.timeout(20):
            while await rows(store, waits) != [(True,)]:  # noqa: ASYNC110 - PostgreSQL decides
                await asyncio.sleep(0.01)
    await stopping
    assert await rows(store, "SELECT abort_requested FROM procrastinate_jobs") == [(True,)]


async def test_a_job_never_runs_twice_at_once_however_workers_come_and_go(
    store: Store, settings: Settings
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    inside: list[int] = []
    completed: list[int] = []
    stopped: set[int] = set()

    async def touchy(context: RunContext) -> Outcome:
        assert not inside, f"run {context.run_id} met {inside}"
        inside.append(context.run_id)
        try:
            await asyncio.sleep(chance.random() * 0.05)
            completed.append(context.run_id)
        finally:
            inside.remove(context.run_id)
        return Outcome()

    settings = quick(settings, drain_seconds=0.02)
    catalogue = catalogue_with(settings, touchy=touchy)
    queued = [(await queue_run(store, catalogue, "touchy")).id for _ in range(25)]

    async def comes_and_goes() -> None:
        while len(stopped.union(completed)) < len(queued):
            worker = Worker(catalogue, store, settings, poll_seconds=0.02, schedule_seconds=0.1)
            task = asyncio.create_task(worker.run())
            await worker.started.wait()
            await asyncio.sleep(chance.random() * 0.6)
            chance.choice([worker.drain, worker.stop_now])()
            await task

    async def stops_some() -> None:
        for run_id in chance.sample(queued, 8):
            await asyncio.sleep(chance.random() * 0.3)
            with suppress(ConflictError):
                await stop_run(store, run_id)
                stopped.add(run_id)

    async with asyncio.timeout(40), asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(comes_and_goes())
        group.create_task(stops_some())
    async with running(catalogue, store, settings):
        for run_id in queued:
            outcome = (await finished(store, run_id)).outcome
            # One that was about to end when it was asked to stop may be done all the same.
            assert outcome in {"done", "interrupted"}, run_id
            assert outcome == "done" or run_id in stopped
    assert await queue_length(store) == 0


async def test_a_worker_without_its_database_can_be_stopped(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hasat.jobs.worker._GIVE_UP_SECONDS", 0.3)
    entered = asyncio.Event()

    async def slow(context: RunContext) -> Outcome:
        entered.set()
        await asyncio.Event().wait()
        return Outcome()

    settings = quick(settings, stalled_seconds=60.0)
    catalogue = catalogue_with(settings, slow=slow)
    queued = await queue_run(store, catalogue, "slow")
    worker = Worker(catalogue, store, settings, poll_seconds=0.05)
    task = asyncio.create_task(worker.run())
    await entered.wait()
    async with database_away(store):
        worker.stop_now()
        await asyncio.wait_for(task, 30)
    run = await get_run(store, queued.id)
    assert (run.state, run.attempt) == ("running", 1)  # left for the others to take up


async def test_a_disconnected_worker_stops_its_run_before_it_is_taken_over(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hasat.jobs.worker._RETRY_PAUSE_SECONDS", 0.05)
    entered, stopped = asyncio.Event(), asyncio.Event()

    async def cut_off(context: RunContext) -> Outcome:
        if stopped.is_set():
            return Outcome()
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return Outcome()

    settings = quick(settings)
    catalogue = catalogue_with(settings, cut_off=cut_off)
    queued = await queue_run(store, catalogue, "cut_off")
    async with running(catalogue, store, settings):
        await asyncio.wait_for(entered.wait(), 10)
        async with database_away(store):
            await asyncio.wait_for(stopped.wait(), 10)
        run = await finished(store, queued.id)
    assert (run.outcome, run.attempt) == ("done", 2)


@asynccontextmanager
async def database_away(store: Store) -> AsyncIterator[None]:
    """As if PostgreSQL were gone: every connection is cut, none can be made."""
    async with await psycopg.AsyncConnection.connect(
        store.url, dbname="postgres", autocommit=True
    ) as admin:
        (name,) = (await rows(store, "SELECT current_database()"))[0]
        allow = psycopg.sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
        await admin.execute(allow.format(psycopg.sql.Identifier(name), False))
        await admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
        )
        yield
        await admin.execute(allow.format(psycopg.sql.Identifier(name), True))
