"""Held runs are approved and rejected from any machine: two homes on one PostgreSQL."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from hasat.store import MigrationSet
from hasat.testing.database import ThrowAwayDatabase
from support import s3_server
from support.forks import run_hasat
from support.gib_lists import MIGRATIONS
from support.processes import eventually

pytestmark = pytest.mark.any_server


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return MIGRATIONS


class Machine:
    """A machine with its own HASAT_HOME on a shared database."""

    def __init__(self, home: Path, url: str, bucket: str | None, stack: ExitStack) -> None:
        home.mkdir()
        self.home = home
        self._stack = stack
        clean = {k: v for k, v in os.environ.items() if not k.startswith("HASAT_")}
        self._environ = clean | {
            "HASAT_HOME": str(home),
            "HASAT_DATABASE_URL": url,
            "HASAT_JOBS_HEARTBEAT_SECONDS": "0.5",
            "HASAT_JOBS_STALLED_SECONDS": "3",
            "COLUMNS": "200",
        }
        if bucket is not None:
            self._environ |= {
                "ArchiveStorage__Provider": "S3",
                "ArchiveStorage__BucketName": "held-lists",
                "ArchiveStorage__Region": "eu-central-1",
                "ArchiveStorage__ServiceUrl": bucket,
                "ArchiveStorage__AccessKey": "me",
                "ArchiveStorage__SecretKey": "hush",
            }

    def __call__(self, *words: str) -> tuple[int, dict[str, Any]]:
        done = run_hasat(*words, "--json", environ=self._environ)
        return done.returncode, json.loads(done.stdout or "{}")

    def worker(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "hasat", "worker"],
            env=self._environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    def stored(self) -> list[Path]:
        return [path for path in self.home.glob("held/**/*") if path.is_file()]


class Machines:
    """Machines that share a database and optionally a bucket; `here` has a held run."""

    def __init__(self, folder: Path, url: str, bucket: str | None, stack: ExitStack) -> None:
        self.url = url
        self.here = Machine(folder / "here", url, bucket, stack)
        self.there = Machine(folder / "there", url, bucket, stack)
        whole, few = (_list(folder / f"{n}.xml", n) for n in (100, 50))
        code, done = self.here("gib", "sync", "--pk", str(whole), "--gb", str(whole))
        assert code == 0, done
        code, done = self.here("gib", "sync", "--pk", str(few), "--gb", str(few))
        assert code == 4, done
        few.unlink()
        self.held = str(done["run"])

    def one(self, query: str) -> Any:
        with psycopg.connect(self.url) as conn:
            row = conn.execute(query).fetchone()
        return row and row[0]

    def state(self) -> str:
        return str(self.one(f"SELECT state FROM feed.hold WHERE id = {self.held}"))

    def taxpayers(self) -> int:
        return int(self.one("SELECT count(*) FROM core.einvoice"))


def _list(path: Path, users: int) -> Path:
    entries = "".join(
        f"<User><Identifier>{n:010d}</Identifier><Title>T {n}</Title><Type>OZEL</Type>"
        "<FirstCreationTime>2019-01-01T00:00:00</FirstCreationTime>"
        '<Documents><Document type="Invoice"><Alias><Name>urn:mail:a</Name>'
        "<CreationTime>2019-01-01T00:00:00</CreationTime></Alias></Document></Documents></User>"
        for n in range(1, users + 1)
    )
    path.write_text(f"<UserList>{entries}</UserList>", "utf-8")
    return path


@pytest.fixture
def bucket() -> Iterator[str]:
    command = [sys.executable, s3_server.__file__, "held-lists", "me", "hush"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.kill()


@pytest.fixture
def alone(database: ThrowAwayDatabase, tmp_path: Path) -> Iterator[Machines]:
    with ExitStack() as stack:
        yield Machines(tmp_path, database.url, None, stack)


@pytest.fixture
def sharing(database: ThrowAwayDatabase, tmp_path: Path, bucket: str) -> Iterator[Machines]:
    with ExitStack() as stack:
        yield Machines(tmp_path, database.url, bucket, stack)


def test_with_an_object_store_every_machine_approves(sharing: Machines) -> None:
    assert sharing.here.stored() == []
    code, done = sharing.there("holds", "approve", sharing.held)
    assert (code, done["outcome"]) == (0, "committed"), done
    assert (sharing.state(), sharing.taxpayers()) == ("approved", 50)
    assert sharing.one("SELECT count(*) FROM feed.held_input") == 0
    assert sharing.there.stored() == []


def test_with_an_object_store_every_machine_rejects(sharing: Machines) -> None:
    assert sharing.there("holds", "reject", sharing.held)[0] == 0
    assert (sharing.state(), sharing.taxpayers()) == ("rejected", 100)
    assert sharing.one("SELECT count(*) FROM feed.held_input") == 0


def test_without_object_store_the_approval_waits_for_its_machine(
    alone: Machines,
) -> None:
    name = (alone.here.home / "machine").read_text()
    for path in alone.here.stored():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    alone.there.worker()
    code, done = alone.there("holds", "approve", alone.held)
    assert (code, done["outcome"]) == (0, "queued"), done
    assert f"a worker on {name}" in done["message"]
    # Meanwhile the job runs on other machines: a run that waits for its machine blocks nothing.
    whole = str(alone.here.home.parent / "100.xml")
    code, later = alone.there("gib", "sync", "--pk", whole, "--gb", whole)
    assert (code, later["outcome"]) == (0, "unchanged"), later
    assert alone.state() == "waiting"
    alone.here.worker()
    eventually(lambda: alone.state() == "approved", "the approval")
    assert alone.taxpayers() == 50
    eventually(lambda: alone.here.stored() == [], "the lists are removed")


def test_an_approval_that_is_killed_is_executed_again_on_the_same_machine(
    alone: Machines,
) -> None:
    alone.there("holds", "approve", alone.held)
    running = f"""SELECT true FROM jobs.run
        WHERE params ->> 'approve' = '{alone.held}' AND state = 'running'"""
    with psycopg.connect(alone.url) as conn:
        conn.execute("SELECT FROM feed.head FOR UPDATE")
        victim = alone.here.worker()
        alone.there.worker()
        eventually(lambda: alone.one(running), "the approval begins")
        victim.kill()
        victim.wait()
    assert alone.state() == "waiting"
    alone.here.worker()
    eventually(lambda: alone.state() == "approved", "the approval")
    assert alone.taxpayers() == 50


def test_changed_lists_are_not_applied(alone: Machines) -> None:
    victim = alone.here.stored()[0]
    victim.write_bytes(victim.read_bytes().replace(b"T 1<", b"T 9<"))
    code, done = alone.here("holds", "approve", alone.held)
    assert code == 1
    assert "SHA-256" in done["message"]
    assert (alone.state(), alone.taxpayers()) == ("waiting", 100)


def test_a_run_is_rejected_from_another_machine(alone: Machines) -> None:
    assert alone.there("holds", "reject", alone.held)[0] == 0
    assert alone.state() == "rejected"
    whole = str(alone.here.home.parent / "100.xml")
    assert alone.here("gib", "sync", "--pk", whole, "--gb", whole)[0] == 0
    assert alone.here.stored() == []
    assert alone.there("holds", "approve", alone.held)[0] != 0
