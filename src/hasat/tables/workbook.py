"""XLSX workbooks, read sheet by sheet and row by row.

A workbook is a ZIP file of XML parts from any client. Parts are inflated piece by piece up to
a limit, document type declarations are refused, and shared strings are in a temporary file.
"""

import re
import struct
import tempfile
import zipfile
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from errno import EINVAL
from lzma import LZMAError
from math import isfinite
from pathlib import Path
from types import TracebackType
from typing import Any, Final
from xml.parsers.expat import ExpatError, ParserCreate, errors

from hasat.messages import msg
from hasat.tables.cells import Cell, Row, TableError
from hasat.text import MAX_EXACT_INTEGER

OnProgress = Callable[[float, float | None, str], None]

MAX_ROWS, MAX_COLUMNS, MAX_CELL = 1_048_576, 16_384, 32_767
_CHUNK = 1 << 18
_MAX_BYTES = 4 << 30
# Sheets of equal rows shrink to a hundredth; a bomb to a thousandth.
_MAX_RATIO, _RATIO_FROM = 300, 64 << 20
_MAX_DIRECTORY_BYTES = 4 << 20
_STRINGS_IN_MEMORY = 16 << 20

_REFERENCE = re.compile(r"([A-Z]{1,3})\d+")
_ESCAPE = re.compile("_x([0-9A-Fa-f]{4})_")
# Formats of ECMA-376 that show a date or a time, those of East Asian versions included.
_DATE_FORMATS: Final = frozenset({*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)})
_LITERALS = re.compile(r'"[^"]*"|\[[^\]]*\]|\\.|_.|\*.')
_DATE_LETTERS = re.compile("[ymdhs]", re.IGNORECASE)
_PADDED = re.compile("0{2,}")
_EPOCH, _EPOCH_1904 = datetime(1899, 12, 30), datetime(1904, 1, 1)  # noqa: DTZ001 - cells have no zone
# A RuntimeError is a password or a method of compression that is not supported.
_ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    LZMAError,
    EOFError,
    RuntimeError,
    ValueError,
    struct.error,
)
_MAX_NUMBER_DIGITS = 8
_SURROGATE = re.compile("[\ud800-\udfff]")
_NO_CELLS: Final[Row] = []


@dataclass(frozen=True)
class Sheet:
    """A sheet and the part that it is in."""

    name: str
    part: str


@dataclass(frozen=True)
class _Style:
    """How a number is shown: as a date, or with leading zeros."""

    is_date: bool = False
    digits: int = 0


