"""Tables of users: what is read, what is written, and what is refused."""

import codecs
import datetime as dt
import io
import os
import random
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from hasat.errors import UsageError
from hasat.tables import (
    Cell,
    Row,
    Table,
    TableError,
    cell_text,
    read_table,
    replacing_file,
    write_table,
)

ROWS = [
    ["Ad", "No", "Not"],
    ['IŞIK; "A"', "0012345678", "iki\nsatır"],
    ["Çağ", "1234567890", "1,5"],
]


def score(cells: Sequence[Cell]) -> float:
    texts = [cell_text(cell) for cell in cells]
    return sum(len(text) == 10 and text.isdigit() for text in texts) / len(texts)


def _read(path: Path, **options: Any) -> Table:
    return read_table(path, score=score, looked_for="numbers", **options)


def _rows(path: Path, **options: Any) -> list[Row]:
    with _read(path, **options) as table:
        return list(table.rows())


def _text(rows: list[list[str]], delimiter: str) -> str:
    def quoted(cell: str) -> str:
        return '"' + cell.replace('"', '""') + '"' if set(cell) & set('\n";,\t|') else cell

    return "".join(delimiter.join(map(quoted, row)) + "\r\n" for row in rows)


@pytest.mark.parametrize("delimiter", [";", ",", "\t", "|"])
@pytest.mark.parametrize(
    "encode",
    [
        lambda text: text.encode(),
        lambda text: codecs.BOM_UTF8 + text.encode(),
        lambda text: text.encode("utf-16"),
        lambda text: text.encode("utf-16-le"),
        lambda text: codecs.BOM_UTF16_BE + text.encode("utf-16-be"),
        lambda text: text.encode("cp1254"),
    ],
)
def test_encoding_and_delimiter_are_found_by_content(
    tmp_path: Path, delimiter: str, encode: Callable[[str], bytes]
) -> None:
    path = tmp_path / "list.csv"
    path.write_bytes(encode(_text(ROWS, delimiter)))
    with _read(path) as table:
        assert list(table.rows()) == ROWS
        assert (table.column, table.heading, table.width, table.column_name) == (1, 1, 3, "No")


