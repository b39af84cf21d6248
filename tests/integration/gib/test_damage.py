"""Damage that reads as absence removes no taxpayer; a list's size is guarded both ways."""

import os
import re
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import pytest

from hasat.feed.holds import GuardError
from hasat.settings import Settings
from hasat.store import MigrationSet, Store
from support.gib_lists import MIGRATIONS, SyncRunner, Taxpayers, User, lenient

pytestmark = pytest.mark.anyio

Damage = Callable[[str], str]
JUNK = "x" * 5_000_000
LEFT = (
    '<Document type="DespatchAdvice"><Alias><Name>urn:mail:left@x.com.tr</Name>'
    "<CreationTime>2019-07-22T13:58:28</CreationTime></Alias></Document>"
)


def one(old: str, new: str) -> Damage:
    """Replace the first occurrence of a text that every User has."""

    def damage(xml: str) -> str:
        assert re.search(old, xml, re.DOTALL)
        return re.sub(old, new, xml, count=1, flags=re.DOTALL)

    return damage


# The identifier remains readable.
DAMAGES: dict[str, Damage] = {
    "a misspelt attribute": one(" type=", " ype="),
    "an attribute in capitals": one(" type=", " Type="),
    "no attribute": one(' type="[A-Za-z]+"', ""),
    "a misspelt type": one('type="Invoice"', 'type="Inv0ice"'),
    "an empty type": one('type="Invoice"', 'type=""'),
    "a type in other case": one('type="Invoice"', 'type="INVOICE"'),
    "an attribute too many": one('type="Invoice"', 'type="Invoice" x="1"'),
    "an attribute of the User": one("<User>", "<User deleted='true'>"),
    "a misspelt Document": one("<Document (.*?)</Document>", r"<Documnt \1</Documnt>"),
    "misspelt Documents": one("<Documents>(.*)</Documents>", r"<Documets>\1</Documets>"),
    "no Documents": one("<Documents>.*</Documents>", ""),
    "empty Documents": one("<Documents>.*</Documents>", "<Documents/>"),
    "an empty Document": one("(<Document [^>]*>).*?</Document>", r"\1</Document>"),
    "no tag around a Document": one("<Document [^>]*>(.*?)</Document>", r"\1"),
    "a misspelt Alias": one("<Alias>(.*?)</Alias>", r"<Alia>\1</Alia>"),
    "an Alias without Name": one("<Name>.*?</Name>", ""),
    "an empty Name": one("<Name>.*?</Name>", "<Name> </Name>"),
    "a misspelt Name": one("<Name>(.*?)</Name>", r"<Nam>\1</Nam>"),
    "no CreationTime": one("<CreationTime>.*?</CreationTime>", ""),
    "closed at no time": one("</CreationTime>", "</CreationTime><DeletionTime>null</DeletionTime>"),
    "closed at midnight of no day": one(
        "</CreationTime>", "</CreationTime><DeletionTime>0000-00-00T00:00:00</DeletionTime>"
    ),
    "closed on 31 February": one(
        "</CreationTime>", "</CreationTime><DeletionTime>2019-02-31T00:00:00</DeletionTime>"
    ),
    "closed with nothing": one("</CreationTime>", "</CreationTime><DeletionTime/>"),
    "a DeletionTime of the User": one(
        "</User>", "<DeletionTime>2019-02-03T00:00:00</DeletionTime></User>"
    ),
    "no Title": one("<Title>.*?</Title>", ""),
    "a blank Title": one("<Title>.*?</Title>", "<Title>\u00a0</Title>"),
    "a misspelt Title": one("<Title>(.*?)</Title>", r"<Titel>\1</Titel>"),
    "a monstrous Title": one("<Title>", "<Title>" + "x" * 5_000),
    "a monstrous alias": one("<Name>", "<Name>" + "x" * 5_000),
    "no FirstCreationTime": one("<FirstCreationTime>.*?</FirstCreationTime>", ""),
    "no Type": one("<Type>.*?</Type>", ""),
    "text in a Document": one("(<Document [^>]*>)", r"\1Alias"),
    "text in Documents": one("<Documents>", "<Documents>?"),
    "another User's start": one("<User>", "<User><Usr/>"),
    "a misspelt User": one("<User>(.*)</User>", r"<Uzer>\1</Uzer>"),
    "escaped markup": one("<Alias>(.*?)</Alias>", r"&lt;Alias&gt;\1&lt;/Alias&gt;"),
    "a Document in a comment": one("(<Document .*?</Document>)", rf"<!--\1-->{LEFT}"),
    "a Document in an instruction": one("(<Document .*?</Document>)", rf"<?x \1?>{LEFT}"),
    "a namespace": one("<User>", "<User xmlns='urn:x'>"),
}

