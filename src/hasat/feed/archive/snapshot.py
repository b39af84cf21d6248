"""Write one snapshot of a dataset in all of its formats, in one pass."""

import hashlib
import json
import os
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import orjson
import psycopg
from psycopg import Connection, IsolationLevel, sql
from psycopg.rows import class_row

from hasat.errors import HasatError
from hasat.feed.archive.manifest import Format, Manifest, WrittenFiles
from hasat.feed.columns import POSTGRES_TYPE
from hasat.feed.cursor import Head
from hasat.feed.dataset import Dataset
from hasat.feed.encoding import EMPTY, SIZE, canonical, record_digest, shift, weight
from hasat.messages import msg, template
from hasat.store.home import disk_full, is_disk_full
from hasat.store.queries import load_query
from hasat.store.store import connect_blocking

# JSON and Arrow have no infinite dates, and JSON no infinite numbers: both are null.
_FINITE = "CASE WHEN isfinite({0}) THEN {1} END"
_MICROSECONDS = _FINITE.format("{0}", "(extract(epoch FROM {0}) * 1000000)::bigint")
_FLOAT = "CASE WHEN {0} NOT IN ('NaN', 'Infinity', '-Infinity') THEN {0} END"
_IN_JSON = {
    "smallint": "{0}",
    "integer": "{0}",
    "bigint": "{0}",
    "boolean": "{0}",
    "real": _FLOAT,
    "double precision": _FLOAT,
    "date": _FINITE.format("{0}", "{0} - date '1970-01-01'"),
    "timestamp with time zone": _MICROSECONDS,
    "timestamp without time zone": _MICROSECONDS,
}
_AS_TEXT = "({0})::text"

_BATCH_BYTES = 512 << 10
SEPARATOR = b"\x02"
# A row: the digest in hex, the typed columns, the line; separators in between.
_TYPED = 2 * SIZE + 1


@dataclass(frozen=True)
class Column:
    """A typed column; `type` is PostgreSQL's name of its type.

    `value` is the expression of a declared column that the table itself does not have.
    """

    name: str
    type: str
    value: sql.Composable | None = None

    @property
    def in_json(self) -> sql.Composed:
        """Return an expression for the value as JSON that Arrow accepts for its type."""
        form = _IN_JSON.get(self.type, _AS_TEXT)
        return sql.SQL(form).format(self.value or sql.Identifier(self.name))


def typed_columns(conn: Connection[Any], dataset: Dataset) -> Sequence[Column]:
    """Return the typed columns of a dataset's table, then the declared ones it does not have."""
    with conn.cursor(row_factory=class_row(Column)) as cursor:
        cursor.execute(
            load_query("hasat.feed.archive", "typed_columns"),
            {"table": dataset.table.as_string(conn)},
        )
        stored = cursor.fetchall()
    if dataset.parquet_schema is not None:
        return stored
    names = {column.name for column in stored}
    return stored + [
        Column(one.name, POSTGRES_TYPE[one.type], one.project(None))
        for one in dataset.columns
        if one.name not in names
    ]


def values_of(columns: Sequence[Column]) -> sql.Composed:
    """Return an expression for the values of these columns as a JSON array."""
    return sql.SQL("json_build_array({})::text").format(
        sql.SQL(", ").join(column.in_json for column in columns)
    )


class MirrorDamagedError(HasatError):
    """The mirror differs from its head; no archive of it is written."""

    code = "unsound"
    title = template("The mirror is damaged")


class Batch(NamedTuple):
    """Records in the order of their keys: as lines of JSON and parsed, with their digests.

    `typed` holds the values of the typed columns, one JSON array per record.
    """

    lines: bytes
    keys: Sequence[str]
    bodies: Sequence[Any]
    digests: Sequence[bytes]
    typed: Sequence[bytes]


class FormatWriter(Protocol):
    """A file that is written batch by batch."""

    def add(self, batch: Batch) -> None: ...
    def close(self) -> None: ...


def write_snapshot(url: str, dataset: Dataset, paths: Mapping[Format, Path]) -> WrittenFiles:
    """Write one snapshot of the dataset, each format to its path."""
    # pyarrow is large, and only writing needs it.
    from hasat.feed.archive.formats import open_format

    with explaining_failures(dataset, next(iter(paths.values())).parent):
        with snapshot(url) as conn, ExitStack() as open_files:
            manifest = read_manifest(conn, dataset)
            typed = typed_columns(conn, dataset)
            writers = [
                open_format(dataset, name, path, manifest, typed) for name, path in paths.items()
            ]
            for writer in writers:
                open_files.callback(writer.close)
            _copy(conn, dataset, manifest, typed, writers)
        return WrittenFiles(manifest, {name: finalize(path) for name, path in paths.items()})


