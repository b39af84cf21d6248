"""Two machines on one PostgreSQL: one is cut off, frozen or killed, the other finishes its run.

A machine is a network namespace with one link to here, where PgBouncer runs in front of PostgreSQL.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hasat.jobs import Catalogue, run_in_foreground
from hasat.jobs.queue import queue_run
from hasat.jobs.runs import get_run
from hasat.sources.gib.sync.declaration import SYNC
from hasat.store import MigrationSet, open_store
from hasat.testing.database import ThrowAwayDatabase
from support.gib_lists import MIGRATIONS
from support.pgbouncers import pgbouncer
from support.processes import eventually
from support.sync_workers import (
    HOLD,
    Lists,
    Workers,
    check_feed,
    finished,
    settings_for,
    workers_on,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return list(MIGRATIONS)


@dataclass(frozen=True)
class Machine:
    """A network namespace; `link` is this side of its only link, `gateway` the address of it."""

    name: str
    link: str
    gateway: str

    def worker(self, workers: Workers, url: str, **environment: str) -> subprocess.Popen[bytes]:
        return workers.start(
            "ip", "netns", "exec", self.name, HASAT_DATABASE_URL=url, **environment
        )

    def set_network(self, state: str) -> None:
        subprocess.run(["ip", "link", "set", self.link, state], check=True)


@contextlib.contextmanager
def machine(number: int) -> Iterator[Machine]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")
    name, link = f"hasat{os.getpid()}-{number}", f"h{os.getpid()}-{number}"
    # 198.18.0.0/15 is reserved for tests between networks.
    net = f"198.{18 + number}.{os.getpid() % 250}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"this machine allows no network namespaces: {made.stderr.strip()}")
    try:
        for command in (
            f"link add {link} type veth peer name up0 netns {name}",
            f"addr add {net}.1/24 dev {link}",
            f"link set {link} up",
            f"-n {name} addr add {net}.2/24 dev up0",
            f"-n {name} link set up0 up",
            f"-n {name} link set lo up",
        ):
            done = subprocess.run(["ip", *command.split()], capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"this machine allows no virtual links: {done.stderr.strip()}")
        yield Machine(name, link, f"{net}.1")
    finally:
        # The namespace is removed with the last of its sockets.
        subprocess.run(["ip", "link", "del", link], check=False)
        subprocess.run(["ip", "netns", "del", name], check=True)


@pytest.mark.parametrize("fault", ["cut off", "frozen", "killed"])
async def test_the_other_machine_finishes_the_run_and_the_next_one(
    database: ThrowAwayDatabase, tmp_path: Path, fault: str
) -> None:
    home = tmp_path / "home"
    settings = settings_for(database.url, home)
    lists = Lists(tmp_path / "lists")
    catalogue = Catalogue.of([SYNC], settings)
    with (
        machine(0) as first,
        machine(1) as second,
        pgbouncer(tmp_path, database.url, first.gateway, second.gateway) as url,
        workers_on(database.url, home) as workers,
    ):
        async with open_store(settings, MIGRATIONS) as store:
            await run_in_foreground(catalogue, store, settings, SYNC.name, lists.publish())
            params = lists.publish()
            queued = await queue_run(store, catalogue, SYNC.name, params)
            processes = {
                one: one.worker(
                    workers, url.replace(first.gateway, one.gateway), **{HOLD: "commit"}
                )
                for one in (first, second)
            }
            lost = await asyncio.to_thread(
                eventually,
                lambda: next((m for m, p in processes.items() if workers.has_entered(p)), None),
                "a worker to be in the middle of its sync",
            )
            other = second if lost is first else first
            if fault == "cut off":
                lost.set_network("down")
            else:
                processes[lost].send_signal(signal.SIGSTOP if fault == "frozen" else signal.SIGKILL)
            await asyncio.to_thread(workers.wait_for_entry, processes[other])
            workers.open_gate()
            run = await finished(store, queued.id)
            assert (run.outcome, run.attempt) == ("done", 2)
            assert (run.worker or "").endswith(f":{processes[other].pid}")

            if fault == "cut off":
                lost.set_network("up")
            elif fault == "frozen":
                processes[lost].send_signal(signal.SIGCONT)
            params = lists.publish()
            later = await queue_run(store, catalogue, SYNC.name, params)
            assert (await finished(store, later.id)).outcome == "done"
            assert await get_run(store, queued.id) == run
            await check_feed(store, run, settings, params)
