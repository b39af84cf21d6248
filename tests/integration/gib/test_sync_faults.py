"""Syncs that are killed, disconnected or confused by the clock: nothing is lost or half done.

HASAT_CAMPAIGN is the number of syncs to kill.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import psycopg
import pytest

from hasat.errors import HasatError
from hasat.feed.changes import changes_after, changes_between, head_of
from hasat.feed.encoding import EMPTY, canonical, record_digest, shift, weight
from hasat.settings import Settings
from hasat.sources.gib.lists.errors import ReplacedListError
from hasat.sources.gib.settings import GibSettings
from hasat.sources.gib.simulator.lists import Publisher
from hasat.sources.gib.sync.sync import synchronise
from hasat.sources.gib.sync.task import SyncReport
from hasat.store import MigrationSet, Store
from hasat.testing.database import ThrowAwayDatabase
from support.processes import Installation

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

MIGRATIONS = MigrationSet("gib", files("hasat.sources.gib") / "migrations")
DATASETS = ("einvoice", "edespatch")
DEATHS = int(os.environ.get("HASAT_CAMPAIGN", "3"))


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return [MIGRATIONS]


class Publishing:
    """A publisher of 300 taxpayers whose lists change with each call."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._publisher = Publisher(300, seed)
        self._steps = 0

    def __call__(self) -> dict[str, Path]:
        """Return the lists of the next step."""
        if self._steps:
            self._publisher.change(added=5, modified=9, removed=4)
        self._steps += 1
        folder = self._folder / f"step-{self._steps}"
        folder.mkdir()
        return {str(box): path for box, path in self._publisher.write(folder).items()}


@pytest.fixture
def publish(tmp_path: Path) -> Publishing:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    return Publishing(tmp_path, seed)


async def _mirror(store: Store, dataset: str) -> dict[str, Any]:
    async with store.connection() as conn:
        rows = await (await conn.execute(f"SELECT key, body FROM core.{dataset}")).fetchall()
    return dict(rows)


async def _is_sound(store: Store, dataset: str, start: dict[str, Any]) -> bool:
    """Check for dense numbers and the digest; return whether a follower from `start` matches."""
    mirror = await _mirror(store, dataset)
    async with store.connection() as conn:
        head = await head_of(conn, dataset)
        page = await changes_after(conn, dataset, None, limit=1000)
    assert [change.seq for change in page.changes] == list(range(1, head.seq + 1))
    follower = dict(start)
    for change in page.changes:
        if change.kind == "removed":
            del follower[change.key]
        else:
            follower[change.key] = change.body
    total = sum(weight(key, record_digest(canonical(body))) for key, body in mirror.items())
    assert head.records == len(mirror)
    assert head.digest == shift(EMPTY, total)
    return follower == mirror


async def test_a_killed_sync_is_committed_completely_or_not_at_all(
    store: Store, database: ThrowAwayDatabase, publish: Publishing, tmp_path: Path
) -> None:
    installation = Installation(tmp_path / "home")
    installation.environ["HASAT_DATABASE_URL"] = database.url
    command = [sys.executable, "-m", "hasat", "gib", "sync"]

    def begin(lists: dict[str, Path]) -> subprocess.Popen[bytes]:
        sources = ["--pk", str(lists["PK"]), "--gb", str(lists["GB"])]
        return subprocess.Popen([*command, *sources], env=installation.environ, cwd=tmp_path)

    began = time.monotonic()
    assert begin(publish()).wait(120) == 0
    usual = time.monotonic() - began
    start = {dataset: await _mirror(store, dataset) for dataset in DATASETS}
    dice = random.Random(str(start))
    died = 0
    for _ in range(DEATHS):
        lists = publish()
        process = begin(lists)
        try:
            process.wait(dice.uniform(0.3, 1.0) * usual)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            died += process.wait() == -signal.SIGKILL
        for dataset in DATASETS:
            assert await _is_sound(store, dataset, start[dataset])
        assert begin(lists).wait(120) == 0
        for dataset in DATASETS:
            assert await _is_sound(store, dataset, start[dataset])
    print(f"{died} of {DEATHS} were killed before they ended")


async def test_a_connection_cut_while_copying_changes_nothing(
    store: Store, settings: Settings, database: ThrowAwayDatabase, publish: Publishing
) -> None:
    first = publish()
    cut = []
    # Small partitions: the connection is cut after some of them were copied to all tables.
    small = settings.section(GibSettings).model_copy(update={"batch_size": 50})
    settings = settings.model_copy(update={"gib": small})

    async def cut_while_copying(done: float, total: float | None, note: str) -> None:
        if note == "merging and copying" and done == 1:
            async with await psycopg.AsyncConnection.connect(database.url) as other:
                cursor = await other.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND query LIKE 'COPY %'"
                )
                cut.extend(await cursor.fetchall())

    with pytest.raises((psycopg.Error, HasatError)):
        await synchronise(store, settings, first, run=1, progress=cut_while_copying)
    assert cut == [(True,)]
    for dataset in DATASETS:
        assert await _mirror(store, dataset) == {}
    report = await synchronise(store, settings, first, run=2)
    assert report.outcome == "committed"
    before = {dataset: await _mirror(store, dataset) for dataset in DATASETS}
    # The same for a full load over a mirror with records.
    cut.clear()
    second = publish()
    with pytest.raises((psycopg.Error, HasatError)):
        await synchronise(store, settings, second, run=3, progress=cut_while_copying, max_new=0)
    for dataset in DATASETS:
        assert await _mirror(store, dataset) == before[dataset]
    await synchronise(store, settings, second, run=4)
    for dataset in DATASETS:
        assert await _is_sound(store, dataset, before[dataset])


async def test_a_list_that_is_replaced_while_it_is_read_changes_nothing(
    store: Store, settings: Settings, publish: Publishing
) -> None:
    first = publish()
    await synchronise(store, settings, first, run=1)
    before = {dataset: await _mirror(store, dataset) for dataset in DATASETS}
    second, third = publish(), publish()

    async def replace(_done: float, _total: float | None, note: str) -> None:
        if note == "reading the lists":
            shutil.copyfile(third["PK"], second["PK"])

    with pytest.raises(ReplacedListError, match="PK list was replaced"):
        await synchronise(store, settings, second, run=2, progress=replace)
    for dataset in DATASETS:
        assert await _mirror(store, dataset) == before[dataset]


async def test_a_clock_set_back_an_hour_loses_no_change(
    store: Store, settings: Settings, publish: Publishing
) -> None:
    await synchronise(store, settings, publish(), run=1)
    # Versions committed in the future are equivalent to a clock that was set back.
    async with store.connection() as conn:
        for table in ("head", "version", "version_dataset"):
            await conn.execute(
                f"UPDATE feed.{table} SET committed_at = committed_at + interval '1 hour'"
            )
        head = await head_of(conn, "einvoice")
    assert head.committed_at is not None
    last = head.committed_at
    for run in (2, 3):
        report = await synchronise(store, settings, publish(), run=run)
        assert report.version.committed_at > last
        assert await _returned_since(store, last, report)
        last = report.version.committed_at


async def _returned_since(store: Store, since: datetime, report: SyncReport) -> bool:
    """Return whether a request by time returns exactly the changes of the newest version."""
    async with store.connection() as conn:
        span = await changes_between(conn, "einvoice", since, None, page=1, size=1000)
    return span.total == report.version.counts["einvoice"].total > 0
