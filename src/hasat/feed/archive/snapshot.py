"""Write one snapshot of a dataset in all of its formats, in one pass."""

import hashlib
import json
import os
from collections.abc import Generator, Iterator, Mapping, Sequence
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
from hasat.feed.archive.manifest import Format, Manifest, Written
from hasat.feed.cursor import Head
from hasat.feed.dataset import Dataset
from hasat.feed.encoding import EMPTY, SIZE, canonical, record_digest, shift, weight
from hasat.messages import msg
from hasat.store.disk import disk_full, is_disk_full
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
_SEPARATOR = b"\x02"
# A row: the digest in hex, the typed columns, the line; separators in between.
_TYPED = 2 * SIZE + 1


@dataclass(frozen=True)
class Column:
    """A typed column; `type` is PostgreSQL's name of its type."""

    name: str
    type: str

    @property
    def in_json(self) -> sql.Composed:
        """The value as a JSON number, boolean or text that Arrow takes for its type."""
        form = _IN_JSON.get(self.type, _AS_TEXT)
        return sql.SQL(form).format(sql.Identifier(self.name))


def typed_columns(conn: Connection[Any], dataset: Dataset) -> Sequence[Column]:
    """The columns of the dataset's table that not every record has."""
    with conn.cursor(row_factory=class_row(Column)) as cursor:
        cursor.execute(
            load_query("hasat.feed.archive", "typed_columns"),
            {"table": dataset.table.as_string(conn)},
        )
        return cursor.fetchall()


def values_of(columns: Sequence[Column]) -> sql.Composed:
    """An expression for the values of these columns in one row, as a JSON array."""
    return sql.SQL("json_build_array({})::text").format(
        sql.SQL(", ").join(column.in_json for column in columns)
    )


class UnsoundError(HasatError):
    """The mirror is not what its head says; nothing of it is handed out."""

    code = "unsound"
    title = "The mirror is not what it should be"


class Batch(NamedTuple):
    """Some records in the order of their keys: as lines of JSON, and read; with their digests.

    `typed` are the values of the table's typed columns, a JSON array for each record.
    """

    lines: bytes
    keys: Sequence[str]
    bodies: Sequence[Any]
    digests: Sequence[bytes]
    typed: Sequence[bytes]


class Form(Protocol):
    def add(self, batch: Batch) -> None: ...
    def close(self) -> None: ...


def write_snapshot(url: str, dataset: Dataset, paths: Mapping[Format, Path]) -> Written:
    """Write the dataset as one snapshot sees it, in each form to its path."""
    # Large, and not needed by who only reads archives.
    from pyarrow import ArrowException

    from hasat.feed.archive.formats import open_form

    try:
        with _snapshot(url) as conn, ExitStack() as open_ones:
            facts = _facts(conn, dataset)
            typed = typed_columns(conn, dataset)
            forms = [open_form(dataset, name, path, facts, typed) for name, path in paths.items()]
            for form in forms:
                open_ones.callback(form.close)
            _copy(conn, dataset, facts, typed, forms)
        written = Written(facts, {name: _sealed(path) for name, path in paths.items()})
    except psycopg.Error as error:
        raise HasatError(
            msg(
                "The database stopped answering while {dataset} was archived: {error}",
                dataset=dataset.name,
                error=error,
            ),
            remedy=msg("A worker tries again soon; `hasat archive write` does so at once."),
        ) from None
    except (OSError, ArrowException) as error:
        if is_disk_full(error):
            folder = next(iter(paths.values())).parent
            raise disk_full(folder, f"the archive of {dataset.name}") from error
        raise HasatError(
            msg("{dataset} could not be archived: {error}.", dataset=dataset.name, error=error)
        ) from None
    return written


@contextmanager
def _snapshot(url: str) -> Iterator[Connection[Any]]:
    with connect_blocking(url, client_encoding="utf8") as conn:
        conn.isolation_level = IsolationLevel.REPEATABLE_READ
        conn.read_only = True
        yield conn


def _facts(conn: Connection[Any], dataset: Dataset) -> Manifest:
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
    facts: Manifest,
    typed: Sequence[Column],
    forms: list[Form],
) -> None:
    """Hand every record to every form; what was written must be what the head says."""
    records = total = 0
    # Compression and Parquet let go of the interpreter: they go on beside the reading.
    with ThreadPoolExecutor(1) as beside, closing(_batches(conn, dataset, typed)) as batches:
        behind: Future[None] | None = None
        for batch in batches:
            records += len(batch.keys)
            total += _weight(batch)
            if behind is not None:
                behind.result()
            behind = beside.submit(partial(_add, forms, batch))
        if behind is not None:
            behind.result()
    if records != facts.records or shift(EMPTY, total) != facts.digest:
        raise UnsoundError(
            msg(
                "{dataset} has {records:,} records with the digest {digest}, but its head "
                "says {expected:,} with {expected_digest}.",
                dataset=dataset.name,
                records=records,
                digest=shift(EMPTY, total).hex(),
                expected=facts.records,
                expected_digest=facts.digest.hex(),
            ),
            remedy=msg(
                "Something wrote to the mirror beside Hasat: restore a backup, or fill it anew."
            ),
        )


def _add(forms: list[Form], batch: Batch) -> None:
    for form in forms:
        form.add(batch)


def _batches(
    conn: Connection[Any], dataset: Dataset, typed: Sequence[Column]
) -> Generator[Batch, None, None]:
    query = sql.SQL(load_query("hasat.feed.archive", "read")).format(
        table=dataset.table, typed=values_of(typed)
    )
    with conn.cursor() as cursor, cursor.copy(query) as copy:
        waiting: list[bytes] = []
        size = 0
        for row in copy:
            waiting.append(bytes(row))
            size += len(row)
            if size >= _BATCH_BYTES:
                yield _read(waiting)
                waiting, size = [], 0
        if waiting:
            yield _read(waiting)


def _read(rows: list[bytes]) -> Batch:
    parts = [row[_TYPED:].split(_SEPARATOR, 1) for row in rows]
    read = [_loads(line) for _, line in parts]
    return Batch(
        b"".join([line for _, line in parts]),
        [one["key"] for one in read],
        [one["body"] for one in read],
        [bytes.fromhex(row[: 2 * SIZE].decode()) for row in rows],
        [typed for typed, _ in parts],
    )


def _loads(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        # A number too large for it.
        return json.loads(line)


def _weight(batch: Batch) -> int:
    """The weight of the records as they are written, whatever their rows say of them."""
    total = 0
    for place, (key, stored) in enumerate(zip(batch.keys, batch.digests, strict=True)):
        total += weight(key, _digest(batch, place, stored))
    return total


def _digest(batch: Batch, place: int, stored: bytes) -> bytes:
    """The digest of the record that is written, with its numbers spelled as the stored one's."""
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


def _sealed(path: Path) -> tuple[int, bytes]:
    """A finished file's size and SHA-256, once it is safely on the disk."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").digest()
        os.fsync(file.fileno())
        return file.tell(), digest
