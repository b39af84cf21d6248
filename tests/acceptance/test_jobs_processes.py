"""Real worker processes on a real PostgreSQL, killed and cut off in the middle of their work.

This file is also the program that the tests start: ``worker FOLDER`` or ``hand FOLDER JOB``.
"""

import asyncio
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest

from hasat.jobs import Catalogue, Job, Outcome, Run, RunContext, Worker, run_in_foreground
from hasat.jobs.queue import queue_run
from hasat.jobs.runs import get_run, list_runs
from hasat.logs import configure_logging
from hasat.settings import Settings, load_settings
from hasat.store import Store, open_store
from hasat.store.embedded.server import EmbeddedServer

pytestmark = pytest.mark.anyio

FOLDER = "HASAT_TEST_FOLDER"


def quick(settings: Settings) -> Settings:
    values = {"heartbeat_seconds": 0.3, "stalled_seconds": 2.5, "drain_seconds": 10.0}
    return settings.model_copy(update={"jobs": settings.jobs.model_copy(update=values)})


# What the processes run.


async def lasting(context: RunContext) -> Outcome:
    """Says that it was entered, and by whom; waits until the file `open` is there."""
    folder = Path(os.environ[FOLDER])
    (folder / f"entered-{context.run_id}-{os.getpid()}").touch()
    while not (folder / "open").exists():  # noqa: ASYNC110 - another process opens the gate
        await asyncio.sleep(0.03)
    return Outcome(rows_changed=1)


async def deadly(context: RunContext) -> Outcome:
    (Path(os.environ[FOLDER]) / f"entered-{context.run_id}-{os.getpid()}").touch()
    os._exit(9)


async def touchy(context: RunContext) -> Outcome:
    """Notices, over all processes, when it is not alone; a killed process frees the lock."""
    folder = Path(os.environ[FOLDER])
    with (folder / "touchy.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            (folder / f"violation-{context.run_id}-{os.getpid()}").touch()
        await asyncio.sleep(0.15)
    return Outcome()


async def counted(context: RunContext) -> Outcome:
    async with context.store.connection() as connection:
        await connection.execute(
            "INSERT INTO turned.done VALUES (%s, %s)", [context.run_id, os.getpid()]
        )
    return Outcome()


def build_catalogue(settings: Settings) -> Catalogue:
    timed = os.environ.get("HASAT_TEST_TIMED") == "1"
    return Catalogue.of(
        [
            Job("lasting", lasting, "Waits for a file."),
            Job("deadly", deadly, "Kills its worker."),
            Job("touchy", touchy, "Must be alone."),
            Job("counted", counted, "Counts.", cron="* * * * *", overlap="queue", enabled=timed),
        ],
        settings,
    )


async def program(mode: str, *names: str) -> None:
    settings = quick(load_settings())
    configure_logging(settings)
    async with open_store(settings) as store:
        catalogue = build_catalogue(settings)
        if mode == "hand":
            run = await run_in_foreground(catalogue, store, settings, names[0])
            print(json.dumps({"id": run.id, "outcome": run.outcome, "message": run.message}))
            return
        worker = Worker(catalogue, store, settings, poll_seconds=0.1, schedule_seconds=0.1)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, worker.drain)
        await worker.run()


# The tests.


class Processes:
    """The processes of one test, on one database; none outlives the test."""

    def __init__(self, url: str, folder: Path) -> None:
        self.folder = folder
        self._environment = os.environ | {
            "HASAT_DATABASE_URL": url,
            "HASAT_HOME": str(folder),
            FOLDER: str(folder),
        }
        self.all: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        name = self.folder / f"process-{len(self.all)}"
        with name.with_suffix(".out").open("w") as out, name.with_suffix(".log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, __file__, *arguments],
                env=self._environment | environment,
                stdout=out,
                stderr=log,
            )
        self.all.append(process)
        return process

    async def said(self, process: subprocess.Popen[bytes]) -> Any:
        """Return the output of a process that ended successfully."""
        assert await until(lambda: process.poll() is not None, "the process to end")
        assert process.returncode == 0
        return json.loads((self.folder / f"process-{self.all.index(process)}.out").read_text())

    def end(self) -> None:
        for process in self.all:
            process.kill()
            process.wait()

    def entered(self, run_id: int) -> list[int]:
        """The processes that have begun a run, in order."""
        found = sorted(
            self.folder.glob(f"entered-{run_id}-*"), key=lambda file: file.stat().st_mtime_ns
        )
        return [int(file.name.rpartition("-")[2]) for file in found]

    def violations(self) -> list[Path]:
        return list(self.folder.glob("violation-*"))

    def open_gate(self) -> None:
        (self.folder / "open").touch()


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return quick(settings)


@pytest.fixture
def processes(store: Store, tmp_path: Path) -> Iterator[Processes]:
    processes = Processes(store.url, tmp_path)
    try:
        yield processes
    finally:
        processes.end()


