"""The schedule on a real PostgreSQL whose clock the test controls."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest

from hasat.jobs import Catalogue, Job, Outcome, Run, RunContext
from hasat.jobs.connection import open_retrying_pool
from hasat.jobs.queue import enqueue, queue_run
from hasat.jobs.runs import list_runs
from hasat.jobs.schedule import Schedule
from hasat.settings import Settings
from hasat.store import Store, open_store

pytestmark = pytest.mark.anyio

START = datetime(2026, 5, 1, 12, 0, 30, tzinfo=UTC)


async def work(context: RunContext) -> Outcome:
    return Outcome()


class TurnedClock:
    """`clock_timestamp()` of one database, found before PostgreSQL's own by the search path."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def turn(self, moment: datetime) -> None:
        async with self._store.connection() as connection:
            await connection.execute("UPDATE turned.clock SET moment = %s", [moment])


@pytest.fixture
async def store(settings: Settings) -> AsyncIterator[Store]:
    """A store on a database whose clock stands still until it is turned."""
    async with open_store(settings) as plain, plain.connection() as connection:
        for statement in (
            "CREATE SCHEMA turned",
            "CREATE TABLE turned.clock (moment timestamptz)",
            f"INSERT INTO turned.clock VALUES ('{START.isoformat()}')",
            "CREATE FUNCTION turned.clock_timestamp() RETURNS timestamptz LANGUAGE sql"
            " AS 'SELECT moment FROM turned.clock'",
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path ="
            " turned, pg_catalog, public', current_database()); END $$",
        ):
            await connection.execute(statement.encode())
    async with open_store(settings) as store:
        yield store


@pytest.fixture
def clock(store: Store) -> TurnedClock:
    return TurnedClock(store)


def build_catalogue(settings: Settings, **job: Any) -> Catalogue:
    job = {"cron": "* * * * *", "zone": "UTC"} | job
    return Catalogue.of([Job("sample", work, "Sample.", **job)], settings)


async def tick(catalogue: Catalogue, store: Store) -> float:
    """The first tick of a worker that starts now."""
    async with open_retrying_pool(store) as database:
        return await Schedule(catalogue, database, poll_seconds=2.0).tick()


async def fired(store: Store) -> list[datetime]:
    runs = await list_runs(store, job="sample")
    return sorted(run.scheduled_for for run in runs if run.scheduled_for)


async def empty_queue(store: Store) -> None:
    async with store.connection() as connection:
        await connection.execute("DELETE FROM procrastinate_jobs")
        await connection.execute(
            "UPDATE jobs.run SET state = 'finished', outcome = 'done',"
            " finished_at = clock_timestamp() WHERE state <> 'finished'"
        )


def minute(n: float) -> datetime:
    return START.replace(second=0) + timedelta(minutes=n)


async def test_a_job_seen_for_the_first_time_counts_from_now(
    store: Store, settings: Settings, clock: TurnedClock
) -> None:
    catalogue = build_catalogue(settings)
    await tick(catalogue, store)
    assert await fired(store) == []
    await clock.turn(minute(1))
    await tick(catalogue, store)
    assert await fired(store) == [minute(1)]


async def test_the_next_check_is_at_the_next_due_time_within_the_poll_interval(
    store: Store, settings: Settings, clock: TurnedClock
) -> None:
    await clock.turn(minute(1) - timedelta(seconds=0.5))
    assert await tick(build_catalogue(settings), store) == 0.5
    assert await tick(build_catalogue(settings, cron="0 0 1 1 *"), store) == 2.0


async def test_many_workers_queue_a_due_time_once(
    store: Store, settings: Settings, clock: TurnedClock
) -> None:
    catalogue = build_catalogue(settings, overlap="queue")
    async with open_retrying_pool(store) as one, open_retrying_pool(store) as two:
        schedules = [Schedule(catalogue, database, 2.0) for database in (one, two, one, two)]
        await schedules[0].tick()
        for n in range(1, 16):
            await clock.turn(minute(n))
            await asyncio.gather(*(schedule.tick() for schedule in schedules))
    assert await fired(store) == [minute(n) for n in range(1, 16)]


