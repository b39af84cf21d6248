"""Writing of tables as Turkish spreadsheets expect them.

Text files have a byte order mark, and CSV has semicolons, so that Excel opens them with a double
click. In a workbook texts are text cells, so that leading zeros stay and nothing is calculated.
"""

import csv
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import IO, Any

from hasat.errors import UsageError
from hasat.messages import msg
from hasat.tables.cells import Cell, TableError, cell_text, harmless_text
from hasat.tables.reader import FileFormat
from hasat.tables.workbook import MAX_CELL, MAX_COLUMNS, MAX_ROWS
from hasat.text import MAX_EXACT_INTEGER

MEDIA_TYPES: dict[FileFormat, str] = {
    "csv": "text/csv; charset=utf-8",
    "tsv": "text/tab-separated-values; charset=utf-8",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}
_MIN_WIDTH, _MAX_WIDTH = 8, 50
"""Widths of columns, in letters."""
_EVERYWHERE = "A1:XFD1048576"
_DELIMITERS = {"csv": ";", "tsv": "\t"}


def write_table(file: IO[bytes], file_format: FileFormat) -> "TextWriter | WorkbookWriter":
    """Return a writer of rows; nothing is complete before it is closed."""
    if file_format == "xlsx":
        return WorkbookWriter(file)
    return TextWriter(file, _DELIMITERS[file_format])


class TextWriter:
    """Writes rows as CSV or TSV."""

    def __init__(self, file: IO[bytes], delimiter: str) -> None:
        self._text = io.TextIOWrapper(file, "utf-8-sig", "replace", newline="")
        self._writer = csv.writer(self._text, delimiter=delimiter)

    def add(self, rows: Iterable[Sequence[Cell]]) -> None:
        self._writer.writerows([harmless_text(cell) for cell in row] for row in rows)

    def close(self) -> None:
        """Write what is left; the file stays open."""
        self._text.flush()
        self._text.detach()


class WorkbookWriter:
    """Writes rows into the one sheet of a workbook, in constant memory."""

    def __init__(self, file: IO[bytes]) -> None:
        # Only this format needs it.
        from xlsxwriter import Workbook

        options = {"constant_memory": True, "strings_to_formulas": False, "strings_to_urls": False}
        self._book = Workbook(file, options)
        self._sheet = self._book.add_worksheet()
        self._formats = {
            kind: self._book.add_format({"num_format": code})
            for kind, code in (
                (datetime, "dd.mm.yyyy hh:mm:ss"), (date, "dd.mm.yyyy"), (time, "hh:mm:ss")
            )
        }  # fmt: skip
        self._number = 0
        self._widths: list[int] = []

    def add(self, rows: Iterable[Sequence[Cell]]) -> None:
        for row in rows:
            self._widen(row)
            if self._number == MAX_ROWS or len(row) > MAX_COLUMNS:
                raise _too_large(self._number + 1)
            for place, cell in enumerate(row):
                self._write(place, cell)
            self._number += 1

    def close(self) -> None:
        """Write the workbook; the file stays open."""
        for place, width in enumerate(self._widths):
            self._sheet.set_column(place, place, width)
        # Excel would mark every identifier, because it is a number that is stored as text.
        self._sheet.ignore_errors({"number_stored_as_text": _EVERYWHERE})
        self._book.close()

    def _widen(self, row: Sequence[Cell]) -> None:
        """Widen the columns for the texts of a row, unless it is only a title."""
        if len(row) < 2:
            return
        self._widths += [_MIN_WIDTH] * (min(len(row), MAX_COLUMNS) - len(self._widths))
        for place, cell in enumerate(row[:MAX_COLUMNS]):
            if cell is not None and self._widths[place] < _MAX_WIDTH:
                letters = len(cell) if isinstance(cell, str) else len(cell_text(cell))
                self._widths[place] = min(max(self._widths[place], letters + 1), _MAX_WIDTH)

    def _write(self, place: int, cell: Cell) -> None:
        match cell:
            case None | "":
                return
            case bool():
                self._sheet.write_boolean(self._number, place, cell)
            case int() | float() if abs(cell) <= MAX_EXACT_INTEGER:
                self._sheet.write_number(self._number, place, cell)
            case datetime() | date() | time():
                self._write_time(place, cell)
            case _:
                text = str(cell)
                if len(text) > MAX_CELL:
                    raise _too_large(self._number + 1)
                self._sheet.write_string(self._number, place, text)

    def _write_time(self, place: int, cell: "datetime | date | time") -> None:
        naive: Any = cell
        if isinstance(cell, datetime) and cell.tzinfo is not None:
            naive = cell.astimezone(UTC).replace(tzinfo=None)
        if isinstance(cell, date) and cell.year <= 1900:
            self._sheet.write_string(self._number, place, cell.isoformat())
        else:
            self._sheet.write_datetime(self._number, place, naive, self._formats[type(cell)])


@contextmanager
def replacing_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that takes the place of another at once, when everything is written.

    A device such as /dev/null is refused: it would be replaced, too.
    """
    if path.exists() and not path.is_file():
        raise UsageError(
            msg("{path} is not a file.", path=str(path)), remedy=msg("Give the name of a file.")
        )
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with partial.open("w+b") as file:
            yield file
        partial.replace(path)
    except OSError as error:
        raise UsageError(
            msg("Cannot write {path}: {reason}.", path=str(path), reason=error.strerror or error)
        ) from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def _too_large(row: int) -> TableError:
    return TableError(
        msg(
            "Row {row:,} does not fit in a workbook, which holds {rows:,} rows, {columns:,} "
            "columns and {letters:,} characters in a cell.",
            row=row,
            rows=MAX_ROWS,
            columns=MAX_COLUMNS,
            letters=MAX_CELL,
        ),
        remedy=msg("Write the result as CSV."),
    )
