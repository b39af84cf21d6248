"""Partition files, which group the lines of both lists by taxpayer in bounded memory.

Neither list is sorted, and both together do not fit into memory. Worker processes write the line of
each record to one of many files, chosen by its identifier; then each file, in any process, has all
lines of its taxpayers and is merged into rows ready for COPY.
"""

import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

from hasat.feed.encoding import pack_row, record_digest, weight
from hasat.sources.gib.lists.changes import Unreadable
from hasat.sources.gib.lists.errors import ListError
from hasat.sources.gib.lists.fingerprints import SIZE, pack_identifiers
from hasat.sources.gib.lists.lines import (
    BOXES,
    StoredLine,
    dump_lines,
    identifier_of,
    load_lines,
    published_bodies,
    token_for,
    token_of,
)
from hasat.sources.gib.lists.list_file import ListFile, open_list
from hasat.sources.gib.lists.reader import Reader, SpanningMarkupError
from hasat.sources.gib.lists.records import DOCUMENT_OF, QuarantinedUser
from hasat.sources.gib.lists.tally import Batch, Tally, check_tally, settle_doubtful

MAX_PARTITIONS = 256
# Few enough to be written while the processor's cache still has them.
_MAX_BUFFERED = 1_000
_SIZE_BYTES = 4
# The bytes of an average User, in XML and in a ZIP.
_USER_BYTES, _PACKED_USER_BYTES = 700, 55

_TWO_TEXTS = struct.Struct("!hi").pack
_LENGTH = struct.Struct("!i").pack

TaxpayerLines = tuple[list[StoredLine], list[StoredLine]]
"""All lines of one taxpayer in the PK list and in the GB list."""


@dataclass(frozen=True)
class PartitionedList:
    """The totals of a list, or of a share of it, whose lines are in partition files."""

    tally: Tally
    quarantined: list[QuarantinedUser]


@dataclass(frozen=True)
class Partition:
    """The taxpayers of one partition, by the token of their identifier.

    `fingerprints` and `tokens` have those of all records of each list, in the same order.
    """

    taxpayers: dict[bytes, TaxpayerLines]
    fingerprints: dict[str, bytes]
    tokens: dict[str, list[bytes]]


@dataclass(frozen=True)
class Rows:
    """A file of binary COPY rows, their number, and their share of the state digest."""

    path: Path
    records: int
    weight: int


@dataclass(frozen=True)
class MergedPartition:
    """The rows of a partition by dataset, the file of its lines, and the owners of its records."""

    rows: dict[str, Rows]
    lines: Path
    fingerprints: dict[str, bytes]
    identifiers: dict[str, bytes]


