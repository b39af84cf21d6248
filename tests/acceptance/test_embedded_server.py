"""The embedded server: whatever is killed, the next start is clean."""

import asyncio
import contextlib
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from hasat.errors import ConflictError
from hasat.store.embedded.account import server_account
from hasat.store.embedded.server import EmbeddedServer
from hasat.store.locks import try_lock

_TIMEOUT_SECONDS = 120.0

# A Hasat process: prints the URL of its database and exits when its input ends.
_PROCESS = """
import asyncio, sys
from pathlib import Path
from hasat.settings import load_settings
from hasat.store import MigrationSet, open_store
async def main():
    sets = [MigrationSet(Path(folder).name, Path(folder)) for folder in sys.argv[1:]]
    async with open_store(load_settings(), sets) as store:
        async with store.connection() as connection:
            await connection.execute("INSERT INTO core.stored DEFAULT VALUES")
        print(store.url, flush=True)
        await asyncio.to_thread(sys.stdin.read)
asyncio.run(main())
"""


@dataclass
class Machine:
    """The Hasat processes of one HASAT_HOME."""

    home: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *migrations: Path, **environment: str) -> subprocess.Popen[str]:
        stored = self.home.with_name("stored")
        if not stored.exists():
            stored.mkdir()
            (stored / "0001_stored.sql").write_text("CREATE TABLE core.stored (id bigserial)")
        process = subprocess.Popen(
            [sys.executable, "-c", _PROCESS, str(stored), *map(str, migrations)],
            env=os.environ | {"HASAT_HOME": str(self.home)} | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def url_of(self, process: subprocess.Popen[str]) -> str:
        """Return the URL that the process prints."""
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("postgresql://"):
                return line.strip()
        raise AssertionError(f"the process ended with {process.wait()}")

    def end(self, process: subprocess.Popen[str]) -> None:
        process.communicate()
        assert process.returncode == 0

    def kill(self, process: subprocess.Popen[str]) -> None:
        process.kill()
        process.communicate()

    @property
    def lock(self) -> Path:
        return self.home / "postgres" / "server.lock"

    def server_is_gone(self) -> bool:
        if not self.lock.exists():
            return True
        free = try_lock(self.lock, shared=True)
        if free is not None:
            os.close(free)
        return free is not None

    def server_processes(self) -> list[int]:
        """Return the pids of all processes that have the lock of the server open."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                held = any(fd.readlink() == self.lock for fd in (process / "fd").iterdir())
            except OSError:
                continue
            if held and int(process.name) not in {p.pid for p in self.started}:
                found.append(int(process.name))
        return sorted(found)

    def kill_server(self, *, only_postmaster: bool = False) -> None:
        # The postmaster is older than its children.
        pids = self.server_processes()
        for pid in pids[:1] if only_postmaster else pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def machine(home_with_database: Path, new_machine: Machine) -> Machine:
    """A machine with an existing database."""
    assert new_machine.home == home_with_database
    return new_machine


@pytest.fixture
def new_machine(tmp_path: Path) -> Iterator[Machine]:
    if sys.platform != "linux":
        pytest.skip("looks for processes in /proc")
    machine = Machine(tmp_path / "home")
    yield machine
    for process in machine.started:
        if process.poll() is None:
            machine.kill(process)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
    machine.kill_server()
    _until(machine.server_is_gone)
    EmbeddedServer(machine.home).layout.remove_sockets()


def _until(true: Callable[[], object]) -> None:
    end = time.monotonic() + _TIMEOUT_SECONDS
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


def _query(url: str, query: str) -> str:
    with psycopg.connect(url) as connection:
        row = connection.execute(f"SELECT ({query})::text").fetchone()
    assert row is not None
    return str(row[0])


def _started_at(url: str) -> str:
    return _query(url, "SELECT pg_postmaster_start_time()")


def _rows(url: str) -> int:
    return int(_query(url, "SELECT count(*) FROM core.stored"))


def test_two_processes_share_one_server_and_the_last_one_stops_it(machine: Machine) -> None:
    first = machine.start()
    url = machine.url_of(first)
    second = machine.start(TMPDIR="/var/tmp")
    assert machine.url_of(second) == url
    began = _started_at(url)
    machine.end(first)
    assert _started_at(url) == began
    machine.end(second)
    assert machine.server_is_gone()
    assert machine.server_processes() == []


def test_twenty_processes_start_at_once_on_an_empty_home(new_machine: Machine) -> None:
    processes = [new_machine.start() for _ in range(20)]
    urls = {new_machine.url_of(process) for process in processes}
    assert len(urls) == 1
    (url,) = urls
    assert _rows(url) == 20
    starts = [file.read_text().count("ready to accept") for file in _logs(new_machine)]
    assert sum(starts) == 1
    for process in processes[1:]:
        new_machine.end(process)
    assert not new_machine.server_is_gone()
    new_machine.end(processes[0])
    assert new_machine.server_is_gone()


def _logs(machine: Machine) -> list[Path]:
    return list((machine.home / "postgres" / "log").iterdir())


def test_the_server_outlives_a_killed_process_and_serves_the_next(machine: Machine) -> None:
    first = machine.start()
    began = _started_at(machine.url_of(first))
    machine.kill(first)
    second = machine.start()
    url = machine.url_of(second)
    assert _started_at(url) == began
    assert _rows(url) == 2
    machine.end(second)
    assert machine.server_is_gone()


def test_a_killed_postmaster_leaves_a_clean_start(machine: Machine) -> None:
    first = machine.start()
    machine.url_of(first)
    machine.kill_server(only_postmaster=True)
    machine.end(first)
    second = machine.start()
    assert _rows(machine.url_of(second)) == 2
    machine.end(second)
    assert machine.server_is_gone()


def test_everything_killed_at_once_leaves_a_clean_start(machine: Machine) -> None:
    first = machine.start()
    machine.url_of(first)
    machine.kill_server()
    machine.kill(first)
    second = machine.start()
    assert _rows(machine.url_of(second)) == 2
    machine.end(second)


def test_a_pid_that_another_process_has_by_now(machine: Machine) -> None:
    first = machine.start()
    sockets = Path(str(conninfo_to_dict(machine.url_of(first))["host"]))
    machine.kill_server()
    machine.kill(first)
    data = machine.home / "postgres/data"
    # PostgreSQL believes a pid file if the process lives and belongs to the same user.
    with subprocess.Popen(["sleep", "600"], **server_account(data).switch()) as stranger:
        for file in (data / "postmaster.pid", sockets / ".s.PGSQL.5432.lock"):
            lines = file.read_text().splitlines()
            file.write_text("\n".join([str(stranger.pid), *lines[1:], ""]))
        second = machine.start()
        try:
            assert _rows(machine.url_of(second)) == 2
            machine.end(second)
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_killed_while_the_data_folder_is_made(new_machine: Machine) -> None:
    first = new_machine.start()
    _until(lambda: (new_machine.home / "postgres/data.new/PG_VERSION").exists())
    new_machine.kill(first)
    assert not (new_machine.home / "postgres/data").exists()
    second = new_machine.start()
    assert _rows(new_machine.url_of(second)) == 1
    assert not (new_machine.home / "postgres/data.new").exists()
    new_machine.end(second)


def test_killed_with_initdb_while_the_data_folder_is_made(new_machine: Machine) -> None:
    first = new_machine.start()
    _until(lambda: (new_machine.home / "postgres/data.new/PG_VERSION").exists())
    new_machine.kill(first)
    new_machine.kill_server()
    second = new_machine.start()
    assert _rows(new_machine.url_of(second)) == 1
    new_machine.end(second)


def test_killed_while_it_migrates(machine: Machine, tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    slow.mkdir()
    (slow / "0001_half.sql").write_text("CREATE TABLE core.half (id int)")
    (slow / "0002_other_half.sql").write_text("SELECT pg_sleep(600)")
    first = machine.start(slow)
    folders = asyncio.run(_migrating(machine))
    machine.kill(first)
    (slow / "0002_other_half.sql").write_text("INSERT INTO core.half VALUES (1)")
    second = machine.start(slow)
    url = machine.url_of(second)
    assert _query(url, "SELECT count(*) FROM core.half") == "1"
    assert url == folders
    machine.end(second)


async def _migrating(machine: Machine) -> str:
    """Wait until the first process runs its migrations; return the URL of the database."""
    _until(lambda: not machine.server_is_gone())
    async with EmbeddedServer(machine.home).lease() as url:
        _until(
            lambda: (
                _query(
                    url, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)'"
                )
                != "0"
            )
        )
        return url


def test_killed_at_any_moment(new_machine: Machine) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    stored = 0
    for _ in range(8):
        process = new_machine.start()
        if dice.random() < 0.3:
            new_machine.url_of(process)
            stored += 1
        time.sleep(dice.uniform(0.0, 2.5))
        victims = dice.choice(["server", "process", "server process", "process server"])
        for victim in victims.split():
            if victim == "server":
                new_machine.kill_server()
            else:
                new_machine.kill(process)
        if process.poll() is None:
            new_machine.kill(process)
    last = new_machine.start()
    assert _rows(new_machine.url_of(last)) > stored
    new_machine.end(last)
    assert new_machine.server_is_gone()


def test_a_server_in_use_is_not_stopped_unless_forced(machine: Machine) -> None:
    process = machine.start()
    url = machine.url_of(process)
    server = EmbeddedServer(machine.home)
    with pytest.raises(ConflictError):
        asyncio.run(server.stop())
    began = _started_at(url)
    assert asyncio.run(server.stop(force=True))
    assert machine.server_is_gone()
    machine.end(process)
    assert not asyncio.run(server.stop())
    again = machine.start()
    assert _started_at(machine.url_of(again)) != began
    machine.end(again)


def test_a_copy_of_the_home_is_another_server(machine: Machine, tmp_path: Path) -> None:
    first = machine.start()
    machine.url_of(first)
    machine.end(first)
    shutil.copytree(machine.home, tmp_path / "copy")
    _own_like(machine.home, tmp_path / "copy")
    first, other = machine.start(), Machine(tmp_path / "copy")
    second = other.start()
    url, copied = machine.url_of(first), other.url_of(second)
    assert url != copied
    assert _rows(url) == _rows(copied) == 2
    machine.end(first)
    other.end(second)
    assert other.server_is_gone()


def _own_like(source: Path, target: Path) -> None:
    for folder, _, files in os.walk(target):
        for path in (Path(folder), *(Path(folder, name) for name in files)):
            like = (source / path.relative_to(target)).lstat()
            os.chown(path, like.st_uid, like.st_gid)


def test_ctrl_c_in_the_terminal_does_not_reach_the_server(machine: Machine) -> None:
    process = machine.start()
    url = machine.url_of(process)
    began = _started_at(url)
    # The process leads its session, as a shell's foreground job does; Ctrl-C goes to all of it.
    os.killpg(process.pid, signal.SIGSTOP)
    assert _started_at(url) == began
    os.killpg(process.pid, signal.SIGCONT)
    assert all(os.getsid(pid) != process.pid for pid in machine.server_processes())
    machine.end(process)


def test_the_server_inherits_the_environment(machine: Machine) -> None:
    process = machine.start(HASAT_TEST_MARK="ışık", PGPORT="1", PGDATA="/nowhere")
    url = machine.url_of(process)
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TEMP TABLE output (line text)")
        connection.execute("COPY output FROM PROGRAM 'echo \"$HASAT_TEST_MARK\"'")
        assert connection.execute("SELECT line FROM output").fetchone() == ("ışık",)
    machine.end(process)
