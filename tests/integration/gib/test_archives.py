"""A sync writes no archives; the platform does so after the commit."""

from datetime import timedelta
from itertools import count

import pytest

from hasat.feed.archive.catalog import list_archives
from hasat.jobs import Job, Outcome
from hasat.jobs.platform_jobs import archive_job
from hasat.settings import Settings
from hasat.sources.gib.datasets import DATASETS
from hasat.sources.gib.sync.declaration import SYNC
from hasat.store import MigrationSet, Store
from hasat.testing.jobs import perform
from support.archive_tools import GIB, files_in

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

USER = (
    "<User><Identifier>{0}</Identifier><Title>ÇAĞ &amp; OĞLU</Title><Type>OZEL</Type>"
    "<FirstCreationTime>2017-11-30T23:25:33</FirstCreationTime><Documents>"
    '<Document type="Invoice"><Alias><Name>urn:mail:pk{0}@x.com.tr</Name>'
    "<CreationTime>2019-07-22T13:58:28</CreationTime></Alias></Document></Documents></User>"
)
RUNS = count(1)


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return [GIB]


async def synchronise(store: Store, settings: Settings, users: int) -> Outcome:
    params = {}
    for box in ("pk", "gb"):
        path = settings.home / f"{box}.xml"
        inside = "".join(USER.format(f"{1000000000 + number}") for number in range(users))
        path.write_text(f"<?xml version='1.0' encoding='UTF-8'?><UserList>{inside}</UserList>")
        params[box] = str(path)
    return await perform(SYNC, store, settings, params, run_id=next(RUNS))


async def test_a_sync_ends_at_its_commit_and_its_archives_follow(
    store: Store, settings: Settings
) -> None:
    job = archive_job(DATASETS, timedelta(microseconds=1))
    first = await synchronise(store, settings, 30)
    assert (first.kind, first.rows_changed) == ("done", 30)
    assert files_in(settings) == set()
    assert await written(job, store, settings) == {"einvoice": 3, "edespatch": 3}
    again = await synchronise(store, settings, 30)
    assert again.detail["outcome"] == "unchanged"
    assert await written(job, store, settings) == {}
    await synchronise(store, settings, 31)
    assert await written(job, store, settings) == {"einvoice": 3}, "what changed is archived"
    newest = (await list_archives(store, "einvoice"))[0]
    assert (newest.records, newest.seq) == (31, 1)


async def written(job: Job, store: Store, settings: Settings) -> dict[str, int]:
    """Return the number of files that a run of the job writes, by dataset."""
    outcome = await perform(job, store, settings)
    return {name: len(files) for name, files in outcome.detail["written"].items()}
