"""The commands `hasat gib lookup` and `hasat gib search`, and watch lists of taxpayers."""

from pathlib import Path

import pytest

from hasat.clock import local_time
from hasat.sources.gib.datasets import EINVOICE
from hasat.store import MigrationSet, Store
from hasat.tables import write_table
from hasat.testing.database import ThrowAwayDatabase
from support.feed_toys import run
from support.gib_lists import MIGRATIONS, by_identifier, load_mirror, taxpayer_body
from support.processes import Commands

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return MIGRATIONS


@pytest.fixture
def hasat(database: ThrowAwayDatabase, tmp_path: Path) -> Commands:
    return Commands("gib", database.url, tmp_path, columns=200)


async def test_lookup_now_and_at_a_given_time(hasat: Commands, store: Store) -> None:
    empty = hasat("lookup", "1234567890")
    assert (empty.returncode, "has no data yet" in empty.stderr) == (1, True)
    await load_mirror(
        store, by_identifier(taxpayer_body("1234567890", "IŞIK A.Ş.", "urn:mail:pk@x"))
    )
    first = await run(
        store,
        by_identifier(taxpayer_body("1234567890", "IŞIK A.Ş.", "urn:mail:pk@x")),
        dataset=EINVOICE,
    )
    await run(store, by_identifier(taxpayer_body("1234567890", "GÜNEŞ A.Ş.")), dataset=EINVOICE)
    assert hasat.json("lookup", "1234567890")["einvoice"]["title"] == "GÜNEŞ A.Ş."
    then = hasat("lookup", "1234567890", "--as-of", local_time(first.committed_at))
    assert "IŞIK A.Ş." in then.stdout
    assert "urn:mail:pk@x" in then.stdout
    missing = hasat("lookup", "1234567890", "--dataset", "edespatch")
    assert missing.returncode == 1
    assert "not an active taxpayer of edespatch" in missing.stderr
    mangled = hasat("lookup", "864387")
    assert mangled.returncode == 2
    assert "Did you mean 0000864387?" in mangled.stderr
    gone = hasat("lookup", "1234567890", "--as-of", "2001-01-01")
    assert (gone.returncode, "nothing is known of the time before" in gone.stderr) == (1, True)


async def test_search_reports_what_would_make_it_faster(hasat: Commands, store: Store) -> None:
    await load_mirror(
        store, by_identifier(taxpayer_body("1234567890", "IŞIK A.Ş.", "urn:mail:pk@x"))
    )
    slow = hasat("search", "isik")
    assert (slow.returncode, "1234567890" in slow.stdout) == (0, True)
    assert "hasat jobs run gib_search" in slow.stderr
    found = hasat.json("search", "--alias", "PK@X")
    assert [item["identifier"] for item in found["einvoice"]["items"]] == ["1234567890"]
    assert found["edespatch"]["totalCount"] == 0
    nothing = hasat("search", "zzz", "--dataset", "einvoice")
    assert (nothing.returncode, "0 found" in nothing.stdout) == (0, True)
    assert hasat("search").returncode == 2


async def test_the_keys_of_a_table_are_added_to_a_watch_list(
    database: ThrowAwayDatabase, tmp_path: Path, store: Store
) -> None:
    """The column is found by content; cells that are no keys are reported by their line."""
    await load_mirror(store, by_identifier(taxpayer_body("1234567890", "IŞIK A.Ş.")))
    watchlists = Commands("watchlists", database.url, tmp_path, columns=200)
    to = ("--webhook", "https://erp.example.com/hasat")
    created = watchlists("create", "customers", "--dataset", "einvoice", "--key", "9999999999", *to)
    assert created.returncode == 0, created.stderr
    rows = [["Müşteriler"], ["Kod", "VKN", "Ad"], ["1", "1234567890", "IŞIK"], ["2", "864387", "X"]]
    workbook = tmp_path / "customers.xlsx"
    with workbook.open("wb") as file:
        writer = write_table(file, "xlsx")
        writer.add(rows)
        writer.close()
    added = watchlists("import", "customers", str(workbook))
    assert (added.returncode, "1 of 1 keys added" in added.stdout) == (0, True), added.stderr
    assert "Line 4: '864387' has 6 digits" in added.stderr
    listed = tmp_path / "more.csv"
    listed.write_text("Ad;Eski;Yeni\nA;1111111111;2222222222\n", "utf-8")
    assert watchlists.json("import", "customers", str(listed), "--column", "Yeni")["added"] == 1
    missing = watchlists("import", "customers", str(listed), "--column", "VKN")
    assert (missing.returncode, "no column named 'VKN'" in missing.stderr) == (2, True)
    assert watchlists.json("show", "customers")["keys"] == [
        "1234567890", "2222222222", "9999999999",
    ]  # fmt: skip
