"""Verify archives: read a file back and compare it with its catalogue entry."""

import gzip
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any
from xml.parsers import expat

import pyarrow as pa
import pyarrow.parquet as pq

from hasat.feed.archive.manifest import Archive
from hasat.feed.archive.storage import Storage
from hasat.feed.archive.subprocess import run_in_worker
from hasat.feed.encoding import EMPTY, canonical, record_digest, shift, weight


@dataclass(frozen=True)
class Verification:
    """The faults of an archive; none if it is intact."""

    name: str
    faults: tuple[str, ...]


async def verify(storage: Storage, archive: Archive) -> Verification:
    """Read an archive back to the last record and compare it with the catalogue."""
    with NamedTemporaryFile(prefix="hasat-verify-") as copy:
        async for piece in storage.read(archive.path, 0, archive.size):
            copy.write(piece)
        copy.flush()
        faults = await run_in_worker(archive.records, find_faults, archive, Path(copy.name))
    return Verification(archive.name, tuple(faults))


def find_faults(archive: Archive, path: Path) -> list[str]:
    """Return every difference between the file and its catalogue entry."""
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").digest() != archive.sha256:
            return ["its SHA-256 differs from the catalogue"]
    readers = {"ndjson": _ndjson, "parquet": _parquet, "xml": _xml}
    try:
        manifest, records, digest = readers[archive.format](path)
    except (OSError, EOFError, ValueError, expat.ExpatError, pa.ArrowException) as error:
        return [f"it cannot be read: {error}"]
    expected = {name: str(value) for name, value in archive.as_dict().items()}
    faults = [
        f"its {name} is {manifest.get(name)!r} instead of {value!r}"
        for name, value in expected.items()
        if str(manifest.get(name)) != value
    ]
    if records != archive.records:
        faults.append(f"it holds {records:,} records instead of {archive.records:,}")
    if digest not in (None, archive.digest):
        faults.append("its records do not match its state digest")
    return faults


def _ndjson(path: Path) -> tuple[dict[str, Any], int, bytes | None]:
    with gzip.open(path) as file:
        manifest = json.loads(file.readline())
        return manifest, *_sum_up((one["key"], one["body"]) for one in map(json.loads, file))


def _parquet(path: Path) -> tuple[dict[str, Any], int, bytes | None]:
    with pq.ParquetFile(path) as file:
        metadata = file.schema_arrow.metadata or {}
        manifest = {
            name.decode().removeprefix("hasat."): value.decode() for name, value in metadata.items()
        }
        return manifest, *_sum_up(_rows(file))


def _rows(file: pq.ParquetFile) -> Iterator[tuple[str, Any]]:
    # Files of earlier versions have either `body` or one column for each of its fields.
    has_body = "body" in file.schema_arrow.names
    for batch in file.iter_batches(4_096, columns=["key", "body"] if has_body else None):
        for row in batch.to_pylist():
            key = row.pop("key")
            yield key, json.loads(row["body"]) if has_body else row


def _xml(path: Path) -> tuple[dict[str, Any], int, bytes | None]:
    """Count the records: XML cannot hold every text, so there is no digest (see the docs)."""
    seen = _Records()
    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = seen.start, seen.end
    with gzip.open(path) as file:
        parser.ParseFile(file)
    return seen.manifest, seen.count, None


class _Records:
    """The attributes of the root element and the number of its children."""

    def __init__(self) -> None:
        self.manifest: dict[str, Any] = {}
        self.count = 0
        self._depth = 0

    def start(self, _name: str, attributes: dict[str, str]) -> None:
        if not self._depth:
            self.manifest = attributes
        self._depth += 1

    def end(self, _name: str) -> None:
        self._depth -= 1
        self.count += self._depth == 1


def _sum_up(records: Iterator[tuple[str, Any]]) -> tuple[int, bytes]:
    count = total = 0
    for key, body in records:
        count += 1
        total += weight(key, record_digest(canonical(body)))
    return count, shift(EMPTY, total)