def partition_count(lists: Iterable[Path], batch_size: int) -> int:
    """Return the number of partitions with about `batch_size` taxpayers each."""
    users = 0
    for path in lists:
        with path.open("rb") as file:
            packed = file.read(2) == b"PK"
        users += path.stat().st_size // (_PACKED_USER_BYTES if packed else _USER_BYTES)
    return min(max(1, users // batch_size), MAX_PARTITIONS)


def partition_of(token: bytes, count: int) -> int:
    """Return the number of the partition of a taxpayer."""
    return crc32(token) % count


def _doubtful_file(folder: Path, box: str, share: int) -> Path:
    return folder / f"{box}.doubtful.{share}"


def _partition_file(folder: Path, box: str, number: int, share: int) -> Path:
    return folder / f"{box}.{number:03d}.{share}"


def _stored_lines_file(folder: Path, number: int) -> Path:
    return folder / f"old.{number:03d}"


def partition_list(
    path: Path,
    name: str,
    folder: Path,
    box: str,
    seed: int,
    count: int,
    share: tuple[int, int],
    agreed: frozenset[str],
) -> PartitionedList | None:
    """Partition a share of a list; return None if one reader must read all of it.

    Called in a worker process.
    """
    try:
        return partition(open_list(path, name), folder, box, seed, count, share, agreed)
    except (SpanningMarkupError, ListError):
        if share[1] == 1:
            raise
        return None


def partition(
    file: ListFile,
    folder: Path,
    box: str,
    seed: int,
    count: int,
    share: tuple[int, int] = (0, 1),
    agreed: frozenset[str] = frozenset(),
) -> PartitionedList:
    """Read a list, or a share of it, and write its lines to partition files in `folder`."""
    with _doubtful_file(folder, box, share[0]).open("w+b") as doubtful:
        reader = Reader(file, seed, share=share, agreed=agreed, doubtful=doubtful)
        return PartitionedList(reader.tally, _write_batches(reader, folder, box, count, share[0]))


def combine_shares(
    shares: Sequence[PartitionedList], name: str, folder: Path, box: str, count: int
) -> PartitionedList:
    """Combine the shares of a list and settle their doubtful records; raise if it is unusable."""
    tally = shares[0].tally
    for other in shares[1:]:
        tally = tally.combine(other.tally)
    quarantined = [one for share in shares for one in share.quarantined]
    if len(shares) > 1:
        tally.accept_shared_doubts()
        for number in range(len(shares)):
            with _doubtful_file(folder, box, number).open("rb") as file:
                batches = settle_doubtful(file, tally)
                quarantined += _write_batches(batches, folder, box, count, len(shares) + number)
        check_tally(tally, name)
    return PartitionedList(tally, quarantined)


def clear_partitions(folder: Path, box: str) -> None:
    """Delete the partition files of a list."""
    for path in folder.glob(f"{box}.*"):
        path.unlink()


def _write_batches(
    batches: Iterable[Batch], folder: Path, box: str, count: int, share: int
) -> list[QuarantinedUser]:
    quarantined: list[QuarantinedUser] = []
    with ExitStack() as stack:
        files = [
            stack.enter_context(_partition_file(folder, box, number, share).open("wb"))
            for number in range(count)
        ]
        buffers: list[list[StoredLine]] = [[] for _ in files]
        buffered = 0
        for batch in batches:
            quarantined += batch.quarantined
            for found in batch.new:
                buffers[partition_of(token_of(found[1]), count)].append(found)
            buffered += len(batch.new)
            if buffered >= _MAX_BUFFERED:
                _flush(buffers, files)
                buffered = 0
        _flush(buffers, files)
    return quarantined


def _flush(buffers: list[list[StoredLine]], files: Sequence[BinaryIO]) -> None:
    for buffer, file in zip(buffers, files, strict=True):
        # No line contains a line break, because JSON escapes it.
        prints = b"".join([fingerprint for fingerprint, _ in buffer])
        lines = b"\n".join([line for _, line in buffer])
        sizes = (len(prints).to_bytes(_SIZE_BYTES, "big"), len(lines).to_bytes(_SIZE_BYTES, "big"))
        file.write(b"".join((*sizes, prints, lines)))
        buffer.clear()


def read_partition(folder: Path, number: int) -> Partition:
    """Return the taxpayers of one partition with all their lines."""
    taxpayers: dict[bytes, TaxpayerLines] = {}
    fingerprints: dict[str, bytes] = {}
    tokens: dict[str, list[bytes]] = {}
    for position, box in enumerate(BOXES):
        prints, lines = _read_files(sorted(folder.glob(f"{box}.{number:03d}.*")))
        fingerprints[box] = prints
        tokens[box] = [token_of(line) for line in lines]
        each = [prints[at : at + SIZE] for at in range(0, len(prints), SIZE)]
        for token, line in zip(tokens[box], zip(each, lines, strict=True), strict=True):
            if token not in taxpayers:
                taxpayers[token] = ([], [])
            taxpayers[token][position].append(line)
    return Partition(taxpayers, fingerprints, tokens)


def _read_files(paths: Iterable[Path]) -> tuple[bytes, list[bytes]]:
    """Return all fingerprints and all lines of some partition files."""
    prints: list[bytes] = []
    lines: list[bytes] = []
    for path in paths:
        with path.open("rb") as file:
            while sizes := file.read(2 * _SIZE_BYTES):
                some = file.read(int.from_bytes(sizes[:_SIZE_BYTES], "big"))
                text = file.read(int.from_bytes(sizes[_SIZE_BYTES:], "big"))
                if some:
                    prints.append(some)
                    lines += text.split(b"\n")
    return b"".join(prints), lines


def partition_stored_lines(folder: Path, count: int, rows: list[tuple[str, str]]) -> None:
    """Write lines of the last run to partition files, for taxpayers who may keep them."""
    lines: dict[int, list[str]] = {}
    for identifier, stored in rows:
        number = partition_of(token_for(identifier), count)
        lines.setdefault(number, []).append(json.dumps([identifier, stored]) + "\n")
    for number, batch in lines.items():
        with _stored_lines_file(folder, number).open("a", encoding="utf-8") as file:
            file.writelines(batch)


def merge_partition(
    folder: Path, number: int, unreadable: Mapping[str, Unreadable]
) -> MergedPartition:
    """Merge one partition into files of rows; called in a worker process."""
    partition = read_partition(folder, number)
    _add_stored_lines(partition, folder, number, unreadable)
    packed: dict[str, list[bytes]] = {name: [] for name in DOCUMENT_OF}
    weights = dict.fromkeys(packed, 0)
    lines: list[bytes] = []
    for token, (pk, gb) in partition.taxpayers.items():
        identifier = identifier_of(token)
        key = identifier.encode()
        bodies = published_bodies([line for _, line in pk], [line for _, line in gb])
        for name, body in bodies.items():
            digest = record_digest(body)
            packed[name].append(pack_row(key, body, digest))
            weights[name] += weight(identifier, digest)
        text = dump_lines(pk, gb)
        lines += (_TWO_TEXTS(2, len(key)), key, _LENGTH(len(text)), text)
    return MergedPartition(
        {
            name: Rows(_write(rows, folder / f"{name}.{number:03d}"), len(rows), weights[name])
            for name, rows in packed.items()
        },
        _write(lines, folder / f"taxpayers.{number:03d}"),
        partition.fingerprints,
        {
            box: pack_identifiers(map(identifier_of, tokens))
            for box, tokens in partition.tokens.items()
        },
    )


def _write(rows: list[bytes], path: Path) -> Path:
    path.write_bytes(b"".join(rows))
    return path


def _add_stored_lines(
    partition: Partition, folder: Path, number: int, unreadable: Mapping[str, Unreadable]
) -> None:
    """Add the lines of the last run that taxpayers keep because of unreadable records."""
    path = _stored_lines_file(folder, number)
    if not path.exists():
        return
    with path.open(encoding="utf-8") as file:
        for identifier, stored in map(json.loads, file):
            token = token_for(identifier)
            lines = partition.taxpayers.get(token, ([], []))
            for box, line in _kept_lines(identifier, lines, load_lines(stored), unreadable):
                lines[BOXES.index(box)].append(line)
                partition.fingerprints[box] += line[0]
                partition.tokens[box].append(token)
            if any(lines):
                partition.taxpayers[token] = lines


def _kept_lines(
    identifier: str,
    lines: TaxpayerLines,
    stored: Mapping[str, list[StoredLine]],
    unreadable: Mapping[str, Unreadable],
) -> Iterator[tuple[str, StoredLine]]:
    for box, new in zip(BOXES, lines, strict=True):
        present = {fingerprint for fingerprint, _ in new}
        gone = [line for line in stored[box] if line[0] not in present]
        after = unreadable[box].lines_after(identifier, gone, {line[0] for line in gone}, new)
        yield from [(box, line) for line in after if line[0] not in present]