# The identifier is lost.
ANONYMOUS: dict[str, Damage] = {
    "a digit less": one("<Identifier>(.)", "<Identifier>"),
    "a letter in it": one("<Identifier>.", "<Identifier>O"),
    "a misspelt Identifier": one("<Identifier>(.*?)</Identifier>", r"<Identifer>\1</Identifer>"),
    "only text": one("<User>(.*)</User>", lambda found: re.sub("<[^>]*>", " ", found[0])),  # type: ignore[arg-type]
    "a CDATA section": one("<User>(.*)</User>", r"<![CDATA[<User>\1</User>]]>"),
    "escaped": one(
        "<User>(.*)</User>",
        lambda found: found[0].replace("<", "&lt;").replace(">", "&gt;"),  # type: ignore[arg-type]
    ),
}


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return MIGRATIONS


@pytest.fixture
def taxpayers(tmp_path: Path) -> Taxpayers:
    seed = int(os.environ.get("HASAT_FUZZ_SEED", "13"))
    print(f"HASAT_FUZZ_SEED={seed}")
    taxpayers = Taxpayers(seed, tmp_path)
    taxpayers.grow(200)
    return taxpayers


@pytest.fixture
def sync(store: Store, settings: Settings) -> SyncRunner:
    return SyncRunner(store, settings)


def damaging(victims: dict[str, Damage]) -> Callable[[str, str], str]:
    """Return a function that damages Users of the PK list."""

    def tamper(box: str, xml: str) -> str:
        if box == "GB":
            return xml
        for identifier, damage in victims.items():
            start = xml.index(f"<User><Identifier>{identifier}<")
            end = xml.index("</User>", start) + len("</User>")
            xml = xml[:start] + damage(xml[start:end]) + xml[end:]
        return xml

    return tamper


def invoicing(taxpayers: Taxpayers) -> list[str]:
    """Return taxpayers of the PK list with an open alias for invoices, in random order."""
    found = [name for name, user in taxpayers.lists["PK"].items() if "Invoice" in user.documents]
    return taxpayers.dice.sample(found, len(found))


@pytest.mark.parametrize("max_new", [50_000, 0])
async def test_damage_that_reads_as_absence_changes_no_taxpayer(
    store: Store, sync: SyncRunner, taxpayers: Taxpayers, max_new: int
) -> None:
    await sync(taxpayers.publish())
    before = deepcopy(taxpayers.lists)
    victims = dict(zip(invoicing(taxpayers), DAMAGES.values(), strict=False))
    assert len(victims) == len(DAMAGES)
    sync.settings = lenient(sync.settings)
    # Removals of undamaged taxpayers still count.
    gone = next(name for name in taxpayers.lists["PK"] if name not in victims)
    for box in ("PK", "GB"):
        taxpayers.lists[box].pop(gone, None)
        before[box].pop(gone, None)
    report = await sync(taxpayers.publish(damaging(victims)), max_new=max_new)
    assert report.lists["pk"].rejected == len(victims)
    await sync.check_mirror(before)
    async with store.connection() as conn:
        rows = await (await conn.execute("SELECT key, reason FROM raw.set_aside")).fetchall()
    assert {key for key, _ in rows} == set(victims)
    assert all(reason for _, reason in rows)
    # Again with another change, and then with a readable list.
    await sync(taxpayers.publish(damaging(victims)), max_new=max_new)
    await sync.check_mirror(before)
    taxpayers.churn()
    await sync(taxpayers.publish(), max_new=max_new)
    await sync.check_mirror(taxpayers.lists)


@pytest.mark.parametrize("damage", ANONYMOUS)
async def test_damage_without_identifier_prevents_removals(
    sync: SyncRunner, taxpayers: Taxpayers, damage: str
) -> None:
    await sync(taxpayers.publish())
    before = deepcopy(taxpayers.lists)
    victim = invoicing(taxpayers)[0]
    for max_new in (50_000, 0):
        tampered = taxpayers.publish(damaging({victim: ANONYMOUS[damage]}))
        report = await sync(tampered, max_new=max_new)
        assert report.lists["pk"].rejected == 1
        await sync.check_mirror(before)
    del taxpayers.lists["PK"][victim]
    await sync(taxpayers.publish())
    await sync.check_mirror(taxpayers.lists)


