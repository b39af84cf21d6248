"""The record of a run is part of its commit, also after kill -9."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from hasat.console.runtime import source_migrations
from hasat.jobs import Run, Worker
from hasat.jobs.queue import queue_run
from hasat.jobs.runs import get_run
from hasat.settings import Settings
from hasat.store import MigrationSet, Store
from support import commit_victim
from support.feed_toys import make_table
from support.football_api import football_api, respond_with_matches

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

USER = (
    "<User><Identifier>{0}</Identifier><Title>ÇAĞ</Title><Type>OZEL</Type>"
    "<FirstCreationTime>2017-11-30T23:25:33</FirstCreationTime><Documents>"
    '<Document type="Invoice"><Alias><Name>urn:mail:pk{0}@x.com.tr</Name>'
    "<CreationTime>2019-07-22T13:58:28</CreationTime></Alias></Document></Documents></User>"
)


@pytest.fixture
def migrations() -> tuple[MigrationSet, ...]:
    return source_migrations()


@pytest.fixture
def quick(settings: Settings) -> Settings:
    values = {"heartbeat_seconds": 0.2, "stalled_seconds": 3.0}
    return settings.model_copy(update={"jobs": settings.jobs.model_copy(update=values)})


async def killed_after(commits: int, settings: Settings, **environ: str) -> None:
    """Run a worker that is killed right after that many commits."""
    assert settings.database.url is not None
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HASAT_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, commit_victim.__file__, str(commits)),
        env=clean
        | {
            "PYTHONPATH": os.pathsep.join(sys.path),
            "HASAT_HOME": str(settings.home),
            "HASAT_DATABASE_URL": settings.database.url.get_secret_value(),
            **environ,
        },
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        _, said = await process.communicate()
    assert process.returncode == -9, said.decode()


async def finished_by_another(store: Store, settings: Settings, run: int) -> Run:
    """Return the run after a second worker has finished it."""
    catalogue = commit_victim.catalogue_with_toys(settings)
    worker = Worker(catalogue, store, settings, poll_seconds=0.05, schedule_seconds=0.1)
    task = asyncio.create_task(worker.run())
    try:
        async with asyncio.timeout(30):
            while (found := await get_run(store, run)).state != "finished":  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    finally:
        worker.stop_now()
        await task
    return found


async def count(store: Store, query: str) -> int:
    async with store.connection() as conn:
        [(found,)] = await (await conn.execute(query.encode())).fetchall()
    return int(found)


def write_list(path: Path, users: int) -> str:
    inside = "".join(USER.format(1000000000 + number) for number in range(users))
    path.write_text(f"<?xml version='1.0' encoding='UTF-8'?><UserList>{inside}</UserList>")
    return str(path)


async def test_a_sync_is_recorded_by_its_commit(store: Store, quick: Settings) -> None:
    for path in commit_victim.lists_in(quick.home).values():
        write_list(Path(path), 30)
    run = await queue_run(store, commit_victim.catalogue_with_toys(quick), "gib_sync")
    await killed_after(1, quick)
    record = await get_run(store, run.id)
    assert (record.state, record.outcome, record.rows_changed) == ("finished", "done", 30)
    assert record.detail["datasets"]["einvoice"]["added"] == 30
    assert record.finished_at is not None
    assert (await finished_by_another(store, quick, run.id)).attempt == 1, (
        "there is no second attempt"
    )
    announced = "SELECT count(*) FROM deliver.event WHERE kind = 'SyncCompleted'"
    assert await count(store, announced) == 1


@pytest.mark.parametrize("commits", [1, 2, 3])
async def test_a_run_with_several_commits_counts_what_all_attempts_committed(
    store: Store, quick: Settings, commits: int
) -> None:
    await make_table(store)
    run = await queue_run(store, commit_victim.catalogue_with_toys(quick), "commits_toys")
    await killed_after(commits, quick)
    record = await get_run(store, run.id)
    so_far = commit_victim.TOY_ROWS[commits - 1]
    assert (record.state, record.rows_changed) == ("running", so_far), "it says so at once"
    record = await finished_by_another(store, quick, run.id)
    assert (record.outcome, record.attempt) == ("done", 2)
    assert record.rows_changed == commit_victim.TOY_ROWS[-1]


async def test_a_football_run_counts_what_its_killed_attempt_committed(
    store: Store, quick: Settings
) -> None:
    async with football_api(respond_with_matches([])) as api:
        quick = quick.model_copy(
            update={"football": quick.football.model_copy(update={"base_url": api.address})}
        )
        catalogue = commit_victim.catalogue_with_toys(quick)
        run = await queue_run(store, catalogue, "bootstrap_leagues")
        await killed_after(
            1, quick, HASAT_FOOTBALL_API_KEY="a" * 32, HASAT_FOOTBALL_BASE_URL=api.address
        )
    record = await get_run(store, run.id)
    stored = await count(store, "SELECT sum(added) FROM feed.version_dataset")
    assert record.rows_changed == stored > 0
