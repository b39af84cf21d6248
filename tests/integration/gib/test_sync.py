"""Syncs compared with a second, simple implementation."""

import random
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from hasat.errors import HasatError
from hasat.feed.changes import changes_after
from hasat.feed.holds import GuardError
from hasat.settings import Settings
from hasat.sources.gib.lists.list_file import BLOCK
from hasat.sources.gib.settings import GibSettings
from hasat.store import MigrationSet, Store
from support.gib_lists import (
    KINDS,
    MIGRATIONS,
    SyncRunner,
    Taxpayers,
    expected_bodies,
    lenient,
    mirrored_bodies,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return MIGRATIONS


@pytest.fixture
def taxpayers(tmp_path: Path) -> Taxpayers:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    taxpayers = Taxpayers(seed, tmp_path)
    taxpayers.grow(120)
    return taxpayers


@pytest.fixture
def sync(store: Store, settings: Settings) -> SyncRunner:
    # Small batches, so that every run has several.
    gib = settings.section(GibSettings).model_copy(update={"batch_size": 7})
    return SyncRunner(store, settings.model_copy(update={"gib": gib}))


async def test_mirror_and_feed_follow_random_changes_of_the_lists(
    store: Store, sync: SyncRunner, taxpayers: Taxpayers
) -> None:
    first = await sync(taxpayers.publish())
    assert first.outcome == "committed"
    assert first.version.heads == {"einvoice": 0, "edespatch": 0}
    await sync.check_mirror(taxpayers.lists)
    followers = {dataset: await mirrored_bodies(store, dataset) for dataset in KINDS}
    cursors: dict[str, Any] = dict.fromkeys(KINDS)
    for step in range(6):
        if step % 3 != 2:
            taxpayers.churn()
        # Every second run is a full load through partition files.
        report = await sync(taxpayers.publish(), max_new=0 if step % 2 else 50_000)
        await sync.check_mirror(taxpayers.lists)
        assert report.lists["pk"].users == len(taxpayers.lists["PK"])
        for dataset, follower in followers.items():
            async with store.connection() as conn:
                page = await changes_after(conn, dataset, cursors[dataset], limit=1000)
            cursors[dataset] = page.next
            for change in page.changes:
                if change.kind == "removed":
                    del follower[change.key]
                else:
                    follower[change.key] = change.body
            assert follower == expected_bodies(taxpayers.lists, dataset)


async def test_processes_that_share_a_list_produce_the_same_result(
    sync: SyncRunner, taxpayers: Taxpayers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hasat.sources.gib.sync.processes._MIN_BYTES_FOR_PROCESSES", 0)
    taxpayers.grow(2_000)
    # A closing tag in a comment: the list cannot be shared, so one reader reads it all.
    spanning = "<!-- <User></User> -->"
    for max_new, comment in ((0, ""), (50_000, ""), (0, spanning)):
        taxpayers.churn()
        report = await sync(
            taxpayers.publish(
                lambda _, xml, comment=comment: xml.replace("</User>", f"</User>{comment}", 1)
            ),
            max_new=max_new,
        )
        assert report.outcome == "committed"
        assert report.lists["pk"].users == len(taxpayers.lists["PK"])
        assert report.lists["pk"].bytes > 2 * BLOCK
        await sync.check_mirror(taxpayers.lists)


async def test_the_same_content_in_other_bytes_and_order_is_unchanged(
    sync: SyncRunner, taxpayers: Taxpayers
) -> None:
    await sync(taxpayers.publish())
    for max_new in (50_000, 0):
        report = await sync(taxpayers.publish(), max_new=max_new)
        assert report.outcome == "unchanged"
        assert not report.version.changed


@pytest.mark.parametrize("max_new", [50_000, 0])
async def test_a_taxpayer_with_an_unreadable_record_keeps_the_last_state(
    store: Store, sync: SyncRunner, taxpayers: Taxpayers, max_new: int
) -> None:
    await sync(taxpayers.publish())
    victim = next(iter(taxpayers.lists["PK"]))

    def damage(box: str, xml: str) -> str:
        if box == "GB":
            return xml
        at = xml.index(f"<Identifier>{victim}<")
        return xml[:at] + xml[at:].replace("<Title>", "<Title><Broken>", 1)

    sync.settings = lenient(sync.settings)
    report = await sync(taxpayers.publish(damage), max_new=max_new)
    assert report.lists["pk"].rejected == 1
    assert report.outcome == "unchanged"
    await sync.check_mirror(taxpayers.lists)
    async with store.connection() as conn:
        row = await (await conn.execute("SELECT key, content FROM raw.set_aside")).fetchone()
    assert row is not None
    assert row[0] == victim
    assert b"<Broken>" in row[1]
    assert (await sync(taxpayers.publish(), max_new=max_new)).outcome == "unchanged"


async def test_rejected_and_duplicate_records_are_reported_by_every_run(
    sync: SyncRunner, taxpayers: Taxpayers
) -> None:
    def tamper(_: str, xml: str) -> str:
        users = xml.split("</User>")
        return "</User>".join(
            [users[0], users[0].replace("<UserList>", ""), "<User><Alias/>", *users[1:]]
        )

    taxpayers.grow(200)
    lists = taxpayers.publish(tamper)
    reports = [(await sync(lists)).lists["pk"] for _ in range(2)]
    reports.append((await sync({**lists, "GB": taxpayers.publish(tamper)["GB"]})).lists["pk"])
    assert {(one.rejected, one.duplicates) for one in reports} == {(1, 1)}


@pytest.mark.parametrize("max_new", [50_000, 0])
async def test_an_unreadable_record_without_identifier_prevents_removals(
    sync: SyncRunner, taxpayers: Taxpayers, max_new: int
) -> None:
    await sync(taxpayers.publish())
    victim, other = list(taxpayers.lists["PK"])[:2]

    def damage(box: str, xml: str) -> str:
        return xml.replace(f"<Identifier>{victim}<", "<Identifier>??<&<", 1) if box == "PK" else xml

    before = deepcopy(taxpayers.lists)
    gone = taxpayers.lists["PK"].pop(other)
    sync.settings = lenient(sync.settings)
    report = await sync(taxpayers.publish(damage), max_new=max_new)
    assert report.lists["pk"].rejected == 1
    await sync.check_mirror(before)
    assert gone
    # When the list is readable again, the removal counts.
    await sync(taxpayers.publish(), max_new=max_new)
    await sync.check_mirror(taxpayers.lists)


async def test_half_a_list_is_held_and_can_be_approved(
    store: Store, sync: SyncRunner, taxpayers: Taxpayers
) -> None:
    await sync(taxpayers.publish())
    before = {dataset: expected_bodies(taxpayers.lists, dataset) for dataset in KINDS}
    for identifier in sorted(taxpayers.lists["GB"])[::2]:
        del taxpayers.lists["GB"][identifier]
    taxpayers.grow(3)
    lists = taxpayers.publish()
    with pytest.raises(GuardError) as caught:
        await sync(lists)
    assert any(measure.subject == "GB list" for measure in caught.value.finding.measures)
    for dataset in KINDS:
        assert await mirrored_bodies(store, dataset) == before[dataset]
    _check_examples(caught.value, before, taxpayers)
    report = await sync(lists, approving=2)
    assert report.outcome == "committed"
    await sync.check_mirror(taxpayers.lists)


def _check_examples(error: GuardError, before: dict[str, Any], taxpayers: Taxpayers) -> None:
    """Compare the examples with the changes of the lists; only companies are shown."""
    for dataset, kinds in error.finding.examples.items():
        after = expected_bodies(taxpayers.lists, dataset)
        companies = {k for k in before[dataset].keys() | after.keys() if len(k) == 10}
        changes = {
            "added": companies & (after.keys() - before[dataset].keys()),
            "removed": companies & (before[dataset].keys() - after.keys()),
            "modified": {
                k
                for k in companies & before[dataset].keys() & after.keys()
                if before[dataset][k] != after[k]
            },
        }
        for kind, some in kinds.items():
            assert len({one["identifier"] for one in some}) == min(5, len(changes[kind]))
            for one in some:
                assert one["identifier"] in changes[kind]
                expected = (before[dataset] if kind == "removed" else after)[one["identifier"]]
                assert one["title"] == expected["title"]
    assert any(some for kinds in error.finding.examples.values() for some in kinds.values())


@pytest.mark.parametrize(
    "damage",
    [
        lambda xml: xml[: len(xml) // 2],
        lambda xml: xml.replace("</UserList>", ""),
        lambda xml: "<UserList></UserList>",
        lambda xml: '<!DOCTYPE x [<!ENTITY a "b">]>' + xml,
        lambda xml: "",
        lambda xml: "<html>Bakım</html>",
    ],
    ids=["half", "not closed", "empty list", "entities", "empty file", "another page"],
)
async def test_a_broken_list_fails_and_changes_nothing(
    sync: SyncRunner, taxpayers: Taxpayers, damage: Callable[[str], str]
) -> None:
    await sync(taxpayers.publish())
    before = deepcopy(taxpayers.lists)
    taxpayers.churn()
    broken = taxpayers.publish(lambda box, xml: damage(xml) if box == "GB" else xml)
    with pytest.raises(HasatError) as caught:
        await sync(broken)
    assert "GB list" in caught.value.message
    await sync.check_mirror(before)