@contextmanager
def explaining_failures(dataset: Dataset, folder: Path) -> Iterator[None]:
    """Turn the errors of the database and of the disk into sentences."""
    from pyarrow import ArrowException

    try:
        yield
    except psycopg.Error as error:
        raise HasatError(
            msg(
                "The database stopped responding while {dataset} was archived: {error}",
                dataset=dataset.name,
                error=error,
            ),
            remedy=msg("A worker retries soon; `hasat archive write` retries at once."),
        ) from None
    except (OSError, ArrowException) as error:
        if is_disk_full(error):
            raise disk_full(folder, f"the archive of {dataset.name}") from error
        raise HasatError(
            msg("{dataset} could not be archived: {error}.", dataset=dataset.name, error=error)
        ) from None


@contextmanager
def snapshot(url: str) -> Iterator[Connection[Any]]:
    """Open a connection whose statements all see one snapshot."""
    with connect_blocking(url, client_encoding="utf8") as conn:
        conn.isolation_level = IsolationLevel.REPEATABLE_READ
        conn.read_only = True
        yield conn


def read_manifest(conn: Connection[Any], dataset: Dataset) -> Manifest:
    """Return the state that the snapshot of this connection holds."""
    with conn.cursor(row_factory=class_row(Head)) as cursor:
        head = cursor.execute(
            load_query("hasat.feed", "head"), {"dataset": dataset.name}
        ).fetchone()
    assert head is not None
    assert head.version is not None
    assert head.committed_at is not None
    return Manifest(
        head.dataset,
        head.epoch,
        head.seq,
        head.version,
        head.records,
        head.digest,
        head.committed_at,
    )


def _copy(
    conn: Connection[Any],
    dataset: Dataset,
    manifest: Manifest,
    typed: Sequence[Column],
    writers: list[FormatWriter],
) -> None:
    """Pass every record to every writer and check the result against the head."""
    records = total = 0
    # Compression and Parquet release the interpreter lock: they run while the next batch is read.
    with ThreadPoolExecutor(1) as executor, closing(_batches(conn, dataset, typed)) as batches:
        pending: Future[None] | None = None
        for batch in batches:
            records += len(batch.keys)
            total += _weight(batch)
            if pending is not None:
                pending.result()
            pending = executor.submit(partial(_add, writers, batch))
        if pending is not None:
            pending.result()
    if records != manifest.records or shift(EMPTY, total) != manifest.digest:
        raise MirrorDamagedError(
            msg(
                "{dataset} has {records:,} records with the digest {digest}, but its head "
                "says {expected:,} with {expected_digest}.",
                dataset=dataset.name,
                records=records,
                digest=shift(EMPTY, total).hex(),
                expected=manifest.records,
                expected_digest=manifest.digest.hex(),
            ),
            remedy=msg(
                "Another program changed the mirror: restore a backup, or rebuild the dataset."
            ),
        )


def _add(writers: list[FormatWriter], batch: Batch) -> None:
    for writer in writers:
        writer.add(batch)


def _batches(
    conn: Connection[Any], dataset: Dataset, typed: Sequence[Column]
) -> Generator[Batch, None, None]:
    query = sql.SQL(load_query("hasat.feed.archive", "read")).format(
        table=dataset.table, typed=values_of(typed)
    )
    with conn.cursor() as cursor, cursor.copy(query) as copy:
        for rows in row_batches(copy):
            yield _read(rows)


def row_batches(copy: Iterable[bytes | bytearray | memoryview]) -> Iterator[list[bytes]]:
    """Yield the rows of a COPY in batches of limited size."""
    waiting: list[bytes] = []
    size = 0
    for row in copy:
        waiting.append(bytes(row))
        size += len(row)
        if size >= _BATCH_BYTES:
            yield waiting
            waiting, size = [], 0
    if waiting:
        yield waiting


def _read(rows: list[bytes]) -> Batch:
    parts = [row[_TYPED:].split(SEPARATOR, 1) for row in rows]
    read = [loads(line) for _, line in parts]
    return Batch(
        b"".join([line for _, line in parts]),
        [one["key"] for one in read],
        [one["body"] for one in read],
        [bytes.fromhex(row[: 2 * SIZE].decode()) for row in rows],
        [typed for typed, _ in parts],
    )


def loads(line: bytes) -> Any:
    """Parse a line; its numbers may be of any size."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        # orjson rejects numbers beyond its range.
        return json.loads(line)


def _weight(batch: Batch) -> int:
    """Return the weight of the records as written, independently of the stored digests."""
    total = 0
    for place, (key, stored) in enumerate(zip(batch.keys, batch.digests, strict=True)):
        total += weight(key, _digest(batch, place, stored))
    return total


def _digest(batch: Batch, place: int, stored: bytes) -> bytes:
    """Return the digest of the record as written, with numbers in the form of the stored one."""
    body = batch.bodies[place]
    with suppress(orjson.JSONEncodeError):
        if record_digest(orjson.dumps(body, option=orjson.OPT_SORT_KEYS)) == stored:
            return stored
    digest = record_digest(canonical(body))
    if digest != stored:
        # orjson reads integers beyond 64 bits as floats.
        exact = json.loads(batch.lines.split(b"\n")[place])["body"]
        digest = record_digest(canonical(exact))
    return digest


def finalize(path: Path) -> tuple[int, bytes]:
    """Flush a finished file to disk and return its size and SHA-256."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").digest()
        os.fsync(file.fileno())
        return file.tell(), digest