@pytest.mark.parametrize("max_new", [50_000, 0])
async def test_two_damaged_users_are_not_removed_and_counted_by_the_guard(
    sync: SyncRunner, taxpayers: Taxpayers, max_new: int
) -> None:
    await sync(taxpayers.publish())
    one, two = invoicing(taxpayers)[:2]
    damaged = taxpayers.publish(
        damaging({one: DAMAGES["a misspelt attribute"], two: DAMAGES["a misspelt type"]})
    )
    with pytest.raises(GuardError, match="unreadable users"):
        await sync(damaged, max_new=max_new)
    report = await sync(damaged, max_new=max_new, approving=2)
    assert report.lists["pk"].rejected == 2
    assert report.outcome == "unchanged"
    await sync.check_mirror(taxpayers.lists)


@pytest.mark.parametrize("max_new", [50_000, 0])
async def test_a_document_type_of_a_third_of_the_list_is_accepted(
    sync: SyncRunner, taxpayers: Taxpayers, max_new: int
) -> None:
    await sync(taxpayers.publish())
    everyone = sorted(taxpayers.lists["PK"])

    def give(names: list[str]) -> None:
        for name in names:
            taxpayers.lists["PK"][name].documents["Producer"] = {"urn:p": taxpayers.moment()}

    give(everyone[:10])
    sync.settings = lenient(sync.settings)
    assert (await sync(taxpayers.publish(), max_new=max_new)).lists["pk"].rejected == 10
    give(everyone[: len(everyone) // 2])
    assert (await sync(taxpayers.publish(), max_new=max_new)).lists["pk"].rejected == 0
    await sync.check_mirror(taxpayers.lists)
    # A type that was accepted once causes no more doubts.
    give(everyone[-1:])
    assert (await sync(taxpayers.publish(), max_new=max_new)).lists["pk"].rejected == 0
    await sync.check_mirror(taxpayers.lists)


async def test_a_format_that_reads_as_a_mass_removal_is_held(
    sync: SyncRunner, taxpayers: Taxpayers
) -> None:
    await sync(taxpayers.publish())
    renamed = taxpayers.publish(lambda _, xml: xml.replace('"Invoice"', '"EInvoice"'))
    with pytest.raises(GuardError, match="removed"):
        await sync(renamed)


JUNKS: dict[str, Callable[[str], str]] = {
    "an attribute": one("<User>", f"<User junk='{JUNK}'>"),
    "a title": one("<Title>", f"<Title>{JUNK}"),
    "an element": one("</User>", f"<Junk>{JUNK}</Junk></User>"),
    "white space": one("</Title>", f"</Title>{' ' * len(JUNK)}"),
    "a comment": one("<User>", f"<!-- {JUNK} --><User>"),
}


@pytest.mark.parametrize("junk", JUNKS)
async def test_junk_of_five_megabytes_is_held_and_makes_no_later_list_look_small(
    sync: SyncRunner, taxpayers: Taxpayers, junk: str
) -> None:
    await sync(taxpayers.publish())
    victim = invoicing(taxpayers)[0]
    large = taxpayers.publish(damaging({victim: JUNKS[junk]}))
    with pytest.raises(GuardError, match="PK list: more bytes"):
        await sync(large)
    await sync(large, approving=2)
    await sync.check_mirror(taxpayers.lists)
    taxpayers.churn()
    assert (await sync(taxpayers.publish())).outcome == "committed"
    await sync.check_mirror(taxpayers.lists)


@pytest.mark.parametrize("junk", JUNKS)
async def test_junk_in_the_first_list_makes_no_later_list_look_small(
    sync: SyncRunner, taxpayers: Taxpayers, junk: str
) -> None:
    await sync(taxpayers.publish(damaging({invoicing(taxpayers)[0]: JUNKS[junk]})))
    await sync(taxpayers.publish())
    await sync.check_mirror(taxpayers.lists)


async def test_a_list_of_shorter_records_is_held(sync: SyncRunner, taxpayers: Taxpayers) -> None:
    sync.settings = lenient(sync.settings)
    for user in (user for users in taxpayers.lists.values() for user in users.values()):
        _lengthen(user)
    await sync(taxpayers.publish())
    short = taxpayers.publish(lambda _, xml: re.sub("<Alias><Name>urn:long.*?</Alias>\n", "", xml))
    with pytest.raises(GuardError, match="fewer bytes"):
        await sync(short)


async def test_a_list_with_far_more_users_is_held_and_can_be_approved(
    sync: SyncRunner, taxpayers: Taxpayers
) -> None:
    await sync(taxpayers.publish())
    taxpayers.grow(150)
    large = taxpayers.publish()
    with pytest.raises(GuardError, match="more users"):
        await sync(large)
    await sync(large, approving=2)
    await sync.check_mirror(taxpayers.lists)


def _lengthen(user: User) -> None:
    for aliases in user.documents.values():
        aliases["urn:long" + "x" * 250] = "2020-01-01T00:00:00"
