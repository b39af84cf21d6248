"""Events of the taxpayer lists: those of the original, each in the commit that it is about."""

from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from hasat.deliver.events import format_duration, publish_holds
from hasat.jobs import Catalogue, Run, run_in_foreground
from hasat.settings import Settings
from hasat.sources.gib.sync.declaration import SYNC
from hasat.sources.gib.sync.sync import ADVISORY_LOCK
from hasat.store import MigrationSet, Store

pytestmark = pytest.mark.anyio

GIB = MigrationSet("gib", files("hasat.sources.gib") / "migrations")


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return [GIB]


def a_list(folder: Path, *users: int, title: str = "A") -> str:
    """Write a list with these users, all of them active for invoices."""
    body = "".join(
        f"<User><Identifier>{user:010d}</Identifier><Title>{title}</Title><Type>OZEL</Type>"
        "<FirstCreationTime>2020-01-01T00:00:00</FirstCreationTime><Documents>"
        '<Document type="Invoice"><Alias><Name>urn:mail:pk</Name>'
        "<CreationTime>2020-01-01T00:00:00</CreationTime></Alias></Document></Documents></User>"
        for user in users
    )
    path = folder / f"list-{len(list(folder.iterdir()))}.xml"
    path.write_text(f'<?xml version="1.0" encoding="UTF-8"?><UserList>{body}</UserList>')
    return str(path)


async def sync(store: Store, settings: Settings, pk: str, gb: str) -> Run:
    catalogue = Catalogue.of([SYNC], settings)
    return await run_in_foreground(catalogue, store, settings, SYNC.name, {"pk": pk, "gb": gb})


async def events(store: Store) -> list[tuple[str, str, dict[str, Any]]]:
    async with store.connection() as conn:
        cursor = await conn.execute("SELECT kind, severity, payload FROM deliver.event ORDER BY id")
        return [(row[0], row[1], row[2]) for row in await cursor.fetchall()]


async def test_a_sync_publishes_its_outcome(
    store: Store, settings: Settings, tmp_path: Path
) -> None:
    folder = tmp_path / "lists"
    folder.mkdir()
    people = range(1, 101)
    pk, gb = a_list(folder, *people), a_list(folder, *people)
    await sync(store, settings, pk, gb)
    await sync(store, settings, pk, gb)
    more = a_list(folder, *range(5, 111))
    await sync(store, settings, more, more)
    few = a_list(folder, *range(5, 50))
    held = await sync(store, settings, few, few)
    (folder / "broken.xml").write_text("<html>")
    await sync(store, settings, str(folder / "broken.xml"), gb)

    await publish_holds(store)
    await publish_holds(store)
    first, unchanged, changed, failed, guarded = await events(store)
    assert {kind for kind, *_ in (first, unchanged, changed)} == {"SyncCompleted"}
    assert first[2]["EInvoice"] == {
        "Added": 100,
        "Modified": 0,
        "Removed": 0,
        "Total": 100,
        "TotalCount": 100,
    }
    assert (first[2]["PkCount"], first[2]["GbCount"]) == (100, 100)
    assert unchanged[2]["EInvoice"]["Total"] == 0
    counts = changed[2]["EInvoice"]
    assert (counts["Added"], counts["Removed"], counts["TotalCount"]) == (10, 4, 106)
    assert changed[2]["EDespatch"]["TotalCount"] == 0

    assert guarded[:2] == ("RemovalGuardTriggered", "Warning")
    assert guarded[2]["Run"] == held.id
    assert guarded[2]["DocumentType"] == "einvoice"
    assert (guarded[2]["RemovalCount"], guarded[2]["TotalCount"]) == (61, 106)
    assert (guarded[2]["RemovalRatio"], guarded[2]["Threshold"]) == ("57.5%", "10%")

    assert failed[:2] == ("SyncFailed", "Critical")
    assert failed[2]["Error"]


async def test_stale_files_of_runs_are_removed(
    store: Store, settings: Settings, tmp_path: Path
) -> None:
    folder = tmp_path / "lists"
    folder.mkdir()
    whole, few = a_list(folder, *range(100)), a_list(folder, *range(50))
    await sync(store, settings, whole, whole)
    held = await sync(store, settings, few, few)
    # As left by runs that were stopped after their worker had died.
    left = [settings.home / "gib" / name for name in ("work-900", "held/901")]
    for one in left:
        one.mkdir(parents=True)
    async with store.connection() as conn:
        await conn.execute(
            "INSERT INTO jobs.run (id, job, trigger) OVERRIDING SYSTEM VALUE"
            " VALUES (902, 'gib_sync', 'hand')"
        )
    at_work = settings.home / "gib" / "work-902"
    at_work.mkdir()
    await sync(store, settings, whole, whole)
    assert [one for one in left if one.exists()] == []
    assert at_work.is_dir()
    assert len(list((settings.home / "held" / "gib").glob(f"{held.id}-*"))) == 2


async def test_a_skipped_sync_is_partial(store: Store, settings: Settings, tmp_path: Path) -> None:
    folder = tmp_path / "lists"
    folder.mkdir()
    pk = a_list(folder, 1)
    async with store.connection() as conn:
        await conn.execute("SELECT pg_advisory_xact_lock(%s)", [ADVISORY_LOCK])
        run = await sync(store, settings, pk, pk)
    assert run.outcome == "skipped"
    [(kind, severity, payload)] = await events(store)
    assert (kind, severity, payload["Status"]) == ("SyncPartial", "Warning", "Atlandı")


def test_durations_have_the_form_of_the_original() -> None:
    assert format_duration(0.0071) == "00:00:00.007"
    assert format_duration(3 * 3600 + 42 * 60 + 1.5) == "03:42:01.500"
    assert format_duration(59.9999) == "00:01:00.000"