class Workbook:
    """An open workbook."""

    def __init__(self, archive: zipfile.ZipFile, name: str, size: int) -> None:
        self._archive = archive
        self._name = name
        self._size = size
        self._inflated = 0
        self._parts = {one.filename.lstrip("/").lower(): one for one in archive.infolist()}
        self._check_kind()
        self.sheets, self._epoch = self._read_sheets()
        self._styles = self._read_styles()
        self._strings = _Strings()

    @classmethod
    @contextmanager
    def open(cls, path: Path, name: str) -> "Iterator[Workbook]":
        """Open a workbook; every fault in it is a TableError."""
        try:
            _check_directory(path, name)
            with zipfile.ZipFile(path) as archive:
                book = cls(archive, name, path.stat().st_size)
                with book._strings:
                    book._read_strings()
                    yield book
        except _ZIP_ERRORS as error:
            raise _damaged(name) from error
        except OSError as error:
            # zipfile seeks to where a damaged directory points.
            if error.errno not in {None, EINVAL}:
                raise
            raise _damaged(name) from error

    def rows(self, sheet: Sheet, on_progress: OnProgress | None = None) -> Iterator[Row]:
        """Yield the rows of a sheet, an empty one for each that is left out."""
        parser = _SheetParser(self._name, sheet.name, self._styles, self._strings, self._epoch)
        part = self._parts[sheet.part]
        read = 0
        for chunk in self._chunks(part):
            read += len(chunk)
            if on_progress is not None:
                on_progress(read, part.file_size, msg("reading {name}", name=self._name))
            parser.feed(chunk)
            yield from parser.take()
        parser.feed(b"", final=True)
        yield from parser.take()

    def _check_kind(self) -> None:
        if "xl/workbook.xml" in self._parts or any(
            one.endswith("workbook.xml") for one in self._parts
        ):
            return
        if "xl/workbook.bin" in self._parts:
            kind = msg("a binary workbook (.xlsb)")
        elif "content.xml" in self._parts:
            kind = msg("an OpenDocument file")
        else:
            kind = msg("a ZIP file, but not a workbook")
        raise TableError(
            msg("{name} is not an Excel workbook: it is {found}.", name=self._name, found=kind),
            remedy=msg("Open it in a spreadsheet and save it as .xlsx."),
        )

    def _read_sheets(self) -> tuple[tuple[Sheet, ...], datetime]:
        main = next(one for one in self._parts if one.endswith("workbook.xml"))
        folder, _, file = main.rpartition("/")
        targets: dict[str, str] = {}
        sheets: list[tuple[str, str]] = []
        epoch = _EPOCH

        def on_relation(tag: str, attributes: Mapping[str, str]) -> None:
            if tag == "Relationship":
                targets[attributes.get("Id", "")] = attributes.get("Target", "")

        def on_book(tag: str, attributes: Mapping[str, str]) -> None:
            nonlocal epoch
            if tag == "sheet":
                sheets.append((attributes.get("name", ""), attributes.get("id", "")))
            elif tag == "workbookPr" and attributes.get("date1904") in {"1", "true"}:
                epoch = _EPOCH_1904

        self._parse(f"{folder}/_rels/{file}.rels".lstrip("/"), on_relation)
        self._parse(main, on_book)
        found = []
        for name, relation in sheets:
            target = targets.get(relation, "")
            part = (target[1:] if target.startswith("/") else f"{folder}/{target}").lower()
            # A chart sheet has no rows.
            if part in self._parts and "chartsheets/" not in part:
                found.append(Sheet(name, part))
        return tuple(found), epoch

    def _read_styles(self) -> list[_Style]:
        formats: dict[str, str] = {}
        styles: list[_Style] = []
        inside = False

        def on_style(tag: str, attributes: Mapping[str, str]) -> None:
            nonlocal inside
            if tag == "numFmt":
                formats[attributes.get("numFmtId", "")] = attributes.get("formatCode", "")
            elif tag in {"cellXfs", "cellStyleXfs"}:
                inside = tag == "cellXfs"
            elif tag == "xf" and inside and len(styles) < 1 << 16:
                styles.append(_style(attributes.get("numFmtId", "0"), formats))

        part = next((one for one in self._parts if one.endswith("styles.xml")), None)
        if part is not None:
            self._parse(part, on_style)
        return styles

    def _read_strings(self) -> None:
        part = next((one for one in self._parts if one.endswith("sharedstrings.xml")), None)
        if part is None:
            return
        text = _Text(self._name)
        open_text = phonetic = False

        def start(tag: str, _attributes: Mapping[str, str]) -> None:
            nonlocal open_text, phonetic
            open_text = tag == "t" and not phonetic
            phonetic = phonetic or tag == "rPh"

        def end(tag: str) -> None:
            nonlocal open_text, phonetic
            open_text = False
            if tag == "rPh":
                phonetic = False
            elif tag == "si":
                self._strings.append(text.take())

        def characters(data: str) -> None:
            if open_text:
                text.append(data)

        self._parse(part, start, end, characters)

    def _parse(
        self,
        part: str,
        start: Callable[[str, Mapping[str, str]], None],
        end: Callable[[str], None] | None = None,
        characters: Callable[[str], None] | None = None,
    ) -> None:
        if part not in self._parts:
            raise _damaged(self._name)
        parser = _xml_parser(self._name, start, end, characters)
        for chunk in self._chunks(self._parts[part]):
            _feed(parser, chunk, self._name)
        _feed(parser, b"", self._name, final=True)

    def _chunks(self, part: zipfile.ZipInfo) -> Iterator[bytes]:
        """Inflate a part piece by piece, up to a limit that does not trust its header.

        The limit is that of all parts together: many sheets may be one part.
        """
        with self._archive.open(part) as stream:
            while chunk := stream.read(_CHUNK):
                self._inflated += len(chunk)
                size = self._inflated
                if size > _RATIO_FROM and size > min(_MAX_RATIO * self._size, _MAX_BYTES):
                    raise TableError(
                        msg(
                            "{name} is much larger than it seems: it inflates to more than "
                            "{megabytes:,} MB.",
                            name=self._name,
                            megabytes=size >> 20,
                        ),
                        remedy=msg("Delete empty rows and formats in it, or save it as CSV."),
                    )
                yield chunk


