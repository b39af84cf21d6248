"""Months of raw responses in Parquet files, and all raw responses in one stream.

A file is written from one snapshot and read back before its month leaves the database.
"""

import hashlib
import heapq
import json
import os
import tempfile
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from psycopg import AsyncConnection, Connection, IsolationLevel, sql
from pyarrow.parquet import ParquetFile, ParquetWriter

from hasat.errors import HasatError, UnavailableError
from hasat.feed.archive.storage import Storage
from hasat.feed.encoding import EMPTY, canonical, record_digest, shift, weight
from hasat.messages import msg
from hasat.sources.football.ingest.raw_store import StoredResponse, iter_stored
from hasat.store.queries import load_query
from hasat.store.store import connect_blocking

_GROUP_BYTES = 16 << 20
_MOMENT = pa.timestamp("us", "UTC")
_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("seen_order", pa.int64()),
        ("endpoint", pa.string()),
        ("requested_params", pa.string()),
        ("leagues", pa.list_(pa.int64())),
        ("vanished", pa.list_(pa.int64())),
        ("status_code", pa.int32()),
        ("response_headers", pa.string()),
        ("body", pa.string()),
        ("errors", pa.string()),
        ("results", pa.int32()),
        ("fetched_at", _MOMENT),
        ("last_fetched_at", _MOMENT),
        ("times", pa.int32()),
        ("request_hash", pa.binary()),
        ("body_hash", pa.binary()),
        ("run", pa.int64()),
    ]
)
_COLUMNS = _SCHEMA.names


@dataclass(frozen=True)
class MonthSummary:
    """The content of a file or a partition: responses, the last sequence number and a digest."""

    responses: int
    last_order: int
    digest: bytes


@dataclass(frozen=True)
class MonthFile(MonthSummary):
    """A file that was read back and equals its partition."""

    size: int
    sha256: bytes


def write_month(url: str, month: date, draft: Path) -> MonthFile:
    """Write a month's partition to a file, and read the file back."""
    with connect_blocking(url) as conn:
        conn.isolation_level = IsolationLevel.REPEATABLE_READ
        conn.read_only = True
        written = _write(_rows(conn, month), draft)
    read = _tally(row for group in _groups(draft) for row in group)
    if read != written:
        raise HasatError(
            msg("The Parquet file for {month:%Y-%m} differs from raw.api_responses.", month=month),
            remedy=msg("The month stays in the database. Check the disk, then run the job again."),
        )
    with draft.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").digest()
        os.fsync(file.fileno())
        return MonthFile(read.responses, read.last_order, read.digest, file.tell(), sha256)


def iter_file(file: Path) -> Iterator[dict[str, Any]]:
    """Return the responses of a file, the one received last first."""
    for group in _groups(file):
        yield from reversed(group)


def _rows(conn: Connection[Any], month: date) -> Iterator[tuple[Any, ...]]:
    query = sql.SQL(load_query("hasat.sources.football", "month_of_responses"))
    with conn.cursor(f"month_{month:%Y_%m}") as cursor:
        cursor.itersize = 16
        partition = sql.Identifier("raw", f"api_responses_{month:%Y_%m}")
        cursor.execute(query.format(partition=partition))
        yield from cursor


def _write(rows: Iterable[tuple[Any, ...]], draft: Path) -> MonthSummary:
    waiting: list[dict[str, Any]] = []
    seen: list[MonthSummary] = []
    size = 0
    # A new file: the thread of a run that was stopped may still write to the old one.
    draft.unlink(missing_ok=True)
    with ParquetWriter(draft, _SCHEMA, compression="zstd") as writer:
        for row in rows:
            waiting.append(dict(zip(_COLUMNS, row, strict=True)))
            size += len(waiting[-1]["body"])
            if size >= _GROUP_BYTES:
                seen.append(_flush(writer, waiting))
                size = 0
        if waiting:
            seen.append(_flush(writer, waiting))
    return _sum(seen)


