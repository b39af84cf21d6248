"""kill -9 while an archive is written: the old one stays or the new one is there, no mixture."""

import json
import os
import random
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from hasat.feed.archive import storage_of
from hasat.feed.archive.catalog import is_current, list_archives, list_deltas
from hasat.settings import Settings
from hasat.sources.gib.datasets import EINVOICE
from hasat.store import MigrationSet, Store, open_store
from support.archive_tools import GIB, files_in, sync, taxpayers
from support.processes import TIMEOUT_SECONDS, eventually

pytestmark = pytest.mark.anyio

ROUNDS = int(os.environ.get("HASAT_TEST_KILLS", "3"))
# Enough that they are written in a process of their own.
RECORDS = 21_000


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return [GIB]


def start_writing(settings: Settings) -> subprocess.Popen[str]:
    assert settings.database.url is not None
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HASAT_")}
    return subprocess.Popen(
        [sys.executable, "-m", "hasat", "archive", "write", "einvoice", "--force", "--json"],
        env=clean
        | {
            "HASAT_HOME": str(settings.home),
            "HASAT_DATABASE_URL": settings.database.url.get_secret_value(),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


async def check_the_shelf(store: Store, settings: Settings) -> set[str]:
    """Every archive and delta that is listed is whole, and batches are complete."""
    place = storage_of(settings)
    archives = await list_archives(store, "einvoice")
    for archive in archives:
        assert await place.size(archive.path) == archive.size
        batch = [one for one in archives if one.batch == archive.batch]
        assert len(batch) == 3
        assert len({(one.epoch, one.seq, one.digest) for one in batch}) == 1
    deltas = await list_deltas(store, "einvoice")
    for delta in deltas:
        assert await place.size(delta.path) == delta.size
    assert {one.batch for one in deltas} == {one.batch for one in archives}
    assert len(deltas) == 2 * len(archives)
    assert await is_current(store, place, EINVOICE)
    return {one.path for one in (*archives, *deltas)}


def begun(process: subprocess.Popen[str], settings: Settings, known: set[str], wanted: str) -> bool:
    """Whether a new file of that kind is there; or it is too late."""
    new = files_in(settings) - known
    return any(path.startswith(wanted) for path in new) or process.poll() is not None


async def test_killed_at_any_moment(settings: Settings) -> None:
    seed = random.randrange(10**6)
    print("seed", seed)
    dice = random.Random(seed)
    async with open_store(settings, [GIB]) as store:
        await sync(store, taxpayers(RECORDS, dice))
        began = time.monotonic()
        output, said = start_writing(settings).communicate(timeout=TIMEOUT_SECONDS)
        lasts = time.monotonic() - began
        assert len(json.loads(output)) == 3, said
        known = await check_the_shelf(store, settings)
        for round_ in range(ROUNDS):
            process = start_writing(settings)
            if round_ % 3 == 0:
                # At any time at all.
                try:
                    process.wait(dice.uniform(0.3, 1.0) * lasts)
                except subprocess.TimeoutExpired:
                    process.kill()
            else:
                # While drafts are there, or as soon as one has been published.
                wanted = "einvoice/.e" if round_ % 3 == 1 else "einvoice/e"
                eventually(partial(begun, process, settings, known, wanted), "writing begins")
                process.kill()
            process.communicate(timeout=TIMEOUT_SECONDS)
            known = await check_the_shelf(store, settings)
        output, said = start_writing(settings).communicate(timeout=TIMEOUT_SECONDS)
        assert len(json.loads(output)) == 3, said
        known = await check_the_shelf(store, settings)
        assert files_in(settings) == known, "what killed writers left behind is swept"
        async with store.connection() as conn:
            left = await (await conn.execute("SELECT names FROM feed.archive_leftover")).fetchall()
        assert left == []


async def test_the_process_that_writes_dies_with_the_one_that_waits(settings: Settings) -> None:
    async with open_store(settings, [GIB]) as store:
        await sync(store, taxpayers(RECORDS, random.Random(1)))
        process = start_writing(settings)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        child = eventually(lambda: _writer_among(children), "the writer starts")
        process.kill()
        process.communicate(timeout=TIMEOUT_SECONDS)
        eventually(lambda: not Path(f"/proc/{child}").exists(), "the writer ends too")
        assert await list_archives(store, "einvoice") == []


def _writer_among(children: Path) -> str | None:
    for thread in children.parent.parent.iterdir():
        for child in (thread / "children").read_text().split():
            try:
                if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                    return child
            except FileNotFoundError:
                continue
    return None
