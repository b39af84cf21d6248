"""Tables as files: CSV, XLSX, NDJSON and Parquet, written page by page in bounded memory.

CSV, NDJSON and Parquet are sent while they are written. XLSX is a ZIP file whose parts refer to
each other, so it is written to a temporary file first.
"""

import asyncio
import csv
import io
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import IO, Annotated, Any, Literal, Protocol

from fastapi import Header, Query
from starlette.responses import Response, StreamingResponse

from hasat.errors import UsageError
from hasat.feed.columns import Column
from hasat.messages import msg
from hasat.text import MAX_EXACT_INTEGER, csv_text

Format = Literal["json", "ndjson", "csv", "xlsx", "parquet"]
TableFormat = Literal["csv", "xlsx", "parquet"]

MEDIA: dict[Format, str] = {
    "json": "application/json",
    "ndjson": "application/x-ndjson",
    "csv": "text/csv",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "parquet": "application/vnd.apache.parquet",
}
_BY_MEDIA: dict[str, Format] = {
    "application/ndjson": "ndjson",
    **{media: name for name, media in MEDIA.items() if name != "json"},
}
MAX_XLSX_ROWS = 1_048_575
_XLSX_CELL = 32_767
_ROW_GROUP = 20_000
_CHUNK = 1 << 18

Cells = Sequence[Any]
Pages = AsyncIterator[Sequence[Cells]]


async def requested_format(
    given: Annotated[
        Format | None, Query(alias="format", description="Default: by the header Accept.")
    ] = None,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
) -> Format:
    """Return the format that `format` or the header Accept names."""
    return given or format_of(accept)


def format_of(accept: str) -> Format:
    """Return the first format of a header Accept that Hasat writes; JSON if there is none."""
    wanted = (part.partition(";")[0].strip().lower() for part in accept.split(","))
    return next((_BY_MEDIA[media] for media in wanted if media in _BY_MEDIA), "json")


def declare_formats(responses: dict[int | str, dict[str, Any]]) -> dict[int | str, dict[str, Any]]:
    """Add the formats other than JSON to the responses of a route."""
    for name, media in MEDIA.items():
        if name in ("xlsx", "parquet"):
            schema = {"type": "string", "format": "binary"}
        else:
            schema = {"type": "string"}
        if name != "json":
            responses[200]["content"].setdefault(media, {"schema": schema})
    return responses


@dataclass(frozen=True)
class Table:
    """A table to export: its name, and the columns of its rows."""

    name: str
    columns: tuple[Column, ...]
    verbatim: frozenset[str] = frozenset()
    """Columns whose texts clients send back: CSV must not put an apostrophe in front of them."""


