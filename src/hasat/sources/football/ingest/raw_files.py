"""A month of answers as a Parquet file: written from one snapshot, read back before it counts."""

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
    """What a file, or a partition, holds: how many answers, up to which place in their order."""

    answers: int
    last_order: int
    digest: bytes


@dataclass(frozen=True)
class MonthFile(MonthSummary):
    """A file that was read back and found to be what the partition was."""

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
            msg(
                "The file for {month:%Y-%m} does not say what raw.api_responses says.", month=month
            ),
            remedy=msg("The month stays in the database; see whether the disk is sound."),
        )
    with draft.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").digest()
        os.fsync(file.fileno())
        return MonthFile(read.answers, read.last_order, read.digest, file.tell(), sha256)


def iter_file(file: Path) -> Iterator[dict[str, Any]]:
    """The answers of a file, in the order in which they last came, turned round."""
    for group in _groups(file):
        yield from reversed(group)


def _rows(conn: Connection[Any], month: date) -> Iterator[tuple[Any, ...]]:
    query = sql.SQL(load_query("hasat.sources.football", "month_of_answers"))
    with conn.cursor(f"month_{month:%Y_%m}") as cursor:
        cursor.itersize = 16
        partition = sql.Identifier("raw", f"api_responses_{month:%Y_%m}")
        cursor.execute(query.format(partition=partition))
        yield from cursor


def _write(rows: Iterable[tuple[Any, ...]], draft: Path) -> MonthSummary:
    waiting: list[dict[str, Any]] = []
    seen: list[MonthSummary] = []
    size = 0
    # A file of its own: the thread of a run that was stopped may still write to the one before.
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
    """The file's rows, its last part first."""
    with ParquetFile(file) as parquet:
        for number in reversed(range(parquet.num_row_groups)):
            rows: list[dict[str, Any]] = parquet.read_row_group(number).to_pylist()
            yield rows


def _tally(rows: Iterable[dict[str, Any]]) -> MonthSummary:
    answers = last = total = 0
    for row in rows:
        answers += 1
        last = max(last, row["seen_order"])
        total += weight(
            str(row["id"]), record_digest(canonical([_plain(row[c]) for c in _COLUMNS]))
        )
    return MonthSummary(answers, last, shift(EMPTY, total))


def _sum(parts: Sequence[MonthSummary]) -> MonthSummary:
    total = sum(int.from_bytes(part.digest, "big") for part in parts)
    last = max((part.last_order for part in parts), default=0)
    return MonthSummary(sum(part.answers for part in parts), last, shift(EMPTY, total))


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    # Their instant counts, not the zone in which a session shows it.
    return value.timestamp() if hasattr(value, "timestamp") else value


class _Archive(NamedTuple):
    path: str
    last_order: int
    size: int
    sha256: bytes


async def iter_all(
    conn: AsyncConnection[Any], place: Storage
) -> AsyncGenerator[StoredResponse, None]:
    """Every answer in the order in which it last came, turned round."""
    # Until this transaction ends no month can move from the database to a file.
    await conn.execute("LOCK TABLE raw.api_responses IN ACCESS SHARE MODE")
    cursor = await conn.execute("SELECT path, last_order, size, sha256 FROM raw.api_archives")
    files = [_Archive(*row) for row in await cursor.fetchall()]
    async with AsyncExitStack() as open_streams:
        folder = Path(open_streams.enter_context(tempfile.TemporaryDirectory(prefix="hasat-")))
        # A file is opened when its newest answer is due, not before.
        waiting: list[
            tuple[int, int, StoredResponse | None, AsyncGenerator[StoredResponse, None]]
        ] = [
            (-one.last_order, number, None, _from_file(place, one, folder / str(number)))
            for number, one in enumerate(files)
        ]
        waiting.append((-(2**63), len(files), None, iter_stored(conn)))
        for *_, stream in waiting:
            open_streams.push_async_callback(stream.aclose)
        heapq.heapify(waiting)
        while waiting:
            _, number, told, stream = heapq.heappop(waiting)
            if told is not None:
                yield told
            following = await anext(stream, None)
            if following is not None:
                heapq.heappush(waiting, (-following.order, number, following, stream))


async def _from_file(
    place: Storage, archive: _Archive, copy: Path
) -> AsyncGenerator[StoredResponse, None]:
    seen = hashlib.sha256()
    with copy.open("wb") as file:
        async for piece in place.read(archive.path, 0, archive.size):
            seen.update(piece)
            file.write(piece)
    if seen.digest() != archive.sha256:
        raise UnavailableError(
            msg(
                "{path} in {place} is not the file that was written.",
                path=archive.path,
                place=place.label,
            ),
            remedy=msg("Bring the file back from a backup; nothing was changed."),
        )
    for row in iter_file(copy):
        yield StoredResponse(
            row["seen_order"],
            row["endpoint"].removeprefix("/"),
            json.loads(row["requested_params"]),
            row["leagues"],
            # Files of earlier releases do not have it.
            row.get("vanished") or [],
            row["last_fetched_at"],
            row["body"],
        )
    copy.unlink()
