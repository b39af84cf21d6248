"""Worker processes that can be stopped in the middle of a sync.

This file is also the program that they run. With HASAT_TEST_HOLD the process stops at that point of
its sync, inside the transaction, until the file `open` is there.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hasat.feed.reconcile
import hasat.sources.gib.sync.state
import hasat.sources.gib.sync.sync
from hasat.jobs import Catalogue, Run, Worker, run_in_foreground
from hasat.jobs.runs import get_run
from hasat.logs import configure_logging
from hasat.settings import Settings, load_settings
from hasat.settings.platform_sections import JobOverride
from hasat.sources.gib.simulator.lists import Publisher
from hasat.sources.gib.sync.declaration import SYNC
from hasat.store import Store, open_store
from support.gib_lists import MIGRATIONS
from support.processes import eventually

TAXPAYERS = 300
HOLD = "HASAT_TEST_HOLD"
JOBS = {"heartbeat_seconds": 0.3, "stalled_seconds": 2.5, "drain_seconds": 5.0}


def quick(settings: Settings) -> Settings:
    """Settings with short times, whose operator has named the files that a sync reads."""
    folder = settings.home.parent / "lists"
    params = {box: str(folder / f"newUser{box.title()}Listxml.zip") for box in ("pk", "gb")}
    jobs = {**JOBS, "schedule": {SYNC.name: JobOverride(params=params)}}
    return settings.model_copy(update={"jobs": settings.jobs.model_copy(update=jobs)})


# The program of the worker processes.


async def gate() -> None:
    home = Path(os.environ["HASAT_HOME"])
    (home / f"entered-{os.getpid()}").touch()
    while not (home / "open").exists():  # noqa: ASYNC110 - another process opens the gate
        await asyncio.sleep(0.03)


async def quarantine_users_after_gate(*arguments: Any) -> None:
    await gate()
    await hasat.sources.gib.sync.state.quarantine_users(*arguments)


async def copy_with_gate(conn: Any, command: Any, rows: bytes) -> None:
    """Wait inside a COPY: to PostgreSQL the session is active, not idle."""
    async with conn.cursor() as cursor, cursor.copy(command) as copy:
        await copy.write(b"PGCOPY\n\xff\r\n\0")
        await gate()
        raise AssertionError("the session of a replaced attempt was not ended")


async def program() -> None:
    if os.environ.get(HOLD) == "commit":
        hasat.sources.gib.sync.sync.quarantine_users = quarantine_users_after_gate  # type: ignore[assignment]
    if os.environ.get(HOLD) == "copy":
        hasat.feed.reconcile.copy_binary = copy_with_gate
    settings = quick(load_settings())
    configure_logging(settings)
    async with open_store(settings, MIGRATIONS) as store:
        worker = Worker(
            Catalogue.of([SYNC], settings), store, settings, poll_seconds=0.1, schedule_seconds=60
        )
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.drain)
        await worker.run()


# Helpers for the tests.


class Workers:
    """Worker processes on one database, all killed at the end of the test."""

    def __init__(self, url: str, home: Path) -> None:
        self._environment = os.environ | {
            "HASAT_DATABASE_URL": url,
            "HASAT_HOME": str(home),
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        self.home = home
        self._all: list[subprocess.Popen[bytes]] = []

    def start(self, *prefix: str, **environment: str) -> subprocess.Popen[bytes]:
        with (self.home / f"log-{len(self._all)}").open("w") as log:
            process = subprocess.Popen(
                [*prefix, sys.executable, __file__],
                env=self._environment | environment,
                stdout=log,
                stderr=log,
            )
        self._all.append(process)
        return process

    def log(self, process: subprocess.Popen[bytes]) -> str:
        return (self.home / f"log-{self._all.index(process)}").read_text()

    def wait_for_entry(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until the process is in the middle of its sync."""
        eventually(lambda: self.has_entered(process), "the sync to begin")

    def has_entered(self, process: subprocess.Popen[bytes]) -> bool:
        assert process.poll() is None, self.log(process)
        return (self.home / f"entered-{process.pid}").exists()

    def open_gate(self) -> None:
        (self.home / "open").touch()

    def end(self) -> None:
        for process in self._all:
            process.kill()
            process.wait()


@contextlib.contextmanager
def workers_on(url: str, home: Path) -> Iterator[Workers]:
    home.mkdir(exist_ok=True)
    workers = Workers(url, home)
    try:
        yield workers
    finally:
        workers.end()


def settings_for(url: str, home: Path) -> Settings:
    return quick(load_settings(environ={"HASAT_HOME": str(home), "HASAT_DATABASE_URL": url}))


class Lists:
    """The published lists of a test, and the expected state of the mirror."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._publisher = Publisher(TAXPAYERS, seed=7)

    def publish(self) -> dict[str, str]:
        """Change the lists and return the parameters of a sync of them."""
        self._publisher.step(churn=200)
        return {box.lower(): str(path) for box, path in self._publisher.write(self._folder).items()}


async def finished(store: Store, run_id: int) -> Run:
    for _ in range(900):
        run = await get_run(store, run_id)
        if run.state == "finished":
            return run
        await asyncio.sleep(0.05)
    raise AssertionError(f"run {run_id} did not finish: {run}")


async def value(store: Store, query: str, *values: Any) -> Any:
    async with store.connection() as conn:
        row = await (await conn.execute(query.encode(), values)).fetchone()
    assert row is not None
    return row[0]


async def check_feed(store: Store, run: Run, settings: Settings, params: dict[str, str]) -> None:
    """Assert that the run is in the feed once, and that the mirror matches the lists."""
    assert await value(store, "SELECT count(*) FROM feed.version WHERE run = %s", run.id) == 1
    dense = (
        "SELECT bool_and(c.n = h.seq - h.floor) FROM feed.head AS h CROSS JOIN LATERAL"
        " (SELECT count(DISTINCT seq) AS n FROM feed.change WHERE dataset = h.dataset) AS c"
    )
    assert await value(store, dense)
    catalogue = Catalogue.of([SYNC], settings)
    again = await run_in_foreground(catalogue, store, settings, SYNC.name, params)
    assert (again.outcome, again.rows_changed) == ("nothing", 0)


if __name__ == "__main__":
    asyncio.run(program())