async def until(condition: Callable[[], Any], what: str, seconds: float = 40) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if isinstance(found, Awaitable):
            found = await found
        if found:
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(f"waited {seconds} s for {what}")


async def finished(store: Store, run_id: int) -> Run:
    async def look() -> Run | None:
        run = await get_run(store, run_id)
        return run if run.state == "finished" else None

    run: Run = await until(look, f"run {run_id} to finish")
    return run


async def test_kill_9_of_a_worker_and_another_takes_its_run_up(
    store: Store, settings: Settings, processes: Processes
) -> None:
    queued = await queue_run(store, build_catalogue(settings), "lasting")
    workers = {
        worker.pid: worker for worker in (processes.start("worker"), processes.start("worker"))
    }
    (first,) = await until(lambda: processes.entered(queued.id), "the run to begin")
    os.kill(first, signal.SIGKILL)
    killed_at = time.monotonic()
    (second,) = await until(
        lambda: set(processes.entered(queued.id)) - {first}, "the run to be taken up"
    )
    assert time.monotonic() - killed_at < 10 * settings.jobs.stalled_seconds
    processes.open_gate()
    run = await finished(store, queued.id)
    assert second in workers
    assert (run.outcome, run.attempt, run.rows_changed) == ("done", 2, 1)
    assert (run.worker or "").endswith(f":{second}")


async def test_a_job_that_kills_its_worker_three_times_is_set_aside(
    store: Store, settings: Settings, processes: Processes
) -> None:
    catalogue = build_catalogue(settings)
    deadly_run = await queue_run(store, catalogue, "deadly")
    workers = [processes.start("worker") for _ in range(3)]
    await until(lambda: all(worker.poll() == 9 for worker in workers), "three workers to die")
    processes.start("worker")
    run = await finished(store, deadly_run.id)
    assert (run.outcome, run.attempt) == ("set_aside", 3)
    assert f"hasat jobs retry {run.id}" in (run.message or "")
    assert len(processes.entered(run.id)) == 3
    # The others continue.
    processes.open_gate()
    other = await queue_run(store, catalogue, "lasting")
    assert (await finished(store, other.id)).outcome == "done"


async def test_sigterm_lets_a_worker_finish_and_a_frozen_one_cannot_spoil_anything(
    store: Store, settings: Settings, processes: Processes
) -> None:
    """The worker is frozen until others have taken its run, then thawed in mid-work."""
    catalogue = build_catalogue(settings)
    queued = await queue_run(store, catalogue, "lasting")
    frozen = processes.start("worker")
    await until(lambda: processes.entered(queued.id), "the run to begin")
    frozen.send_signal(signal.SIGSTOP)
    other = processes.start("worker")
    await until(lambda: other.pid in processes.entered(queued.id), "the run to be taken up")
    frozen.send_signal(signal.SIGCONT)
    other.send_signal(signal.SIGTERM)

    async def frozen_has_a_new_number() -> bool:
        async with store.connection() as connection:
            cursor = await connection.execute("SELECT count(*) FROM procrastinate_workers")
            return await cursor.fetchone() == (2,)

    await until(frozen_has_a_new_number, "the thawed worker to come back")
    assert (await get_run(store, queued.id)).attempt == 2
    processes.open_gate()
    run = await finished(store, queued.id)
    assert (run.outcome, run.attempt) == ("done", 2)
    assert (run.worker or "").endswith(f":{other.pid}")
    assert await until(lambda: other.poll() is not None, "the drained worker to end")
    assert other.returncode == 0
    assert frozen.poll() is None


async def test_by_hand_and_by_worker_never_at_once_and_a_killed_hand_is_not_taken_up(
    store: Store, settings: Settings, processes: Processes
) -> None:
    processes.start("worker")
    by_hand = processes.start("hand", "lasting")

    async def one_run() -> Run | None:
        runs = await list_runs(store, job="lasting")
        return runs[0] if runs and processes.entered(runs[0].id) else None

    run = await until(one_run, "the manual run to start")
    queued = await queue_run(store, build_catalogue(settings), "lasting")
    busy = processes.start("hand", "lasting")
    said = await processes.said(busy)
    assert said["outcome"] == "skipped"
    assert f"Run {run.id} of lasting" in said["message"]
    assert f":{by_hand.pid})" in said["message"]
    assert processes.entered(queued.id) == []
    by_hand.kill()
    interrupted = await finished(store, run.id)
    assert interrupted.outcome == "interrupted"
    assert len(processes.entered(run.id)) == 1
    # The run that waited gets its turn.
    processes.open_gate()
    assert (await finished(store, queued.id)).outcome == "done"


async def test_after_kill_9_of_the_only_worker_a_run_by_hand_waits_and_goes_on(
    store: Store, settings: Settings, processes: Processes
) -> None:
    queued = await queue_run(store, build_catalogue(settings), "lasting")
    worker = processes.start("worker")
    await until(lambda: processes.entered(queued.id), "the run to begin")
    worker.kill()
    processes.open_gate()
    by_hand = processes.start("hand", "lasting")
    said = await processes.said(by_hand)
    assert said["outcome"] == "done"
    assert (await get_run(store, queued.id)).state == "queued"


