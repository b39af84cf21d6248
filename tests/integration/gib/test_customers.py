"""A list of customers: ruined identifiers, every format, the command line and HTTP."""

import base64
import csv
import io
import json
import random
from pathlib import Path
from typing import Any

import httpx2
import openpyxl
import pytest

from hasat.source import Source
from hasat.sources.gib.check.customers import ADDED
from hasat.sources.gib.datasets import EDESPATCH, EINVOICE
from hasat.sources.gib.source import GIB
from hasat.store import MigrationSet, Store
from hasat.testing.database import ThrowAwayDatabase
from support.feed_toys import run
from support.gib_lists import MIGRATIONS, by_identifier, taxpayer_body
from support.processes import Commands

pytestmark = pytest.mark.anyio


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return MIGRATIONS


@pytest.fixture
def sources() -> list[Source]:
    return [GIB]


def _vkn(dice: random.Random) -> str:
    """Return a VKN whose check digit fits; many begin with zeros."""
    digits = [int(one) for one in f"{dice.randrange(10 ** dice.choice([7, 8, 9])):09d}"]
    total = 0
    for weight, digit in zip(range(9, 0, -1), digits, strict=True):
        step = (digit + weight) % 10
        total += step and ((step * 2**weight) % 9 or 9)
    return "".join(map(str, [*digits, -total % 10]))


def _ruin(number: str, dice: random.Random) -> tuple[Any, str | None]:
    """Return an identifier as a spreadsheet or a typist ruins it, and the likely one."""
    spaced = f"{number[:3]} {number[3:6]} {number[6:]}"
    dotted = f"{number[0]}.{number[1:4]}.{number[4:7]}.{number[7:]}"
    kinds: list[tuple[Any, str | None]] = [
        (spaced, number),
        (dotted, number),
        (f"'{number}", number),
        (f" {number}\u00a0", number),
        (f"VKN {number}", number),
        (f"{number},00", number),
        (f"{number[0]},{number[1:]}E+09" if number[0] != "0" else f"{number}.0", number),
        (f"{number[0]},{number[1:4]}E+09", None),
        (f"{number}7777", None),
        (dice.choice(["yok", "-", "bilinmiyor"]), None),
    ]
    if number.startswith("0"):
        kinds += 4 * [(int(number), number), (number.lstrip("0"), number)]
    if "0" in number[1:]:
        kinds.append((number[0] + number[1:].replace("0", "O", 1), number))
    if "1" in number:
        kinds.append((number.replace("1", "l", 1), number))
    return dice.choice(kinds)


class Customers:
    """5,000 customers, a third of them with ruined identifiers, and the expected answers."""

    def __init__(self, seed: int) -> None:
        dice = random.Random(seed)
        numbers = sorted({_vkn(dice) for _ in range(5200)})[:5000]
        dice.shuffle(numbers)
        self.einvoice = {one for one in numbers if dice.random() < 0.6}
        self.edespatch = {one for one in numbers if dice.random() < 0.2}
        self.rows: list[list[Any]] = []
        self.expected: list[tuple[str, str | None, str | None, str | None]] = []
        for place, number in enumerate(numbers):
            ruined, likely = number, None
            malformed = dice.random() < 1 / 3
            if malformed:
                ruined, likely = _ruin(number, dice)
            else:
                # Excel turns numbers that stay whole into numeric cells; nothing is lost.
                ruined = int(number) if number[0] != "0" and dice.random() < 0.5 else number
            phone = f"53{dice.randrange(10**8):08d}"
            row = [f"C{place:05d}", phone, dice.choice(["=1+1", "ÇAĞ", "a;b"]), ruined, place / 4]
            self.rows.append(row)
            yes = ["yes" if number in one else "no" for one in (self.einvoice, self.edespatch)]
            self.expected.append(
                (number, None, None, likely) if malformed else (number, *yes, None)
            )

    async def register(self, store: Store) -> None:
        for dataset, numbers in ((EINVOICE, self.einvoice), (EDESPATCH, self.edespatch)):
            bodies = [taxpayer_body(one, f"Ş {one}", f"pk@{one}") for one in numbers]
            await run(store, by_identifier(*bodies), dataset=dataset)

    def save(self, path: Path, *, heading: str = "Vergi Numarası") -> None:
        book = openpyxl.Workbook()
        sheet = book.active
        sheet.append(["Kod", "Telefon", "Ad", heading, "Tutar"])
        for row in self.rows:
            sheet.append(row)
            # A formula without a value; the text is what is wanted.
            sheet.cell(sheet.max_row, 3).data_type = "s"
        book.save(path)

    def check(self, rows: list[list[Any]]) -> None:
        """Assert the answers of every row."""
        assert [str(one) for one in rows[0][5:]] == list(ADDED)
        assert len(rows) == len(self.rows) + 1
        for row, given, expected in zip(rows[1:], self.rows, self.expected, strict=True):
            number, einvoice, edespatch, likely = expected
            answer = dict(zip(ADDED, [one or None for one in row[5:]], strict=True))
            assert (answer["einvoice"], answer["edespatch"]) == (einvoice, edespatch), (row, given)
            if einvoice is None:
                assert answer["note"], row
                assert (f"likely {likely}" in answer["note"]) == (likely is not None), row
                assert answer["invoice_kind"] is None
            else:
                registered = einvoice == "yes"
                assert answer["invoice_kind"] == ("e-Fatura" if registered else "e-Arşiv")
                assert answer["send_to"] == (f"pk@{number}" if registered else None)
                listed = "yes" in (einvoice, edespatch)
                assert answer["title_in_list"] == (f"Ş {number}" if listed else None)