def _flush(writer: ParquetWriter, waiting: list[dict[str, Any]]) -> MonthSummary:
    writer.write_table(pa.Table.from_pylist(waiting, schema=_SCHEMA))
    tally = _tally(waiting)
    waiting.clear()
    return tally


def _groups(file: Path) -> Iterator[list[dict[str, Any]]]:
    """Return the row groups of a file, the last one first."""
    with ParquetFile(file) as parquet:
        for number in reversed(range(parquet.num_row_groups)):
            rows: list[dict[str, Any]] = parquet.read_row_group(number).to_pylist()
            yield rows


def _tally(rows: Iterable[dict[str, Any]]) -> MonthSummary:
    responses = last = total = 0
    for row in rows:
        responses += 1
        last = max(last, row["seen_order"])
        total += weight(
            str(row["id"]), record_digest(canonical([_plain(row[c]) for c in _COLUMNS]))
        )
    return MonthSummary(responses, last, shift(EMPTY, total))


def _sum(parts: Sequence[MonthSummary]) -> MonthSummary:
    total = sum(int.from_bytes(part.digest, "big") for part in parts)
    last = max((part.last_order for part in parts), default=0)
    return MonthSummary(sum(part.responses for part in parts), last, shift(EMPTY, total))


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    # A time is compared as an instant; sessions show it in their own zone.
    return value.timestamp() if hasattr(value, "timestamp") else value


class _Archive(NamedTuple):
    path: str
    last_order: int
    size: int
    sha256: bytes


async def iter_all(
    conn: AsyncConnection[Any], storage: Storage
) -> AsyncGenerator[StoredResponse, None]:
    """Return all stored responses, in the database and in files, the one received last first."""
    # The lock keeps months from moving to files until this transaction ends.
    await conn.execute("LOCK TABLE raw.api_responses IN ACCESS SHARE MODE")
    cursor = await conn.execute("SELECT path, last_order, size, sha256 FROM raw.api_archives")
    files = [_Archive(*row) for row in await cursor.fetchall()]
    async with AsyncExitStack() as open_streams:
        folder = Path(open_streams.enter_context(tempfile.TemporaryDirectory(prefix="hasat-")))
        # A file is opened only when its newest response is due.
        waiting: list[
            tuple[int, int, StoredResponse | None, AsyncGenerator[StoredResponse, None]]
        ] = [
            (-one.last_order, number, None, _from_file(storage, one, folder / str(number)))
            for number, one in enumerate(files)
        ]
        waiting.append((-(2**63), len(files), None, iter_stored(conn)))
        for *_, stream in waiting:
            open_streams.push_async_callback(stream.aclose)
        heapq.heapify(waiting)
        while waiting:
            _, number, response, stream = heapq.heappop(waiting)
            if response is not None:
                yield response
            following = await anext(stream, None)
            if following is not None:
                heapq.heappush(waiting, (-following.order, number, following, stream))


async def _from_file(
    storage: Storage, archive: _Archive, copy: Path
) -> AsyncGenerator[StoredResponse, None]:
    sha256 = hashlib.sha256()
    with copy.open("wb") as file:
        async for chunk in storage.read(archive.path, 0, archive.size):
            sha256.update(chunk)
            file.write(chunk)
    if sha256.digest() != archive.sha256:
        raise UnavailableError(
            msg(
                "{path} in {storage} differs from the file that was written.",
                path=archive.path,
                storage=storage.label,
            ),
            remedy=msg("Restore the file from a backup. Nothing was changed."),
        )
    for row in iter_file(copy):
        yield StoredResponse(
            row["seen_order"],
            row["endpoint"].removeprefix("/"),
            json.loads(row["requested_params"]),
            row["leagues"],
            # Files of earlier releases lack this column.
            row.get("vanished") or [],
            row["last_fetched_at"],
            row["body"],
        )
    copy.unlink()