class _Strings:
    """The shared strings of a workbook, in a temporary file once they are many."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(_STRINGS_IN_MEMORY)  # noqa: SIM115
        self._ends = array("Q", [0])

    def __enter__(self) -> None:
        return

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def append(self, text: str) -> None:
        self._ends.append(self._ends[-1] + self._file.write(text.encode("utf-8", "replace")))

    def __getitem__(self, place: int) -> str:
        start, end = self._ends[place], self._ends[place + 1]
        self._file.seek(start)
        return self._file.read(end - start).decode()

    def __len__(self) -> int:
        return len(self._ends) - 1


class _SheetParser:
    """Collects the rows of a sheet while its XML arrives."""

    def __init__(
        self, name: str, sheet: str, styles: list[_Style], strings: _Strings, epoch: datetime
    ) -> None:
        self._name, self._sheet = name, sheet
        self._styles, self._strings, self._epoch = styles, strings, epoch
        self._rows: list[Row] = []
        self._row: Row = []
        self._number = 0
        self._place = -1
        self._attributes: Mapping[str, str] = {}
        self._text = _Text(name)
        self._in_text = False
        self._columns: dict[str, int] = {}
        self._parser = _xml_parser(name, self._start, self._end, self._characters)

    def feed(self, chunk: bytes, *, final: bool = False) -> None:
        _feed(self._parser, chunk, self._name, final=final)

    def take(self) -> list[Row]:
        """Return the rows that are complete."""
        rows, self._rows = self._rows, []
        return rows

    def _start(self, tag: str, attributes: Mapping[str, str]) -> None:
        if tag == "c":
            self._attributes = attributes
            reference = _REFERENCE.match(attributes.get("r", ""))
            self._place = self._column(reference[1]) if reference else self._place + 1
            if not self._place < MAX_COLUMNS:
                raise _damaged(self._name)
            self._text.take()
        elif tag in {"v", "t"}:
            self._in_text = True
        elif tag == "row":
            given = _number(attributes.get("r", ""))
            number = self._number + 1 if given is None else given
            if not self._number < number <= MAX_ROWS:
                raise _damaged(self._name)
            self._rows += [_NO_CELLS] * (number - self._number - 1)
            self._number, self._place, self._row = number, -1, []

    def _end(self, tag: str) -> None:
        if tag in {"v", "t"}:
            self._in_text = False
        elif tag == "c":
            text = self._text.take()
            if text and (value := self._value(text)) is not None:
                self._row += [None] * (self._place - len(self._row))
                self._row[self._place :] = [value]
        elif tag == "row":
            self._rows.append(self._row)
            self._row = []

    def _characters(self, data: str) -> None:
        if self._in_text:
            self._text.append(data)

    def _column(self, letters: str) -> int:
        """Return the place of a column: 0 for A, 26 for AA."""
        if (known := self._columns.get(letters)) is None:
            known = 0
            for letter in letters:
                known = known * 26 + ord(letter) - 64
            known = self._columns[letters] = known - 1
        return known

    def _value(self, text: str) -> Cell:
        kind = self._attributes.get("t", "n")
        try:
            if kind == "s":
                place = int(text)
                if not 0 <= place < len(self._strings):
                    raise ValueError(text)
                return self._strings[place] or None
            if kind == "b":
                return text.strip() not in {"0", "false"}
            if kind == "n":
                return self._number_of(text.strip())
            if kind == "d":
                return datetime.fromisoformat(text.strip())
        except (ValueError, OverflowError):
            # What cannot be read as its type is shown as it is.
            return text
        return text or None

    def _number_of(self, text: str) -> Cell:
        value = float(text)
        if not isfinite(value):
            return text
        place = _number(self._attributes.get("s", ""))
        known = place is not None and place < len(self._styles)
        style = self._styles[place] if known and place is not None else _Style()
        if style.is_date and value >= 0:
            return _date(value, self._epoch)
        if not value.is_integer() or abs(value) > MAX_EXACT_INTEGER:
            return value
        number = int(value)
        return str(number).zfill(style.digits) if style.digits and number >= 0 else number


class _Text:
    """Collects the text of one cell, up to the longest that a workbook can have."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._parts: list[str] = []
        self._size = 0

    def append(self, part: str) -> None:
        self._size += len(part)
        # Escapes have seven letters for one.
        if self._size > 7 * MAX_CELL:
            raise _damaged(self._name)
        self._parts.append(part)

    def take(self) -> str:
        """Return the text without the escapes of characters that XML cannot hold."""
        if not self._parts:
            return ""
        text = "".join(self._parts)
        self._parts.clear()
        self._size = 0
        if "_x" not in text:
            return text
        return _SURROGATE.sub("\ufffd", _ESCAPE.sub(lambda one: chr(int(one[1], 16)), text))


