"""CSV and TSV: encoding and delimiter by content, read row by row."""

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from hasat.messages import msg
from hasat.tables.cells import Row, TableError

OnProgress = Callable[[float, float | None, str], None]

_SAMPLE, _SAMPLE_ROWS = 1 << 16, 100
_CHUNK = 1 << 20
_REPORT_ROWS = 1000
# A comma is the last choice: it is in titles and, in Turkish, in numbers.
_DELIMITERS = ("\t", ";", "|", ",")
_ENOUGH = 0.9
# No text contains it: a file without a delimiter has one column.
_NO_DELIMITER = "\x1f"
_BOMS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# Excel's hint about the delimiter, and its form of a number that is meant as text.
_HINT = re.compile("sep=(.)\r?\n", re.IGNORECASE)
_TEXT_FORMULA = re.compile('="([^"]*)"')


def read_delimited(path: Path, name: str, on_progress: OnProgress | None = None) -> Iterator[Row]:
    """Yield the rows of a CSV or TSV file, without the empty cells at their ends."""
    encoding = _encoding(path, name)
    size = path.stat().st_size
    reader = None
    with path.open("rb") as raw, io.TextIOWrapper(raw, encoding, newline="") as text:
        try:
            start = text.read(_SAMPLE)
            text.seek(0)
            hint = _HINT.match(start)
            if hint:
                text.readline()
            reader = csv.reader(text, delimiter=hint[1] if hint else _delimiter(start), strict=True)
            for number, cells in enumerate(reader):
                if on_progress is not None and number % _REPORT_ROWS == 0:
                    on_progress(raw.tell(), size, msg("reading {name}", name=name))
                yield _row(cells)
        except UnicodeDecodeError as error:
            raise TableError(
                msg(
                    "{name} is not valid {encoding} text at byte {offset:,}.",
                    name=name,
                    encoding=encoding.upper(),
                    offset=error.start,
                ),
                remedy=msg("Save it again as UTF-8, or as .xlsx."),
            ) from error
        except csv.Error as error:
            line = reader.line_num if reader else 1
            raise TableError(
                msg(
                    "{name} has a quoted text near line {line:,} that does not end, or does not "
                    "end its cell.",
                    name=name,
                    line=line,
                ),
                remedy=msg("Close the quoted text there, or save the file as .xlsx."),
            ) from error


def looks_like_utf16(start: bytes) -> bool:
    """Return whether every second byte of a text without a byte order mark is mostly zero."""
    halves = start[0::2], start[1::2]
    return len(start) > 3 and max(half.count(0) / len(half) for half in halves) > 0.4


def _row(cells: list[str]) -> Row:
    while cells and not cells[-1].strip():
        cells.pop()
    return [found[1] if (found := _TEXT_FORMULA.fullmatch(one)) else one for one in cells]


def _encoding(path: Path, name: str) -> str:
    """Return the encoding: by its byte order mark, else the first that fits the whole file."""
    with path.open("rb") as file:
        start = file.read(_SAMPLE)
    for bom, encoding in _BOMS.items():
        if start.startswith(bom):
            return encoding
    if looks_like_utf16(start):
        return "utf-16-le" if start[1::2].count(0) > start[0::2].count(0) else "utf-16-be"
    for encoding in ("utf-8", "cp1254"):
        if _fits(path, encoding):
            return encoding
    raise TableError(
        msg("{name} is neither UTF-8, UTF-16 nor Windows-1254 text.", name=name),
        remedy=msg("Save it again as UTF-8, or as .xlsx."),
    )


def _fits(path: Path, encoding: str) -> bool:
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                decoder.decode(chunk)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _delimiter(start: str) -> str:
    """Return the delimiter with which most rows have the same number of cells, at least two."""
    shares = {delimiter: _share(start, delimiter) for delimiter in _DELIMITERS}
    sure = next((one for one, share in shares.items() if share >= _ENOUGH), None)
    best = sure or max(shares, key=lambda one: shares[one])
    return best if shares[best] > 0 else _NO_DELIMITER


def _share(start: str, delimiter: str) -> float:
    """Return the share of rows that have the most frequent number of cells; 0 if that is one."""
    reader = csv.reader(io.StringIO(start, newline=""), delimiter=delimiter)
    try:
        counts = Counter(len(cells) for cells in islice(reader, _SAMPLE_ROWS) if any(cells))
    except csv.Error:
        return 0
    ((cells, rows),) = counts.most_common(1) or [(0, 0)]
    return rows / counts.total() if cells > 1 else 0
