"""Synchronising the lists, compared with a second, simple notion of what they say."""

import random
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from hasat.errors import HasatError
from hasat.feed.changes import changes_after
from hasat.settings import Settings
from hasat.sources.gib.lists.list_file import BLOCK
from hasat.sources.gib.sync.sync import SyncHeldError
from hasat.store import MigrationSet, Store
from support.gib_town import KINDS, MIGRATIONS, Sync, Town, bodies, lenient, simple_bodies

pytestmark = pytest.mark.anyio


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return MIGRATIONS


@pytest.fixture
def town(tmp_path: Path) -> Town:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    town = Town(seed, tmp_path)
    town.grow(120)
    return town


@pytest.fixture
def sync(store: Store, settings: Settings) -> Sync:
    # So few at a time that every run merges in several batches.
    gib = settings.gib.model_copy(update={"batch_size": 7})
    return Sync(store, settings.model_copy(update={"gib": gib}))


async def test_mirror_and_feed_follow_the_lists_through_any_history(
    store: Store, sync: Sync, town: Town
) -> None:
    first = await sync(town.publish())
    assert first.outcome == "committed"
    assert first.version.heads == {"einvoice": 0, "edespatch": 0}
    await sync.matches(town.lists)
    followers = {dataset: await bodies(store, dataset) for dataset in KINDS}
    cursors: dict[str, Any] = dict.fromkeys(KINDS)
    for step in range(6):
        if step % 3 != 2:
            town.churn()
        # Every other time all is read anew through the partitions, as when everything is rewritten.
        report = await sync(town.publish(), max_new=0 if step % 2 else 50_000)
        await sync.matches(town.lists)
        assert report.lists["pk"].users == len(town.lists["PK"])
        for dataset, follower in followers.items():
            async with store.connection() as conn:
                page = await changes_after(conn, dataset, cursors[dataset], limit=1000)
            cursors[dataset] = page.next
            for change in page.changes:
                if change.kind == "removed":
                    del follower[change.key]
                else:
                    follower[change.key] = change.body
            assert follower == simple_bodies(town.lists, dataset)


async def test_processes_that_share_the_lists_find_the_same(
    sync: Sync, town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hasat.sources.gib.sync.processes._MIN_BYTES_FOR_PROCESSES", 0)
    town.grow(2_000)
    # A comment that holds a closing tag: no share can be cut there, so one reader reads it all.
    reaching = "<!-- <User></User> -->"
    for max_new, comment in ((0, ""), (50_000, ""), (0, reaching)):
        town.churn()
        report = await sync(
            town.publish(
                lambda _, xml, comment=comment: xml.replace("</User>", f"</User>{comment}", 1)
            ),
            max_new=max_new,
        )
        assert report.outcome == "committed"
        assert report.lists["pk"].users == len(town.lists["PK"])
        assert report.lists["pk"].bytes > 2 * BLOCK
        await sync.matches(town.lists)


async def test_the_same_content_in_other_bytes_and_order_is_unchanged(
    sync: Sync, town: Town
) -> None:
    await sync(town.publish())
    for max_new in (50_000, 0):
        report = await sync(town.publish(), max_new=max_new)
        assert report.outcome == "unchanged"
        assert not report.version.changed


@pytest.mark.parametrize("max_new", [50_000, 0])
async def test_an_unreadable_user_keeps_his_last_good_part(
    store: Store, sync: Sync, town: Town, max_new: int
) -> None:
    await sync(town.publish())
    victim = next(iter(town.lists["PK"]))

    def damage(box: str, xml: str) -> str:
        if box == "GB":
            return xml
        at = xml.index(f"<Identifier>{victim}<")
        return xml[:at] + xml[at:].replace("<Title>", "<Title><Broken>", 1)

    sync.settings = lenient(sync.settings)
    report = await sync(town.publish(damage), max_new=max_new)
    assert report.lists["pk"].rejected == 1
    assert report.outcome == "unchanged"
    await sync.matches(town.lists)
    async with store.connection() as conn:
        row = await (await conn.execute("SELECT key, content FROM raw.set_aside")).fetchone()
    assert row is not None
    assert row[0] == victim
    assert b"<Broken>" in row[1]
    assert (await sync(town.publish(), max_new=max_new)).outcome == "unchanged"


async def test_what_could_not_be_read_and_who_is_there_twice_is_told_each_time(
    sync: Sync, town: Town
) -> None:
    def tamper(_: str, xml: str) -> str:
        users = xml.split("</User>")
        return "</User>".join(
            [users[0], users[0].replace("<UserList>", ""), "<User><Alias/>", *users[1:]]
        )

    town.grow(200)
    lists = town.publish(tamper)
    told = [(await sync(lists)).lists["pk"] for _ in range(2)]
    told.append((await sync({**lists, "GB": town.publish(tamper)["GB"]})).lists["pk"])
    assert {(one.rejected, one.duplicates) for one in told} == {(1, 1)}


@pytest.mark.parametrize("max_new", [50_000, 0])
async def test_if_nobody_knows_whose_record_it_is_nobody_is_removed(
    sync: Sync, town: Town, max_new: int
) -> None:
    await sync(town.publish())
    victim, other = list(town.lists["PK"])[:2]

    def damage(box: str, xml: str) -> str:
        return xml.replace(f"<Identifier>{victim}<", "<Identifier>??<&<", 1) if box == "PK" else xml

    before = deepcopy(town.lists)
    gone = town.lists["PK"].pop(other)
    sync.settings = lenient(sync.settings)
    report = await sync(town.publish(damage), max_new=max_new)
    assert report.lists["pk"].rejected == 1
    await sync.matches(before)
    assert gone
    # As soon as the list is legible again, the removal counts.
    await sync(town.publish(), max_new=max_new)
    await sync.matches(town.lists)


async def test_half_a_list_is_held_as_a_whole_and_can_be_approved(
    store: Store, sync: Sync, town: Town
) -> None:
    await sync(town.publish())
    before = {dataset: simple_bodies(town.lists, dataset) for dataset in KINDS}
    for identifier in sorted(town.lists["GB"])[::2]:
        del town.lists["GB"][identifier]
    town.grow(3)
    lists = town.publish()
    with pytest.raises(SyncHeldError) as caught:
        await sync(lists)
    assert any(measure.subject == "GB list" for measure in caught.value.measures)
    for dataset in KINDS:
        assert await bodies(store, dataset) == before[dataset]
    _check_examples(caught.value, before, town)
    report = await sync(lists, approving=2)
    assert report.outcome == "committed"
    await sync.matches(town.lists)


def _check_examples(error: SyncHeldError, before: dict[str, Any], town: Town) -> None:
    """Some companies of each kind of change, compared with what the lists say."""
    for dataset, kinds in error.examples.items():
        after = simple_bodies(town.lists, dataset)
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
                said = (before[dataset] if kind == "removed" else after)[one["identifier"]]
                assert one["title"] == said["title"]
    assert any(some for kinds in error.examples.values() for some in kinds.values())


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
    sync: Sync, town: Town, damage: Callable[[str], str]
) -> None:
    await sync(town.publish())
    before = deepcopy(town.lists)
    town.churn()
    broken = town.publish(lambda box, xml: damage(xml) if box == "GB" else xml)
    with pytest.raises(HasatError) as caught:
        await sync(broken)
    assert "GB list" in caught.value.message
    await sync.matches(before)