def test_shapes_of_text_files(tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    for text, rows, heading in (
        ("sep=,\r\nNo,Ad\r\n1234567890,x;y\r\n", [["No", "Ad"], ["1234567890", "x;y"]], 1),
        ("1234567890\n0012345678\n", [["1234567890"], ["0012345678"]], None),
        ("No\n1234567890", [["No"], ["1234567890"]], 1),
        ('No;Ad\n="0012345678";x', [["No", "Ad"], ["0012345678", "x"]], 1),
        (
            "Liste;;\n\nAd;No\nx;1234567890;;\n;;\n\n\n",
            [["Liste"], [], ["Ad", "No"], ["x", "1234567890"]],
            3,
        ),
        ("No;No;Ad\n1234567890;;x\n", [["No", "No", "Ad"], ["1234567890", "", "x"]], 1),
    ):
        path.write_text(text, "utf-8", newline="")
        with _read(path) as table:
            assert (list(table.rows()), table.heading) == (rows, heading), text


def test_the_column_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    path.write_text("Telefon;VERGİ No;x;x\n5321234567;00123;a;b\n", "utf-8")
    with _read(path) as table:
        assert table.column_name == "Telefon"
    for name in ("vergi no", "VERGİ NO", "2"):
        with _read(path, column=name) as table:
            assert (table.column, table.column_name) == (1, "VERGİ No")
    for name, expected in (
        ("vkn", "Telefon, VERGİ No, x, x"),
        ("x", "3, 4"),
        ("9", "no column named"),
    ):
        with pytest.raises(TableError) as raised:
            _read(path, column=name)
        assert expected in str(raised.value)


def test_a_named_heading_may_have_titles_above_it(tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    path.write_text("Liste 2026\n\nAd;Kod;VKN\nVKN;Ad;1\nx;y;2\n", "utf-8")
    with _read(path, column="VKN") as table:
        assert (table.column, table.heading) == (2, 3)
    with pytest.raises(TableError, match="Its columns are: Ad, Kod, VKN"):
        _read(path, column="y")


def test_headings_are_below_titles_and_headings_of_groups(tmp_path: Path) -> None:
    path = tmp_path / "merged.xlsx"
    book = openpyxl.Workbook()
    for row in (
        ["MÜŞTERİ LİSTESİ 2026"],
        ["Kimlik", "Müşteri"],
        ["Vergi No", "Ünvan", "İl", "Bakiye"],
        ["yok", "IŞIK", "İZMİR", 12.5],
        ["0012345678", "ÇAĞ", "İZMİR", 0],
    ):
        book.active.append(row)
    book.active.merge_cells("A1:D1")
    book.active.merge_cells("B2:D2")
    book.save(path)
    for column in (None, "vergi no", "1"):
        with _read(path, column=column) as table:
            assert (table.column, table.heading, table.column_name) == (0, 3, "Vergi No")
    with pytest.raises(TableError, match="Its columns are: Vergi No, Ünvan, İl, Bakiye"):
        _read(path, column="vkn")


def test_a_first_record_of_words_is_not_a_heading(tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    path.write_text("No;Ad;Kod\nyok;IŞIK;120.01\n0012345678;ÇAĞ;120.02\n", "utf-8")
    with _read(path) as table:
        assert table.heading == 1
    path.write_text("No;Ad\nyok;IŞIK\n0012345678;ÇAĞ\n", "utf-8")
    with _read(path) as table:
        assert table.heading == 1


def test_a_workbook_keeps_its_values(tmp_path: Path) -> None:
    path = tmp_path / "book.xlsx"
    book = openpyxl.Workbook()
    book.active.title = "Özet"
    book.active["B2"] = "no numbers here"
    sheet = book.create_sheet("Müşteriler")
    sheet.append(["Liste"])
    sheet.append([])
    sheet.append(["Ad", "No", "Gün", "An", "Tutar", "Var"])
    day, moment = dt.date(2024, 5, 1), dt.datetime(2024, 5, 1, 3, 4, 5)  # noqa: DTZ001
    sheet.append(["IŞIK", "0012345678", day, moment, -1.5, True])
    sheet.append(["=cmd|x", 1234567890, None, dt.time(3, 4), 12345678901234, False])
    sheet.cell(6, 2, 864387).number_format = "0000000000"
    sheet.cell(8, 28, "AB")
    book.save(path)
    with _read(path) as table:
        rows = list(table.rows())
        assert (table.sheet, table.other_sheets, table.heading) == ("Müşteriler", ("Özet",), 3)
        assert table.width == 28
    assert rows[0:3] == [["Liste"], [], ["Ad", "No", "Gün", "An", "Tutar", "Var"]]
    assert rows[3] == ["IŞIK", "0012345678", day, moment, -1.5, True]
    assert rows[4][1:] == [1234567890, None, dt.time(3, 4), 12345678901234, False]
    assert rows[5][1] == "0000864387"
    assert rows[7] == [*[None] * 27, "AB"]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    letters = "aİıŞ,;\t\n\"'=+-@|x_ "
    rows: list[Row] = [["Ad", "No"]]
    for _ in range(3000):
        text = "".join(dice.choices(letters, k=dice.randrange(12))) + "."
        rows.append([text, f"{dice.randrange(10**10):010d}"])
    for ending in ("csv", "tsv", "xlsx"):
        path = tmp_path / f"list.{ending}"
        with path.open("wb") as file:
            writer = write_table(file, ending)  # type: ignore[arg-type]
            writer.add(rows)
            writer.close()
        again = _rows(path)
        assert [row[1] for row in again] == [row[1] for row in rows]
        for row, read in zip(rows, again, strict=True):
            assert read[0] in {row[0], f"'{row[0]}"}, ending
            if ending != "xlsx":
                assert str(read[0]).lstrip()[:1] not in set("=+-@"), read


def test_formulas_are_escaped_and_numbers_are_not(tmp_path: Path) -> None:
    formulas = ["=1+1", "+1+1", "-1-1", "@SUM(A1)", "\t=1", "=cmd|' /C calc'!A0", "＝1", "-2+3"]
    numbers = ["-1.250,00", "+90 532 123 45 67", "-5", "0012345678"]
    path = tmp_path / "list.csv"
    with path.open("wb") as file:
        writer = write_table(file, "csv")
        writer.add([["No", text] for text in (*formulas, *numbers)])
        writer.add([["No", value] for value in (-1.5, dt.date(2024, 5, 1), None, True)])
        writer.close()
    content = path.read_bytes()
    assert content.startswith(codecs.BOM_UTF8 + b"No;")
    written = [row[1] if len(row) > 1 else "" for row in _rows(path, column="1")]
    assert written[: len(formulas)] == [f"'{text}" for text in formulas]
    assert written[len(formulas) :] == [*numbers, "-1,5", "01.05.2024", "", "true"]


def test_a_file_is_replaced_only_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    path.write_text("before")
    with pytest.raises(KeyError), replacing_file(path) as file:
        file.write(b"half")
        raise KeyError
    assert path.read_text() == "before"
    with replacing_file(path) as file:
        file.write(b"after")
    assert path.read_text() == "after"
    for other in (tmp_path, tmp_path / "no" / "list.csv"):
        with pytest.raises(UsageError), replacing_file(other):
            pytest.fail("it is open")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="is not a file"), replacing_file(tmp_path / "pipe"):
        pytest.fail("it is open")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["list.csv", "pipe"]


def _zip(**parts: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return file.getvalue()


def _book(sheet: bytes, strings: bytes | None = None) -> bytes:
    parts = {
        "xl/workbook.xml": b'<workbook xmlns:r="u"><sheets><sheet name="S" r:id="a"/></sheets>'
        b"</workbook>",
        "xl/_rels/workbook.xml.rels": b'<Relationships><Relationship Id="a"'
        b' Target="worksheets/sheet1.xml"/></Relationships>',
        "xl/worksheets/sheet1.xml": sheet,
    }
    if strings is not None:
        parts["xl/sharedStrings.xml"] = strings
    return _zip(**parts)


_ROW = b'<row r="1"><c r="A1"><v>1234567890</v></c></row>'
_GOOD = b"<worksheet><sheetData>" + _ROW + b"</sheetData></worksheet>"
_DTD = b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'


def _book_of_one_part(sheets: int, sheet: bytes) -> bytes:
    """Return a workbook whose sheets are all the same part."""
    book = "".join(f'<sheet name="S{n}" r:id="a"/>' for n in range(sheets)).encode()
    return _zip(
        **{
            "xl/workbook.xml": b'<workbook xmlns:r="u"><sheets>' + book + b"</sheets></workbook>",
            "xl/_rels/workbook.xml.rels": b'<Relationships><Relationship Id="a"'
            b' Target="worksheets/sheet1.xml"/></Relationships>',
            "xl/worksheets/sheet1.xml": sheet,
        }
    )


def test_a_minimal_workbook(tmp_path: Path) -> None:
    path = tmp_path / "book.xlsx"
    path.write_bytes(_book(_GOOD))
    assert _rows(path) == [[1234567890]]
    prefixed = _GOOD.replace(b"<", b"<x:").replace(b"<x:/", b"</x:")
    path.write_bytes(_book(prefixed.replace(b"<x:worksheet", b'<x:worksheet xmlns:x="u"', 1)))
    assert _rows(path) == [[1234567890]]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("list.csv", b"", "list.csv is empty"),
        ("list.csv", b"\r\n\r\n \r\n", "list.csv is empty"),
        ("list.csv", b"Ad;Adres\nx;y\n", "no column with numbers. Its first row is: Ad, Adres."),
        ("list.csv", b'No\n1234567890\n"x', "does not end"),
        ("list.csv", b"No;\x81\n", "neither UTF-8"),
        ("list.csv", _book(_GOOD), "a workbook or another ZIP file. Rename the file so that"),
        ("list.csv", b"No\x00\x01\x02", "neither text nor a workbook"),
        ("list.xlsx", b"No;Ad\n1234567890;x\n", "it is a text file. Rename the file"),
        ("list.xlsx", b"<html><table></table></html>", "a web page"),
        ("list.xlsx", b"%PDF-1.7", "a PDF"),
        ("list.xlsx", bytes.fromhex("d0cf11e0a1b11ae1"), "an old workbook"),
        ("list.xls", b"x", "does not end with .csv, .tsv or .xlsx"),
        ("list.xlsx", _zip(**{"word/document.xml": b"<x/>"}), "a ZIP file, but not a workbook"),
        ("list.xlsx", _zip(**{"content.xml": b"<x/>"}), "an OpenDocument file"),
        ("list.xlsx", _zip(**{"xl/workbook.bin": b"x"}), "a binary workbook"),
        ("list.xlsx", _book(_GOOD)[:-200], "is damaged"),
        ("list.xlsx", _book(_GOOD[:-5]), "is damaged: unclosed token"),
        ("list.xlsx", _book(_DTD + _GOOD), "a document type declaration"),
        ("list.xlsx", _book(_GOOD, _DTD + b"<sst><si><t>&b;</t></si></sst>"), "declaration"),
        ("list.xlsx", _book(b"<worksheet>" + b" " * 200_000_000), "much larger than it seems"),
        (
            "list.xlsx",
            _book_of_one_part(5, b"<worksheet>" + b" " * 30_000_000 + b"</worksheet>"),
            "much larger than it seems",
        ),
        ("list.xlsx", _book(_GOOD.replace(b'r="A1"', b'r="ZZZ1"')), "is damaged"),
        ("list.xlsx", _book(_GOOD.replace(b'r="1"', b'r="9999999"')), "is damaged"),
        ("list.xlsx", _zip(**{f"{n:0200}": b"" for n in range(20_000)}), "too many parts"),
    ],
)
def test_a_file_that_is_no_table_is_refused(
    tmp_path: Path, name: str, content: bytes, expected: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(TableError) as raised:
        _rows(path)
    assert expected in str(raised.value)
    assert str(raised.value).startswith(name)


def test_a_damaged_workbook_is_never_a_crash(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    path = tmp_path / "book.xlsx"
    with path.open("wb") as file:
        writer = write_table(file, "xlsx")
        writer.add([["Ad", "No"], *[[f"x{n}", f"{n:010d}"] for n in range(50)]])
        writer.close()
    whole = path.read_bytes()
    refused = 0
    for _ in range(300):
        content = bytearray(whole)
        for _ in range(dice.randrange(1, 6)):
            content[dice.randrange(len(content))] = dice.randrange(256)
        path.write_bytes(content)
        try:
            _rows(path)
        except TableError:
            refused += 1
    assert refused > 50


_PEAK = """
import resource, sys
from pathlib import Path
from hasat.tables import read_table, write_table
source, target = map(Path, sys.argv[1:])
score = lambda cells: sum(str(cell).isdigit() for cell in cells) / len(cells)
with read_table(source, score=score, looked_for="x") as table, target.open("wb") as file:
    writer = write_table(file, target.suffix[1:])
    for batch in table.batches():
        writer.add([[*row, "yes"] for row in batch])
    writer.close()
print(table.count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_200_000_rows_take_little_more_memory_than_2_000(tmp_path: Path) -> None:
    def peak(source: str, target: str) -> tuple[int, int]:
        command = [sys.executable, "-c", _PEAK, str(tmp_path / source), str(tmp_path / target)]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        count, kilobytes = map(int, printed.split())
        return count, kilobytes

    for name, rows in (("small", 2000), ("large", 200_000)):
        with (tmp_path / f"{name}.csv").open("w") as file:
            file.writelines(f"{n:010d};MÜŞTERİ {n} LİMİTED ŞİRKETİ;x\n" for n in range(rows))
    for source, target in (("csv", "xlsx"), ("xlsx", "csv")):
        few, small = peak(f"small.{source}", f"small.{target}")
        many, large = peak(f"large.{source}", f"large.{target}")
        assert (few, many) == (2000, 200_000)
        assert large < 1.6 * small, (source, target, small, large)


def test_columns_of_a_workbook_are_as_wide_as_their_texts(tmp_path: Path) -> None:
    target = tmp_path / "wide.xlsx"
    with target.open("wb") as file:
        writer = write_table(file, "xlsx")
        writer.add([["A title above the table, which does not widen the first column" * 2]])
        writer.add([["a", "urn:mail:defaultpk@ornek.com.tr", "x" * 500, None], [12345678901234]])
        writer.close()
    sheet = openpyxl.load_workbook(target).active
    assert sheet is not None
    widths = [sheet.column_dimensions[letter].width for letter in "ABC"]
    assert widths == pytest.approx([8, 32, 50], abs=1)
    with zipfile.ZipFile(target) as parts:
        assert b"numberStoredAsText" in parts.read("xl/worksheets/sheet1.xml")