def _number(text: str) -> int | None:
    """Return a number of a row or a style; None if there is none."""
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_NUMBER_DIGITS):
        return None
    return int(text)


def _style(number: str, formats: Mapping[str, str]) -> _Style:
    code = formats.get(number)
    if code is None:
        return _Style(number.isdigit() and int(number) in _DATE_FORMATS)
    plain = _LITERALS.sub("", code.partition(";")[0])
    if _DATE_LETTERS.search(plain) and "0.0" not in plain:
        return _Style(is_date=True)
    return _Style(digits=len(plain) if _PADDED.fullmatch(plain) else 0)


def _date(value: float, epoch: datetime) -> Cell:
    """Return the date, the time or both that a serial number stands for."""
    moment = epoch + timedelta(milliseconds=round(value * 86_400_000))
    if value < 1:
        return moment.time()
    return moment.date() if moment.time() == time() else moment


def _xml_parser(
    name: str,
    start: Callable[[str, Mapping[str, str]], None],
    end: Callable[[str], None] | None,
    characters: Callable[[str], None] | None,
) -> Any:
    """Return a parser that hands over local names, and refuses a document type declaration."""

    def refuse(*_: object) -> None:
        raise TableError(
            msg(
                "{name} contains a document type declaration, which workbooks do not have.",
                name=name,
            ),
            remedy=msg("Open it in a spreadsheet and save it as .xlsx."),
        )

    parser = ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = lambda tag, attributes: start(
        tag.rpartition(" ")[2], {key.rpartition(" ")[2]: one for key, one in attributes.items()}
    )
    if end is not None:
        parser.EndElementHandler = lambda tag: end(tag.rpartition(" ")[2])
    parser.CharacterDataHandler = characters
    return parser


def _feed(parser: Any, chunk: bytes, name: str, *, final: bool = False) -> None:
    try:
        parser.Parse(chunk, final)
    except ExpatError as error:
        raise TableError(
            msg(
                "{name} is damaged: {reason} in line {line:,} of its XML.",
                name=name,
                reason=errors.messages.get(error.code, str(error)),
                line=error.lineno,
            ),
            remedy=msg("Open it in a spreadsheet and save it again as .xlsx."),
        ) from error


def _check_directory(path: Path, name: str) -> None:
    """Raise if the list of parts is too long to be read into memory."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 66_000))
        tail = file.read()
    place = tail.rfind(b"PK\x05\x06")
    if place < 0:
        raise _damaged(name)
    if int.from_bytes(tail[place + 12 : place + 16], "little") > _MAX_DIRECTORY_BYTES:
        raise TableError(
            msg("{name} has too many parts for a workbook.", name=name),
            remedy=msg("Open it in a spreadsheet and save it again as .xlsx."),
        )


def _damaged(name: str) -> TableError:
    return TableError(
        msg("{name} is damaged, incomplete or protected by a password.", name=name),
        remedy=msg("Open it in a spreadsheet and save it again as .xlsx."),
    )