async def test_an_excel_file_of_5_000_customers(
    database: ThrowAwayDatabase, tmp_path: Path, store: Store
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    customers = Customers(seed)
    await customers.register(store)
    source, result = tmp_path / "müşteriler.xlsx", tmp_path / "sonuç.xlsx"
    customers.save(source)
    hasat = Commands("gib", database.url, tmp_path, columns=200)
    done = hasat("check", str(source), "--out", str(result))
    assert done.returncode == 0, done.stderr
    malformed = sum(one[1] is None for one in customers.expected)
    for line in ("5,000 records", "Vergi Numarası", f"malformed  {malformed:,}"):
        assert line in done.stdout
    rows = [list(row) for row in openpyxl.load_workbook(result).active.values]
    customers.check(rows)
    for row, given in zip(rows[1:], customers.rows, strict=True):
        assert row[:5] == given
    # Once more from the result, as text: the same answers in the columns after it.
    again = tmp_path / "again.csv"
    done = hasat("check", str(result), "--out", str(again), "--column", "vergi numarası", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["rows"], summary["malformed"]) == (5000, malformed)
    content = again.read_bytes()
    assert content.startswith(b"\xef\xbb\xbfKod;")
    table = list(csv.reader(io.StringIO(content.decode("utf-8-sig")), delimiter=";"))
    customers.check([[*row[:5], *row[12:]] for row in table])
    assert not any(cell[:1] == "=" for row in table for cell in row)
    assert not [one for one in tmp_path.iterdir() if one.suffix == ".part"]


SMALL = "Ad;VKN\r\n=1+1;1234567890\r\nÇağ;864387\r\nIŞIK;\r\n\r\nx;11111111111\r\n"


async def _register_one(store: Store) -> None:
    one = by_identifier(taxpayer_body("1234567890", "IŞIK A.Ş.", "urn:mail:pk@isik.tr"))
    await run(store, one, dataset=EINVOICE)
    await run(store, {}, dataset=EDESPATCH)


async def test_a_file_over_http(client: httpx2.AsyncClient, store: Store) -> None:
    await _register_one(store)
    file = {"file": ("müşteri listesi.csv", SMALL.encode("cp1254"), "text/csv")}
    response = await client.post("/api/v1/check/file", files=file)
    assert response.status_code == 200, response.text
    assert response.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert "listesi-checked.csv" in response.headers["Content-Disposition"]
    assert response.content.decode("utf-8-sig") == (
        "Ad;VKN;einvoice;edespatch;invoice_kind;send_to;despatch_send_to;title_in_list;note\r\n"
        "'=1+1;1234567890;yes;no;e-Fatura;urn:mail:pk@isik.tr;;IŞIK A.Ş.;\r\n"
        'Çağ;864387;;;;;;;"has 6 digits, not 10 or 11; likely 0000864387"\r\n'
        "IŞIK;;;;;;;;no identifier\r\n"
        "\r\n"
        "x;11111111111;no;no;e-Arşiv;;;;wrong check digit\r\n"
    )
    summary = json.loads(response.headers["X-Check-Summary"])
    version = summary.pop("version")
    assert summary == {
        "rows": 4,
        "registered": 1,
        "notRegistered": 1,
        "malformed": 1,
        "empty": 1,
        "column": "VKN",
        "sheet": None,
        "otherSheets": [],
    }
    assert version == (await client.get("/api/v1/check/1234567890")).json()["version"]
    turkish = await client.post(
        "/api/v1/check/file",
        files=file,
        data={"format": "xlsx", "column": "2"},
        headers={"Accept-Language": "tr"},
    )
    rows = list(openpyxl.load_workbook(io.BytesIO(turkish.content)).active.values)
    assert rows[1][:3] == ("=1+1", "1234567890", "yes")
    assert rows[2][8] == "6 haneli, 10 veya 11 değil; olası numara 0000864387"


async def test_steps_over_http(client: httpx2.AsyncClient, store: Store) -> None:
    await _register_one(store)
    text = SMALL + "".join(f"a;{number:010d}\r\n" for number in range(3000))
    steps = {"Accept": "application/x-ndjson"}
    file = {"file": ("list.csv", text.encode(), "text/csv")}
    whole = await client.post("/api/v1/check/file", files=file)
    response = await client.post("/api/v1/check/file", files=file, headers=steps)
    lines = [json.loads(line) for line in response.text.splitlines()]
    progress = [line["progress"] for line in lines if "progress" in line]
    assert (progress[-1]["done"], progress[-1]["total"]) == (3006, 3006)
    (summary,) = [line["summary"] for line in lines if "summary" in line]
    assert (summary["rows"], summary["file"]["name"]) == (3004, "list-checked.csv")
    content = b"".join(base64.b64decode(line["data"]) for line in lines if "data" in line)
    assert content == whole.content
    assert len(content) == summary["file"]["size"]
    wrong = {"file": ("list.csv", b"Ad;Adres\r\nx;y\r\n", "text/csv")}
    response = await client.post("/api/v1/check/file", files=wrong, headers=steps)
    error = json.loads(response.text.splitlines()[-1])["error"]
    assert error["code"] == "unreadable-table"
    assert "no column with VKNs or TCKNs" in error["detail"]


async def test_files_that_cannot_be_checked(
    client: httpx2.AsyncClient, store: Store, tmp_path: Path, database: ThrowAwayDatabase
) -> None:
    good = {"file": ("list.csv", SMALL.encode(), "text/csv")}
    assert (await client.post("/api/v1/check/file", files=good)).status_code == 503
    await _register_one(store)
    for files, data, expected in (
        ({"file": ("list.pdf", b"%PDF-", "x")}, {}, ".csv, .tsv or .xlsx"),
        ({"file": ("list.xlsx", SMALL.encode(), "x")}, {}, "it is a text file"),
        (good, {"column": "Vergi"}, "no column named 'Vergi'. Its columns are: Ad, VKN"),
    ):
        response = await client.post("/api/v1/check/file", files=files, data=data)
        assert (response.status_code, response.json()["code"]) == (400, "unreadable-table")
        assert expected in response.json()["detail"]
    for files, data in ((good, {"format": "pdf"}), ({}, {"column": "x"})):
        response = await client.post("/api/v1/check/file", files=files, data=data)
        assert response.status_code == 400
    hasat = Commands("gib", database.url, tmp_path, columns=200)
    path, out = tmp_path / "list.csv", tmp_path / "out.csv"
    path.write_text(SMALL, "utf-8", newline="")
    for arguments, expected in (
        ([path], "Add --out"),
        ([path, "--out", path], "overwrite itself"),
        ([path, "--out", tmp_path / "out.pdf"], ".csv, .tsv or .xlsx"),
        ([path, "--out", tmp_path / "no" / "out.csv"], "Cannot write"),
        ([tmp_path / "none.csv", "--out", out], "There is no file"),
        ([path, "--out", out, "--column", "x"], "no column named"),
        (["1234567890", "864387", "--out", out], "Give one file"),
    ):
        refused = hasat("check", *map(str, arguments))
        assert (refused.returncode, expected in refused.stderr) == (2, True), refused.stderr
    assert sorted(one.name for one in tmp_path.glob("*.csv")) == ["list.csv"]