@pytest.mark.parametrize(("missed", "expected"), [("once", [minute(300)]), ("skip", [])])
async def test_after_an_outage_a_job_runs_once_or_not_at_all(
    store: Store,
    settings: Settings,
    clock: TurnedClock,
    missed: Literal["once", "skip"],
    expected: list[datetime],
) -> None:
    catalogue = build_catalogue(settings, cron="0 * * * *", missed=missed)
    await tick(catalogue, store)
    await clock.turn(minute(302))
    await tick(catalogue, store)
    await tick(catalogue, store)
    assert await fired(store) == expected
    await empty_queue(store)
    await clock.turn(minute(360.5))
    await tick(catalogue, store)
    assert await fired(store) == [*expected, minute(360)]


async def test_a_changed_or_reenabled_schedule_counts_from_now(
    store: Store, settings: Settings, clock: TurnedClock
) -> None:
    await tick(build_catalogue(settings, cron="0 14 * * *"), store)
    await clock.turn(minute(60))
    await tick(build_catalogue(settings, cron="30 12 * * *"), store)  # would have been due at 12:30
    assert await fired(store) == []
    await tick(build_catalogue(settings, enabled=False), store)
    await clock.turn(minute(600))
    await tick(build_catalogue(settings), store)
    assert await fired(store) == []
    await clock.turn(minute(601))
    await tick(build_catalogue(settings), store)
    assert await fired(store) == [minute(601)]


async def test_a_clock_set_back_queues_no_due_time_twice(
    store: Store, settings: Settings, clock: TurnedClock
) -> None:
    catalogue = build_catalogue(settings, overlap="queue")
    await tick(catalogue, store)
    for n in (1, 2, 3, 1, 2, 3, 4):
        await clock.turn(minute(n))
        await tick(catalogue, store)  # each a worker that has just started
    assert await fired(store) == [minute(n) for n in (1, 2, 3, 4)]


async def test_while_a_run_is_open_due_times_are_skipped_and_counted_in_one_record(
    store: Store, settings: Settings, clock: TurnedClock
) -> None:
    catalogue = build_catalogue(settings)
    async with open_retrying_pool(store) as database:
        schedule = Schedule(catalogue, database, poll_seconds=2.0)
        await schedule.tick()
        for n in range(1, 51):
            await clock.turn(minute(n))
            await schedule.tick()
    skipped, busy = await list_runs(store, job="sample")
    assert (busy.scheduled_for, busy.state) == (minute(1), "queued")
    assert (skipped.scheduled_for, skipped.outcome) == (minute(2), "skipped")
    assert skipped.detail == {"behind": busy.id, "times": 49}
    assert str(busy.id) in (skipped.message or "")
    await empty_queue(store)
    await clock.turn(minute(51))
    await tick(catalogue, store)
    assert (await list_runs(store, job="sample"))[0].scheduled_for == minute(51)


async def test_a_job_that_may_queue_keeps_every_due_time(
    store: Store, settings: Settings, clock: TurnedClock
) -> None:
    catalogue = build_catalogue(settings, overlap="queue", params={"batch": 3})
    await tick(catalogue, store)
    for n in (1, 2, 3):
        await clock.turn(minute(n))
        await tick(catalogue, store)
    runs: list[Run] = await list_runs(store, job="sample")
    assert [run.state for run in runs] == ["queued"] * 3
    assert [(run.trigger, run.params) for run in runs] == [("schedule", {"batch": 3})] * 3


async def test_a_manual_run_makes_the_schedule_skip(
    store: Store, settings: Settings, clock: TurnedClock
) -> None:
    catalogue = build_catalogue(settings)
    by_hand = await queue_run(store, catalogue, "sample")
    await tick(catalogue, store)
    await clock.turn(minute(1))
    await tick(catalogue, store)
    assert (await list_runs(store))[0].detail == {"behind": by_hand.id, "times": 1}


async def test_the_database_rejects_a_second_run_of_a_due_time(
    store: Store, settings: Settings
) -> None:
    job = build_catalogue(settings).get("sample")
    for expected in (True, False):
        async with store.connection() as connection:
            run = await enqueue(connection, job, trigger="schedule", scheduled_for=minute(1))
            assert (run is not None) == expected
    async with store.connection() as connection:
        cursor = await connection.execute("SELECT count(*) FROM procrastinate_jobs")
        assert await cursor.fetchone() == (1,)


async def test_lane_source_and_zone_are_stored_with_the_job(
    store: Store, settings: Settings
) -> None:
    await tick(build_catalogue(settings, lane="backfill", source="football"), store)
    async with store.connection() as connection:
        cursor = await connection.execute("SELECT job, source, lane, cron, zone FROM jobs.schedule")
        assert await cursor.fetchall() == [("sample", "football", "backfill", "* * * * *", "UTC")]
