"""Both lists at once, for a first run: grouped by taxpayer on disk, in bounded memory.

Neither list is sorted and both together do not fit into memory. So each list is read by a process
of its own, which lays every part into one of many files by its identifier; then file by file, in
any process, the parts of a taxpayer are together.
"""

import marshal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from zlib import crc32

from hasat.sources.gib.opening import ListFile
from hasat.sources.gib.records import Part, SetAside
from hasat.sources.gib.splitting import Reader, Tally

BOXES = ("PK", "GB")
SHELVES = 64
# Few enough to be written out while the processor's cache still holds them.
_IN_MEMORY = 1_000
_LENGTH = 4


@dataclass(frozen=True)
class Shelved:
    """What the list had that was laid on the shelves."""

    tally: Tally
    set_aside: list[SetAside]


class Group(NamedTuple):
    """All parts of one taxpayer, each with the fingerprint of its record."""

    identifier: str
    pk: list[tuple[bytes, Part]]
    gb: list[tuple[bytes, Part]]


def _shelf(folder: Path, box: str, number: int) -> Path:
    return folder / f"{box}.{number:02d}"


def shelve(file: ListFile, folder: Path, box: str, seed: int) -> Shelved:
    """Read a list and lay its parts on the shelves of `folder`."""
    reader = Reader(file, seed)
    set_aside: list[SetAside] = []
    with ExitStack() as stack:
        shelves = [
            stack.enter_context(_shelf(folder, box, number).open("wb")) for number in range(SHELVES)
        ]
        waiting: list[list[tuple[object, ...]]] = [[] for _ in shelves]
        count = 0
        for batch in reader:
            set_aside += batch.set_aside
            for fingerprint, part in batch.new:
                waiting[crc32(part.identifier.encode()) % SHELVES].append(
                    (fingerprint, tuple(part))
                )
            count += len(batch.new)
            if count >= _IN_MEMORY:
                _lay(waiting, shelves)
                count = 0
        _lay(waiting, shelves)
    return Shelved(reader.tally, set_aside)


def _lay(waiting: list[list[tuple[object, ...]]], shelves: Sequence[BinaryIO]) -> None:
    for parts, shelf in zip(waiting, shelves, strict=True):
        # Version 2 does not look for equal objects, which would take as long again.
        data = marshal.dumps(parts, 2)
        shelf.write(len(data).to_bytes(_LENGTH, "big") + data)
        parts.clear()


def groups(folder: Path, number: int) -> Iterator[Group]:
    """The taxpayers of one shelf, with all their parts."""
    found: dict[str, Group] = {}
    for box in BOXES:
        with _shelf(folder, box, number).open("rb") as shelf:
            for fingerprint, fields in _laid(shelf):
                part = Part._make(fields)
                group = found.get(part.identifier)
                if group is None:
                    group = found[part.identifier] = Group(part.identifier, [], [])
                (group.pk if box == "PK" else group.gb).append((fingerprint, part))
    yield from found.values()


def _laid(shelf: BinaryIO) -> Iterator[tuple[Any, ...]]:
    # marshal.load would read every number and text by a call of its own.
    while length := shelf.read(_LENGTH):
        data = shelf.read(int.from_bytes(length, "big"))
        yield from marshal.loads(data)  # noqa: S302 - written by `shelve` a moment ago
