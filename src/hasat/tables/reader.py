"""Reading of a table whose format, encoding and column are found by content.

A file is parsed once, into a temporary file of rows: a fault in its last row is known before
anything is done with its first.
"""

import pickle
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, repeat
from pathlib import Path, PurePath
from typing import IO, Any, Literal, get_args

from hasat.messages import join, msg
from hasat.tables.cells import Cell, Row, TableError, cell_text, is_empty
from hasat.tables.delimited import looks_like_utf16, read_delimited
from hasat.tables.workbook import Workbook
from hasat.text import fold

FileFormat = Literal["csv", "tsv", "xlsx"]
FORMATS: tuple[FileFormat, ...] = get_args(FileFormat)

OnProgress = Callable[[float, float | None, str], None]
Score = Callable[[Sequence[Cell]], float]
"""How well the filled cells of a column match what is looked for, its heading included; a column
below 0.1 is none."""

_SAMPLE_ROWS = 1000
_HEADING_ROWS = 20
_BATCH = 1000
_MIN_SCORE = 0.1

_ZIP, _OLE, _PDF = b"PK\x03\x04", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"%PDF-"
_MARKUP = (b"<html", b"<!doctype", b"<table", b"<?xml", b"<meta")


@dataclass(frozen=True)
class Table:
    """The rows of a file, the column that was looked for, and where the headings are.

    It holds a temporary file until it is closed.
    """

    name: str
    format: FileFormat
    column: int
    """The place of the column, from 0."""
    heading: int | None
    """The number of rows above the first record; None if the file has no headings."""
    width: int
    count: int
    sheet: str | None
    other_sheets: tuple[str, ...]
    _file: IO[bytes]

    def __enter__(self) -> "Table":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def column_name(self) -> str:
        """Return the heading of the column, or its place if there are no headings."""
        if self.heading is None:
            return str(self.column + 1)
        row = next(islice(self.rows(), self.heading - 1, None))
        return cell_text(row[self.column])

    def rows(self) -> Iterator[Row]:
        """Yield every row of the file, those above the records included."""
        for batch in self.batches():
            yield from batch

    def batches(self) -> Iterator[list[Row]]:
        """Yield the rows in batches of up to a thousand, in the order of the file."""
        self._file.seek(0)
        for _ in range(-(-self.count // _BATCH)):
            yield pickle.load(self._file)  # noqa: S301 - written by this process


def format_of_name(name: str) -> FileFormat:
    """Return the format that the ending of a file name stands for."""
    ending = PurePath(name).suffix.lower().removeprefix(".")
    if ending == "txt":
        return "tsv"
    for known in FORMATS:
        if ending == known:
            return known
    raise TableError(
        msg("{name} does not end with .csv, .tsv or .xlsx.", name=PurePath(name).name),
        remedy=msg("Save the file as one of these formats, and name it so."),
    )


def read_table(
    path: Path,
    *,
    score: Score,
    looked_for: str,
    name: str | None = None,
    column: str | None = None,
    on_progress: OnProgress | None = None,
) -> Table:
    """Read a file and find the column with the best score, or the one with the given heading.

    `name` is the name of the file where it differs from that of the path; `looked_for` says in
    messages what the column contains.
    """
    shown = PurePath(name or path.name).name
    file_format = format_of_name(shown)
    _check_content(path, shown, file_format)
    spool = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the table
    try:
        if file_format == "xlsx":
            return _read_workbook(path, shown, score, looked_for, column, spool, on_progress)
        sample = list(islice(read_delimited(path, shown), _SAMPLE_ROWS))
        found = _find_column(shown, sample, score, looked_for, column)
        rows = read_delimited(path, shown, on_progress)
        return _spool(rows, Table(shown, file_format, *found, 0, 0, None, (), spool))
    except BaseException:
        spool.close()
        raise


def _read_workbook(
    path: Path,
    name: str,
    score: Score,
    looked_for: str,
    column: str | None,
    spool: IO[bytes],
    on_progress: OnProgress | None,
) -> Table:
    """Read the first sheet that has the column."""
    with Workbook.open(path, name) as book:
        fault: TableError | None = None
        for sheet in book.sheets:
            sample = list(islice(book.rows(sheet), _SAMPLE_ROWS))
            try:
                found = _find_column(name, sample, score, looked_for, column)
            except TableError as error:
                fault = fault or error
                continue
            others = tuple(one.name for one in book.sheets if one != sheet)
            table = Table(name, "xlsx", *found, 0, 0, sheet.name, others, spool)
            return _spool(book.rows(sheet, on_progress), table)
    raise fault or TableError(msg("{name} has no sheets.", name=name))


def _spool(rows: Iterator[Row], table: Table) -> Table:
    """Write all rows to the temporary file; empty rows at the end are left out."""
    width = count = empty = 0
    batch: list[Row] = []
    for row in rows:
        if not row:
            empty += 1
            continue
        for one in chain(repeat([], empty), [row]):
            batch.append(one)
            if len(batch) == _BATCH:
                pickle.dump(batch, table._file, protocol=5)
                batch = []
        count += empty + 1
        empty = 0
        width = max(width, len(row))
    if batch:
        pickle.dump(batch, table._file, protocol=5)
    return replace(table, width=width, count=count)


def _find_column(
    name: str, sample: Sequence[Row], score: Score, looked_for: str, column: str | None
) -> tuple[int, int | None]:
    """Return the place of the column, and the number of rows up to its heading."""
    if not any(sample):
        raise TableError(msg("{name} is empty.", name=name))
    if column is not None:
        return _named_column(name, sample, score, column)
    columns: dict[int, list[Cell]] = {}
    for row in sample:
        for place, cell in enumerate(row):
            if not is_empty(cell):
                columns.setdefault(place, []).append(cell)
    scores = {place: score(cells) for place, cells in columns.items()}
    best = max(scores, key=lambda place: (scores[place], -place))
    if scores[best] < _MIN_SCORE:
        raise TableError(
            msg(
                "{name} has no column with {looked_for}. Its first row is: {row}.",
                name=name,
                looked_for=looked_for,
                row=_shown(next(row for row in sample if row)),
            ),
            remedy=msg("Name the column (`column` or --column)."),
        )
    return best, _heading(sample, best, score)


def _heading(sample: Sequence[Row], column: int, score: Score) -> int | None:
    """Return the number of rows up to the headings; None if the first cell is a record's.

    Above the first match are titles and headings of groups, often in merged cells: the fullest row
    has the headings.
    """
    width = max(map(len, sample))
    filled = [
        (number, row)
        for number, row in enumerate(sample, 1)
        if column < len(row) and not is_empty(row[column])
    ]
    heading, most = None, 0
    for number, row in filled[:_HEADING_ROWS]:
        if score([row[column]]) > 0 or (heading is not None and _is_record(row, width)):
            break
        if _filled(row) > most:
            heading, most = number, _filled(row)
    return heading


def _is_record(row: Row, width: int) -> bool:
    """Return whether a row has values and not only words, in half of its columns or more."""
    return 2 * _filled(row) >= width and any(map(_is_value, row))


def _filled(row: Row) -> int:
    return sum(not is_empty(cell) for cell in row)


def _is_value(cell: Cell) -> bool:
    """Return whether a cell has a number, a time or a code, and no words."""
    text = cell_text(cell)
    return any(map(str.isdigit, text)) and not any(map(str.isalpha, text))


def _named_column(
    name: str, sample: Sequence[Row], score: Score, column: str
) -> tuple[int, int | None]:
    """Return the column with a heading, or at a place if the text is a number."""
    wanted = fold(column)
    width = max(map(len, sample))
    for number, row in enumerate(sample[:_HEADING_ROWS]):
        places = [place for place, cell in enumerate(row) if fold(cell_text(cell)) == wanted]
        if len(places) == 1:
            return places[0], number + 1
        if places:
            raise TableError(
                msg(
                    "{name} has {count} columns named {column!r}.",
                    name=name,
                    count=len(places),
                    column=column,
                ),
                remedy=msg(
                    "Give the place of the column instead: {places}.",
                    places=join((str(place + 1) for place in places), ", "),
                ),
            )
        if _is_record(row, width):
            break
    if column.isascii() and column.isdigit() and 0 < int(column[:9]) <= width:
        place = int(column) - 1
        return place, _heading(sample, place, score)
    raise TableError(
        msg(
            "{name} has no column named {column!r}. Its columns are: {row}.",
            name=name,
            column=column[:40],
            row=_shown(max(sample[:_HEADING_ROWS], key=_filled)),
        ),
        remedy=msg("Give the heading as it is in the file, or the place of the column."),
    )


def _shown(row: Row) -> str:
    """Return the beginning of a row for a message."""
    cells = [cell_text(cell) for cell in row if not is_empty(cell)]
    text = ", ".join(cell if len(cell) <= 30 else f"{cell[:29]}…" for cell in cells[:12])
    return f"{text}, …" if len(cells) > 12 else text


def _check_content(path: Path, name: str, file_format: FileFormat) -> None:
    """Raise if the file is not what its ending says."""
    with path.open("rb") as file:
        start = file.read(4096)
    found = _kind_of_content(start)
    if not start:
        raise TableError(msg("{name} is empty.", name=name))
    if found == "xlsx" if file_format == "xlsx" else found == "text":
        return
    remedies: dict[str, Any] = {
        "xlsx": msg("Rename the file so that it ends with .xlsx."),
        "text": msg("Rename the file so that it ends with .csv or .tsv."),
        "ole": msg("Open it in Excel and save it as .xlsx, without a password."),
    }
    descriptions = {
        "xlsx": msg("a workbook or another ZIP file"),
        "text": msg("a text file"),
        "ole": msg("an old workbook (.xls) or one with a password"),
        "pdf": msg("a PDF"),
        "markup": msg("a web page or XML"),
        "binary": msg("neither text nor a workbook"),
    }
    raise TableError(
        msg(
            "{name} is not what its ending says: it is {found}.",
            name=name,
            found=descriptions[found],
        ),
        remedy=remedies.get(found, msg("Open it in a spreadsheet and save it as .xlsx.")),
    )


def _kind_of_content(start: bytes) -> str:
    if start.startswith(_ZIP):
        return "xlsx"
    if start.startswith(_OLE):
        return "ole"
    if start.startswith(_PDF):
        return "pdf"
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if text.startswith(_MARKUP):
        return "markup"
    is_utf16 = start.startswith((b"\xff\xfe", b"\xfe\xff")) or looks_like_utf16(start)
    return "text" if is_utf16 or b"\0" not in start else "binary"
