"""Cumulative deltas: the net changes of the last 1, 7 and 30 days as files, next to the archives.

A delta lists every record that changed between two versions once, as it is at the end. So it turns
not only the state at its beginning but every state in between into the one at its end.
"""

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

from psycopg import Connection, sql
from psycopg.rows import class_row

from hasat.clock import local_time
from hasat.feed.archive.manifest import Archive, Format, Manifest
from hasat.feed.archive.snapshot import (
    SEPARATOR,
    Column,
    explaining_failures,
    finalize,
    loads,
    read_manifest,
    row_batches,
    snapshot,
    typed_columns,
    values_of,
)
from hasat.feed.cursor import Cursor
from hasat.feed.dataset import Dataset
from hasat.store.queries import load_query

DAYS = (1, 7, 30)
FORMATS: tuple[Format, ...] = ("ndjson", "parquet")
ChangeType = Literal["added", "modified", "removed"]

_PACKAGE = "hasat.feed.archive"
_KINDS: Mapping[bytes, ChangeType] = {b"1": "added", b"2": "modified", b"3": "removed"}


@dataclass(frozen=True)
class Beginning:
    """The version at which a delta begins."""

    days: int
    seq: int
    version: int
    digest: bytes
    committed_at: datetime


class NetChanges(NamedTuple):
    """Records that changed, in the order of their keys, with their newest change."""

    lines: bytes
    keys: Sequence[str]
    typed: Sequence[bytes]
    kinds: Sequence[ChangeType]
    seqs: Sequence[int]


@dataclass(frozen=True)
class WrittenDelta:
    """The files of one delta, with the size and SHA-256 of each."""

    manifest: Manifest
    beginning: Beginning
    counts: Mapping[ChangeType, int]
    files: Mapping[Format, tuple[int, bytes]]

    def as_row(self) -> dict[str, Any]:
        """Return what the catalogue has of it, without its files."""
        beginning = self.beginning
        return {
            **vars(self.manifest),
            "days": beginning.days,
            "from_seq": beginning.seq,
            "from_version": beginning.version,
            "from_digest": beginning.digest,
            "from_at": beginning.committed_at,
            **{kind: self.counts.get(kind, 0) for kind in _KINDS.values()},
        }


@dataclass(frozen=True)
class CumulativeDelta(Archive):
    """One file of a delta: a row of feed.cumulative_delta. Its manifest is that of its end."""

    days: int
    from_seq: int
    from_version: int
    from_digest: bytes
    from_at: datetime
    added: int
    modified: int
    removed: int

    @property
    def from_cursor(self) -> Cursor:
        return Cursor(self.dataset, self.epoch, self.from_seq)

    def summary(self) -> dict[str, Any]:
        """Return the delta as lists show it."""
        return {
            "fileName": self.name,
            "days": self.days,
            "format": self.format,
            "sizeBytes": self.size,
            "sha256": self.sha256.hex(),
            "createdAt": local_time(self.created_at),
            "epoch": str(self.epoch),
            "from": {
                "cursor": str(self.from_cursor),
                "head": self.from_seq,
                "version": self.from_version,
                "digest": self.from_digest.hex(),
                "committedAt": local_time(self.from_at),
            },
            "to": {
                "cursor": str(self.cursor),
                "head": self.seq,
                "version": self.version,
                "digest": self.digest.hex(),
                "committedAt": local_time(self.committed_at),
                "count": self.records,
            },
            "added": self.added,
            "modified": self.modified,
            "removed": self.removed,
        }


def _header(manifest: Manifest, beginning: Beginning) -> dict[str, Any]:
    """Return the first line of a file: where it begins, and the state at its end."""
    return {
        "hasat": "cumulative-delta",
        **manifest.as_dict(),
        "days": beginning.days,
        "from": str(Cursor(manifest.dataset, manifest.epoch, beginning.seq)),
        "fromHead": beginning.seq,
        "fromDigest": beginning.digest.hex(),
        "fromCommittedAt": local_time(beginning.committed_at),
    }


def write_deltas(
    url: str, dataset: Dataset, paths: Mapping[int, Mapping[Format, Path]]
) -> list[WrittenDelta]:
    """Write the deltas of one snapshot, for each number of days each format to its path."""
    from hasat.feed.archive.formats import open_delta

    folder = next(iter(next(iter(paths.values())).values())).parent
    with explaining_failures(dataset, folder), snapshot(url) as conn:
        manifest = read_manifest(conn, dataset)
        typed = typed_columns(conn, dataset)
        written = []
        for beginning in _beginnings(conn, dataset, list(paths)):
            header = _header(manifest, beginning)
            writers = [
                open_delta(dataset, format_, path, header, typed)
                for format_, path in paths[beginning.days].items()
            ]
            counts: Counter[ChangeType] = Counter()
            try:
                with closing(_net_changes(conn, dataset, beginning, manifest, typed)) as batches:
                    for batch in batches:
                        counts.update(batch.kinds)
                        for writer in writers:
                            writer.add(batch)
            finally:
                for writer in writers:
                    writer.close()
            files = {format_: finalize(path) for format_, path in paths[beginning.days].items()}
            written.append(WrittenDelta(manifest, beginning, counts, files))
    return written


def _beginnings(conn: Connection[Any], dataset: Dataset, days: Sequence[int]) -> list[Beginning]:
    with conn.cursor(row_factory=class_row(Beginning)) as cursor:
        values = {"dataset": dataset.name, "days": list(days)}
        return cursor.execute(load_query(_PACKAGE, "beginnings"), values).fetchall()


def _net_changes(
    conn: Connection[Any],
    dataset: Dataset,
    beginning: Beginning,
    manifest: Manifest,
    typed: Sequence[Column],
) -> Generator[NetChanges, None, None]:
    query = sql.SQL(load_query(_PACKAGE, "net_changes")).format(
        table=dataset.table,
        typed=values_of(typed),
        dataset=sql.Literal(dataset.name),
        after=sql.Literal(beginning.seq),
        last=sql.Literal(manifest.seq),
    )
    with conn.cursor() as cursor, cursor.copy(query) as copy:
        for rows in row_batches(copy):
            kinds, seqs, values, lines = zip(
                *(row.split(SEPARATOR, 3) for row in rows), strict=True
            )
            yield NetChanges(
                b"".join(lines),
                [loads(line)["key"] for line in lines],
                values,
                [_KINDS[kind] for kind in kinds],
                [int(seq) for seq in seqs],
            )
