"""Archives come by themselves: for every dataset, after every commit that changed something."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hasat.console.runtime import build_catalogue, source_migrations
from hasat.deliver.events import publish_archive_failures
from hasat.errors import HasatError
from hasat.feed.archive import storage_of
from hasat.feed.archive.catalog import (
    due_datasets,
    failures,
    is_current,
    list_archives,
    list_deltas,
)
from hasat.feed.archive.verification import verify
from hasat.feed.dataset import Dataset
from hasat.jobs import Catalogue, Worker, platform_jobs
from hasat.jobs.platform_jobs import ARCHIVES_JOB, archive_job
from hasat.jobs.runs import list_runs
from hasat.settings import Settings
from hasat.source.installed import all_datasets
from hasat.store import MigrationSet, Store
from hasat.testing.jobs import perform
from support.feed_toys import TOYS, make_table
from support.feed_toys import run as commit

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

HOUR = timedelta(hours=1)
BODIES: dict[str, dict[str, Any]] = {
    "standings": {"39:2026:PL:1": {"group": "PL", "rank": 1, "team": {"id": 7}, "points": 3}},
    "parcels": {"12/3/4": {"type": "Feature", "geometry": None, "properties": {}}},
}


@pytest.fixture
def migrations() -> tuple[MigrationSet, ...]:
    return source_migrations()


@pytest.fixture
def settings(settings: Settings) -> Settings:
    values = {"heartbeat_seconds": 0.2, "stalled_seconds": 3.0}
    return settings.model_copy(update={"jobs": settings.jobs.model_copy(update=values)})


@asynccontextmanager
async def worker(store: Store, settings: Settings, catalogue: Catalogue) -> AsyncIterator[Worker]:
    worker = Worker(catalogue, store, settings, poll_seconds=0.05, schedule_seconds=0.1)
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop_now()
        await task


async def until(condition: Callable[[], Awaitable[Any]], what: str) -> Any:
    for _ in range(600):
        if found := await condition():
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(f"did not happen: {what}")


async def archived(store: Store, settings: Settings, datasets: Iterable[Dataset]) -> None:
    """Wait until what each dataset is now lies in an archive."""
    for dataset in datasets:
        current = partial(is_current, store, storage_of(settings), dataset)
        await until(current, f"an archive of {dataset.name}")


async def batches(store: Store, dataset: Dataset = TOYS) -> list[str]:
    """The batches that are kept, newest first."""
    return list(dict.fromkeys(one.batch for one in await list_archives(store, dataset.name)))


async def is_due(store: Store, *datasets: Dataset, min_interval: timedelta = HOUR) -> list[str]:
    names = [dataset.name for dataset in datasets or (TOYS,)]
    async with store.connection() as conn:
        return await due_datasets(conn, names, min_interval)


async def change(store: Store, query: str) -> None:
    async with store.connection() as conn:
        await conn.execute(query.encode())


async def archive_toys(store: Store, settings: Settings) -> list[str]:
    """The files that a run of the job writes."""
    outcome = await perform(archive_job([TOYS], HOUR), store, settings)
    return list(outcome.detail["written"].get("toys", []))


async def test_every_dataset_of_every_source_is_archived_without_being_asked(
    store: Store, settings: Settings
) -> None:
    filled = [one for one in all_datasets() if one.name != "injuries"]
    never_filled = [one for one in all_datasets() if one.name == "injuries"]
    async with worker(store, settings, build_catalogue(settings)):
        for dataset in filled:
            await commit(store, BODIES.get(dataset.name, {}), dataset=dataset)
        await archived(store, settings, filled)
    for dataset in filled:
        found = await list_archives(store, dataset.name)
        assert {one.format for one in found} >= {"ndjson", "parquet"}
        assert {one.records for one in found} == {len(BODIES.get(dataset.name, {}))}
        for archive in found:
            assert (await verify(storage_of(settings), archive)).faults == ()
    assert await list_archives(store, never_filled[0].name) == [], "there was no commit"


async def test_what_is_archived_already_starts_no_run(store: Store, settings: Settings) -> None:
    await make_table(store)
    await commit(store, {"ball": {}})
    catalogue = Catalogue.of(platform_jobs([TOYS], HOUR), settings)
    async with worker(store, settings, catalogue), worker(store, settings, catalogue):
        await archived(store, settings, [TOYS])
        await commit(store, {"ball": {}})
        assert await is_due(store) == []
    runs = await list_runs(store, job=ARCHIVES_JOB)
    assert [run.outcome for run in runs].count("done") == 1, "one of two workers wrote it"
    assert len(await batches(store)) == 1


async def test_archives_are_the_minimum_interval_apart_unless_nobody_can_start_from_the_newest(
    store: Store, settings: Settings
) -> None:
    await make_table(store)
    assert await is_due(store) == []
    await commit(store, {"ball": {}})
    assert await is_due(store) == ["toys"], "the first one is written at once"
    assert len(await archive_toys(store, settings)) == 2
    await commit(store, {"ball": {}, "kite": {}})
    assert await is_due(store) == []
    assert await archive_toys(store, settings) == [], "changes are coalesced"
    await change(store, "UPDATE feed.archive SET created_at = created_at - interval '61 minutes'")
    assert await is_due(store) == ["toys"]
    assert len(await archive_toys(store, settings)) == 2
    await commit(store, {"ball": {}})
    assert await is_due(store) == []
    for what in (
        "UPDATE feed.head SET epoch = gen_random_uuid()",
        "UPDATE feed.head SET floor = seq",
        "UPDATE feed.head SET floor_at = committed_at",
    ):
        await change(store, what)
        assert await is_due(store) == ["toys"], what
        assert len(await archive_toys(store, settings)) == 2
        await commit(store, {"ball": {"painted": what}})
        assert await is_due(store) == []
    await change(store, "UPDATE feed.archive SET created_at = created_at + interval '1 year'")
    assert await is_due(store) == ["toys"], "a clock that was turned back blocks nothing"


async def test_a_dataset_that_cannot_be_archived_stops_no_other_and_is_tried_again(
    store: Store, settings: Settings
) -> None:
    dolls = Dataset("dolls", "toy_shop", "dolls, for tests")
    await make_table(store)
    await make_table(store, dolls)
    for dataset in (TOYS, dolls):
        await commit(store, {"one": {}}, dataset=dataset)
    obstacle = settings.home / settings.archives.base_path / "dolls"
    obstacle.parent.mkdir(parents=True)
    obstacle.write_text("a file where the folder should be")
    job = archive_job([dolls, TOYS], HOUR)
    with pytest.raises(HasatError, match="dolls"):
        await perform(job, store, settings)
    assert len(await batches(store)) == 1
    assert await batches(store, dolls) == []
    assert await is_due(store, dolls) == [], "not again at once"
    for _ in range(2):
        await publish_archive_failures(store)
    async with store.connection() as conn:
        cursor = await conn.execute("SELECT kind, payload ->> 'Dataset' FROM deliver.event")
        assert await cursor.fetchall() == [("MvRefreshFailed", "dolls")]
        assert list(await failures(conn)) == ["dolls"]
    await perform(job, store, settings)
    assert await batches(store, dolls) == [], "its pause is independent of other datasets"
    obstacle.unlink()
    await change(store, "UPDATE feed.archive_failure SET failed_at = failed_at - interval '2 min'")
    assert await is_due(store, dolls) == ["dolls"]
    await perform(job, store, settings)
    assert len(await batches(store, dolls)) == 1
    async with store.connection() as conn:
        assert await failures(conn) == {}


async def test_the_hourly_run_replaces_lost_files_and_removes_old_ones(
    store: Store, settings: Settings
) -> None:
    await make_table(store)
    await commit(store, {"ball": {}})
    lost = await archive_toys(store, settings)
    (settings.home / settings.archives.base_path / "toys" / lost[0]).unlink()
    assert await is_due(store) == []
    assert len(await archive_toys(store, settings)) == 2
    await change(store, "UPDATE feed.archive SET created_at = created_at - interval '8 days'")
    assert await archive_toys(store, settings) == []
    assert len(await batches(store)) == 1


async def test_archives_of_a_worker_that_is_killed_are_written_by_another(
    store: Store, settings: Settings
) -> None:
    """Killed as soon as its first draft is there, which is before it is published."""
    (parcels,) = (one for one in all_datasets() if one.name == "parcels")
    body = BODIES["parcels"]["12/3/4"]
    await commit(store, {f"12/3/{n}": {**body, "n": n} for n in range(30_000)}, dataset=parcels)
    assert settings.database.url is not None
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HASAT_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hasat", "worker"),
        env=clean
        | {
            "HASAT_HOME": str(settings.home),
            "HASAT_DATABASE_URL": settings.database.url.get_secret_value(),
        },
        stderr=asyncio.subprocess.DEVNULL,
    )
    folder = settings.home / settings.archives.base_path / "parcels"

    async def drafted() -> list[Path]:
        return list(folder.glob(".*.part"))

    try:
        await until(drafted, "the worker begins to write")
    finally:
        process.kill()
        await process.wait()
    async with worker(store, settings, build_catalogue(settings)):
        await archived(store, settings, [parcels])
    kept = await list_archives(store, "parcels")
    assert {one.format for one in kept} == {"ndjson", "parquet"}
    assert len({one.batch for one in kept}) == 1
    deltas = await list_deltas(store, "parcels")
    assert {one.batch for one in deltas} == {kept[0].batch}
    names = {one.name for one in (*kept, *deltas)}
    assert _files(folder) == names, "what the killed one left is swept"


def _files(folder: Path) -> set[str]:
    return {one.name for one in folder.iterdir()}
