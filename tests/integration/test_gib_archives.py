"""What a synchronisation does about archives: writes them, and makes up for those it could not."""

from itertools import count

import pytest

from archive_tools import GIB, files_in
from hasat.feed.archive.shelf import list_archives
from hasat.jobs import Outcome
from hasat.settings import Settings
from hasat.sources.gib.job import SYNC
from hasat.store import MigrationSet, Store
from hasat.testing.jobs import perform

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


async def test_a_sync_archives_what_it_committed_and_only_that(
    store: Store, settings: Settings
) -> None:
    first = await synchronise(store, settings, 30)
    assert len(first.detail["archives"]["einvoice"]["written"]) == 3
    assert len(first.detail["archives"]["edespatch"]["written"]) == 3
    again = await synchronise(store, settings, 30)
    assert again.detail["outcome"] == "unchanged"
    assert again.detail["archives"] == {"einvoice": {"written": []}, "edespatch": {"written": []}}
    more = await synchronise(store, settings, 31)
    assert len(more.detail["archives"]["einvoice"]["written"]) == 3
    assert more.detail["archives"]["edespatch"]["written"] == []
    newest = (await list_archives(store, "einvoice"))[0]
    assert (newest.records, newest.seq) == (31, 1)


async def test_a_sync_commits_though_nothing_can_be_archived_and_the_next_makes_up_for_it(
    store: Store, settings: Settings
) -> None:
    obstacle = settings.home / settings.archives.base_path / "einvoice"
    obstacle.parent.mkdir(parents=True)
    obstacle.write_text("a file where the folder should be")
    outcome = await synchronise(store, settings, 30)
    assert outcome.detail["outcome"] == "committed"
    assert "error" in outcome.detail["archives"]["einvoice"]
    assert len(outcome.detail["archives"]["edespatch"]["written"]) == 3
    assert await list_archives(store, "einvoice") == []
    obstacle.unlink()
    outcome = await synchronise(store, settings, 30)
    assert outcome.detail["outcome"] == "unchanged"
    assert len(outcome.detail["archives"]["einvoice"]["written"]) == 3
    kept = {
        one.path for name in ("einvoice", "edespatch") for one in await list_archives(store, name)
    }
    assert files_in(settings) == kept