async def export(
    table: Table, format_: TableFormat, pages: Pages, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the rows of all pages as a file."""
    headers = {
        "Vary": "Accept",
        "Content-Disposition": f'attachment; filename="{table.name}.{format_}"',
        **(headers or {}),
    }
    content = _send(await _write_xlsx(table, pages)) if format_ == "xlsx" else None
    if content is None:
        writer = _Csv(table) if format_ == "csv" else _Parquet(table)
        content = _stream(writer, pages)
    return StreamingResponse(content, headers=headers, media_type=MEDIA[format_])


class _Writer(Protocol):
    def add(self, rows: Sequence[Cells]) -> bytes: ...
    def end(self) -> bytes: ...


async def _stream(writer: _Writer, pages: Pages) -> AsyncIterator[bytes]:
    async for rows in pages:
        if chunk := await asyncio.to_thread(writer.add, rows):
            yield chunk
    yield writer.end()


class _Csv:
    def __init__(self, table: Table) -> None:
        self._buffer = io.StringIO(newline="")
        self._writer = csv.writer(self._buffer)
        self._cells = [
            _verbatim_cell if column.name in table.verbatim else _csv_cell
            for column in table.columns
        ]
        self._writer.writerow([column.name for column in table.columns])

    def add(self, rows: Sequence[Cells]) -> bytes:
        self._writer.writerows(
            [[cell(value) for cell, value in zip(self._cells, row, strict=True)] for row in rows]
        )
        return self._take()

    def end(self) -> bytes:
        return self._take()

    def _take(self) -> bytes:
        text = self._buffer.getvalue()
        self._buffer.seek(0)
        self._buffer.truncate()
        return text.encode()


def _csv_cell(value: Any) -> Any:
    return csv_text(value) if isinstance(value, str) else _verbatim_cell(value)


def _verbatim_cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, date) else value


class _Sink(io.RawIOBase):
    """Collects what Parquet writes until it is sent."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        part = bytes(data)
        self._parts.append(part)
        self._size += len(part)
        return len(part)

    def tell(self) -> int:
        return self._size

    def take(self) -> bytes:
        taken = b"".join(self._parts)
        self._parts.clear()
        return taken


class _Parquet:
    def __init__(self, table: Table) -> None:
        # pyarrow is large, and only this format needs it.
        import pyarrow as pa
        from pyarrow.parquet import ParquetWriter

        types = {
            "text": pa.string(),
            "integer": pa.int64(),
            "number": pa.float64(),
            "boolean": pa.bool_(),
            "date": pa.date32(),
            "timestamp": pa.timestamp("us", tz="UTC"),
        }
        self._schema = pa.schema([(one.name, types[one.type]) for one in table.columns])
        self._sink = _Sink()
        self._writer = ParquetWriter(
            pa.PythonFile(self._sink, mode="w"), self._schema, compression="zstd"
        )
        self._rows: list[Cells] = []

    def add(self, rows: Sequence[Cells]) -> bytes:
        self._rows += rows
        if len(self._rows) >= _ROW_GROUP:
            self._flush()
        return self._sink.take()

    def end(self) -> bytes:
        self._flush()
        self._writer.close()
        return self._sink.take()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._rows:
            columns = zip(*self._rows, strict=True)
            arrays = [
                pa.array(values, field.type)
                for values, field in zip(columns, self._schema, strict=True)
            ]
            self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
            self._rows = []


async def _write_xlsx(table: Table, pages: Pages) -> IO[bytes]:
    """Write a workbook with one sheet; texts are text cells, so that leading zeros stay."""
    from xlsxwriter import Workbook

    file = tempfile.TemporaryFile()  # noqa: SIM115 - closed when it has been sent
    try:
        book = Workbook(file, {"constant_memory": True, "strings_to_formulas": False})
        sheet = book.add_worksheet()
        day = book.add_format({"num_format": "yyyy-mm-dd"})
        for place, column in enumerate(table.columns):
            sheet.write_string(0, place, column.name)
        number = 0
        async for rows in pages:
            if number + len(rows) > MAX_XLSX_ROWS:
                raise UsageError(
                    msg(
                        "{name} has more rows than a sheet of a workbook ({rows:,}).",
                        name=table.name,
                        rows=MAX_XLSX_ROWS,
                    ),
                    remedy=msg("Use format=csv or format=parquet, or filter the records."),
                )
            await asyncio.to_thread(_add_rows, sheet, number + 1, rows, day)
            number += len(rows)
        await asyncio.to_thread(book.close)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


def _add_rows(sheet: Any, first: int, rows: Sequence[Cells], day: Any) -> None:
    for line, row in enumerate(rows, first):
        for place, value in enumerate(row):
            match value:
                case None:
                    continue
                case bool():
                    sheet.write_boolean(line, place, value)
                case int() | float() if abs(value) <= MAX_EXACT_INTEGER:
                    sheet.write_number(line, place, value)
                case datetime():
                    sheet.write_string(line, place, value.astimezone(UTC).isoformat())
                case date() if value.year > 1900:
                    sheet.write_datetime(line, place, value, day)
                case date():
                    sheet.write_string(line, place, value.isoformat())
                case _:
                    sheet.write_string(line, place, str(value)[:_XLSX_CELL])


async def _send(file: IO[bytes]) -> AsyncIterator[bytes]:
    with file:
        while chunk := await asyncio.to_thread(file.read, _CHUNK):
            yield chunk