async def test_four_workers_fire_every_minute_exactly_once(
    store: Store, processes: Processes
) -> None:
    """On a database whose clock is put forward again and again, with all four watching it."""
    async with store.connection() as connection:
        for statement in (
            "CREATE SCHEMA turned",
            "CREATE TABLE turned.done (run bigint, process int)",
            "CREATE TABLE turned.ahead (seconds int)",
            "INSERT INTO turned.ahead VALUES (0)",
            "CREATE FUNCTION turned.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS"
            " 'SELECT pg_catalog.clock_timestamp() + make_interval(secs => seconds)"
            "  FROM turned.ahead'",
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path ="
            " turned, pg_catalog, public', current_database()); END $$",
        ):
            await connection.execute(statement.encode())
    workers = [processes.start("worker", HASAT_TEST_TIMED="1") for _ in range(4)]

    async def true(query: LiteralString) -> bool:
        async with store.connection() as connection:
            cursor = await connection.execute(query)
            return await cursor.fetchone() == (True,)

    await until(lambda: true("SELECT count(*) = 4 FROM procrastinate_workers"), "four workers")
    for _ in range(12):
        async with store.connection() as connection:
            # Less than a minute, so that no two due times are ever passed in one step.
            await connection.execute("UPDATE turned.ahead SET seconds = seconds + 50")
        await until(
            lambda: true(
                "SELECT fired_until >= date_trunc('minute', turned.clock_timestamp())"
                "  FROM jobs.schedule WHERE job = 'counted'"
            ),
            "the due time to be fired",
        )
    await until(
        lambda: true("SELECT count(*) = 0 FROM procrastinate_jobs"), "the queue to be worked off"
    )
    for worker in workers:
        worker.send_signal(signal.SIGTERM)
    await until(lambda: all(worker.poll() == 0 for worker in workers), "the workers to end")
    runs = [run for run in await list_runs(store, limit=1000) if run.scheduled_for]
    dues = sorted(run.scheduled_for for run in runs if run.scheduled_for)
    assert len(dues) >= 9
    assert dues == [dues[0] + timedelta(minutes=n) for n in range(len(dues))]
    async with store.connection() as connection:
        cursor = await connection.execute("SELECT run FROM turned.done")
        done = [run for (run,) in await cursor.fetchall()]
    assert sorted(done) == sorted(run.id for run in runs)


async def test_the_job_is_never_in_two_hands_however_processes_die(
    store: Store, settings: Settings, processes: Processes
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    catalogue = build_catalogue(settings)
    queued = [(await queue_run(store, catalogue, "touchy")).id for _ in range(8)]
    workers = [processes.start("worker") for _ in range(3)]
    for _ in range(3):
        finished_before = sum(run.state == "finished" for run in await list_runs(store))

        async def somebody_works(before: int = finished_before) -> bool:
            return sum(run.state != "queued" for run in await list_runs(store)) > before

        await until(somebody_works, "work to go on")
        victim = chance.randrange(len(workers))
        workers[victim].send_signal(chance.choice([signal.SIGKILL, signal.SIGTERM]))
        workers[victim] = processes.start("worker")
    outcomes = {(await finished(store, run_id)).outcome for run_id in queued}
    assert processes.violations() == []
    # One that died three times over may have been set aside; nothing is lost.
    assert outcomes <= {"done", "set_aside"}


async def test_postgresql_restarts_under_a_worker_and_nothing_is_lost(
    home_with_database: Path, tmp_path: Path
) -> None:
    server = EmbeddedServer(home_with_database)
    async with server.lease() as url:
        environment = {"HASAT_HOME": str(tmp_path), "HASAT_DATABASE_URL": url}
        settings = quick(load_settings(environ=environment))
        catalogue = build_catalogue(settings)
        processes = Processes(url, tmp_path)
        try:
            async with open_store(settings) as store:
                begun = await queue_run(store, catalogue, "lasting")
                waiting = [await queue_run(store, catalogue, "touchy") for _ in range(3)]
                worker = processes.start("worker")
                await until(lambda: processes.entered(begun.id), "the run to begin")
                await server.stop(force=True)
                with pytest.raises(psycopg.OperationalError):
                    await psycopg.AsyncConnection.connect(url, connect_timeout=2)
                processes.open_gate()  # it ends while the database is unavailable
                assert await server.address() == url
                for run in [begun, *waiting]:
                    assert (await finished(store, run.id)).outcome == "done"
                assert worker.poll() is None
                assert processes.violations() == []
                async with store.connection() as connection:
                    cursor = await connection.execute("SELECT count(*) FROM procrastinate_jobs")
                    assert await cursor.fetchone() == (0,)
        finally:
            processes.end()


if __name__ == "__main__":
    asyncio.run(program(*sys.argv[1:]))
