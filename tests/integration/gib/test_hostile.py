"""Syncs of arbitrarily damaged lists: at worst an error, no removals, then a repaired mirror.

HASAT_FUZZ_SEED repeats a run.
"""

import io
import os
import random
import re
import zipfile
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from pathlib import Path

import pytest

from hasat.errors import HasatError
from hasat.settings import Settings
from hasat.store import MigrationSet, Store
from support.gib_lists import (
    KINDS,
    MIGRATIONS,
    Lists,
    SyncRunner,
    Taxpayers,
    expected_bodies,
    lenient,
    mirrored_bodies,
)

pytestmark = pytest.mark.anyio

ROUNDS = 3 * int(os.environ.get("HASAT_CAMPAIGN", "5"))
HUGE = "x" * 200_000
VALUES = (
    "", " ", "\u0000", "&#0;", "&#xD800;", "&bogus;", "&amp;amp;", "]]>", "\x01", "\ufffe", "0",
    "0000-00-00", "0000-00-00T00:00:00", "10000-01-01T00:00:00", "9999-12-31T23:59:60",
    "-4712-01-01T00:00:00", "2019-02-31T00:00:00", "NaN", "1e400", "9" * 5000, HUGE, "=1+1",
    "<b>x</b>", "<!-- -->", "<![CDATA[<User>]]>", "<User/>", "<?php ?>", "<a>" * 3000, "\U0010ffff",
)  # fmt: skip
NAMES = ("Identifier", "Title", "Type", "FirstCreationTime", "AccountType", "Name", "CreationTime")


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return MIGRATIONS


@pytest.fixture
def taxpayers(tmp_path: Path) -> Taxpayers:
    seed = int(os.environ.get("HASAT_FUZZ_SEED") or random.randrange(2**32))
    print(f"HASAT_FUZZ_SEED={seed}")
    taxpayers = Taxpayers(seed, tmp_path)
    taxpayers.grow(150)
    return taxpayers


@pytest.fixture
def sync(store: Store, settings: Settings) -> SyncRunner:
    return SyncRunner(store, lenient(settings))


def damaged(dice: random.Random, user: str) -> str:
    """Return the XML of a User with random damage."""
    value, name = dice.choice(VALUES), dice.choice(NAMES)
    content = re.compile(f"(<{name}>).*?(</{name}>)", re.DOTALL)
    match dice.randrange(8):
        case 0 | 1 | 2:
            return content.sub(lambda found: f"{found[1]}{value}{found[2]}", user, count=1)
        case 3:
            return content.sub("", user, count=1)
        case 4:
            return content.sub(lambda found: found[0] * 2, user, count=1)
        case 5:
            attribute = value.replace("<", "").replace('"', "")
            return user.replace(f"<{name}>", f'<{name} a="{attribute}" a="b">', 1)
        case 6:
            place = dice.randrange(len(user))
            return user[:place] + value + user[place + dice.randrange(9) :]
        case _:
            return user.replace("</User>", f"{value}</User>{user if dice.random() < 0.3 else ''}")


def tampering(dice: random.Random, victims: set[str]) -> Callable[[str, str], str]:
    def tamper(_: str, xml: str) -> str:
        for identifier in sorted(victims):
            start = xml.find(f"<User><Identifier>{identifier}<")
            if start >= 0:
                end = xml.index("</User>", start) + len("</User>")
                xml = xml[:start] + damaged(dice, xml[start:end]) + xml[end:]
        return xml

    return tamper


def damaged_file(dice: random.Random, path: Path) -> Path:
    """Return a file that is not a valid ZIP of one XML file."""
    xml = path.read_bytes()
    file = path.with_suffix(".zip")

    def packed(**members: bytes) -> bytes:
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(name.replace("_", "."), content)
        return stream.getvalue()

    whole = packed(list_xml=xml)
    cut = dice.randrange(1, len(whole))
    content = dice.choice(
        [
            whole[:cut],
            whole[:cut] + bytes([whole[cut] ^ 0xFF]) + whole[cut + 1 :],
            whole[cut:],
            b"",
            b"PK",
            b"<html>Bakim</html>",
            packed(),
            packed(list_txt=xml),
            packed(a_xml=xml, b_xml=xml),
            packed(list_xml=b"<UserList>" + b" " * 30_000_000 + b"</UserList>"),
            packed(list_xml=xml[: dice.randrange(len(xml))]),
            packed(list_xml=xml.decode().encode("utf-16")),
            packed(list_xml=xml.decode().encode("iso-8859-9", "replace")),
            packed(list_xml=b'<!DOCTYPE a [<!ENTITY b "cccc">]>' + xml),
            packed(list_xml=b"<UserList/>"),
            packed(list_xml=xml.replace(b"<UserList>", b"<UserLists>")),
            packed(list_xml=b"<a>" * 100_000),
            packed(list_xml=xml + b"\0" * 50),
        ]
    )
    file.write_bytes(content)
    return file


async def mirrored(store: Store) -> dict[str, dict[str, object]]:
    return {dataset: await mirrored_bodies(store, dataset) for dataset in KINDS}


def published(lists: Lists) -> dict[str, dict[str, object]]:
    return {dataset: dict(expected_bodies(lists, dataset)) for dataset in KINDS}


@pytest.mark.parametrize("max_new", [50_000, 0])
async def test_damaged_users_are_quarantined_and_never_removed(
    store: Store, sync: SyncRunner, taxpayers: Taxpayers, max_new: int
) -> None:
    await sync(taxpayers.publish())
    quarantined = 0
    for _ in range(ROUNDS):
        before = published(deepcopy(taxpayers.lists))
        everyone = sorted(taxpayers.lists["PK"].keys() | taxpayers.lists["GB"].keys())
        victims = set(taxpayers.dice.sample(everyone, 8))
        try:
            report = await sync(
                taxpayers.publish(tampering(taxpayers.dice, victims)), max_new=max_new
            )
        except HasatError as error:
            # Damage beyond one User: the whole list is rejected or held.
            print(error)
            assert await mirrored(store) == before
        else:
            quarantined += sum(one.rejected for one in report.lists.values())
            now = await mirrored(store)
            for dataset, known in before.items():
                assert known.keys() <= now[dataset].keys()
                for key in known.keys() - victims:
                    assert now[dataset][key] == known[key]
        taxpayers.churn()
        await sync(taxpayers.publish(), max_new=max_new)
        assert await mirrored(store) == published(taxpayers.lists)
    async with store.connection() as conn:
        row = await (await conn.execute("SELECT count(*) FROM raw.set_aside")).fetchone()
    assert quarantined > 0
    assert row is not None
    assert row[0] > 0


async def test_a_file_that_is_not_a_list_changes_nothing(
    store: Store, sync: SyncRunner, taxpayers: Taxpayers
) -> None:
    await sync(taxpayers.publish())
    before = await mirrored(store)
    for _ in range(2 * ROUNDS):
        paths = taxpayers.publish()
        box = taxpayers.dice.choice(["PK", "GB"])
        paths[box] = damaged_file(taxpayers.dice, paths[box])
        with suppress(HasatError):
            await sync(paths)
        assert await mirrored(store) == before
    taxpayers.churn()
    await sync(taxpayers.publish())
    assert await mirrored(store) == published(taxpayers.lists)
