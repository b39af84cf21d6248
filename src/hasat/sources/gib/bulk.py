"""Both lists at once, for a first run: grouped by taxpayer on disk, in bounded memory.

Neither list is sorted and both together do not fit into memory. So each list is read by a process
of its own, which lays the line of every record on one of many shelves (files) by its identifier;
then shelf by shelf, in any process, the lines of a taxpayer are together.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple
from zlib import crc32

from hasat.sources.gib.fingerprints import SIZE
from hasat.sources.gib.lines import identifier_of, part_of
from hasat.sources.gib.opening import ListFile
from hasat.sources.gib.records import Part, SetAside
from hasat.sources.gib.splitting import LineReader, Tally

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


class LineGroup(NamedTuple):
    """All lines of one taxpayer, each with the fingerprint of its record."""

    identifier: str
    pk: list[tuple[bytes, bytes]]
    gb: list[tuple[bytes, bytes]]


class Group(NamedTuple):
    """All parts of one taxpayer, each with the fingerprint of its record."""

    identifier: str
    pk: list[tuple[bytes, Part]]
    gb: list[tuple[bytes, Part]]


def _shelf(folder: Path, box: str, number: int) -> Path:
    return folder / f"{box}.{number:02d}"


def shelve(file: ListFile, folder: Path, box: str, seed: int) -> Shelved:
    """Read a list and lay its lines on the shelves of `folder`."""
    reader = LineReader(file, seed)
    set_aside: list[SetAside] = []
    with ExitStack() as stack:
        shelves = [
            stack.enter_context(_shelf(folder, box, number).open("wb")) for number in range(SHELVES)
        ]
        waiting: list[list[tuple[bytes, bytes]]] = [[] for _ in shelves]
        count = 0
        for batch in reader:
            set_aside += batch.set_aside
            for found in batch.new:
                identifier = identifier_of(found[1])
                waiting[crc32(identifier.encode()) % SHELVES].append(found)
            count += len(batch.new)
            if count >= _IN_MEMORY:
                _lay(waiting, shelves)
                count = 0
        _lay(waiting, shelves)
    return Shelved(reader.tally, set_aside)


def _lay(waiting: list[list[tuple[bytes, bytes]]], shelves: Sequence[BinaryIO]) -> None:
    for found, shelf in zip(waiting, shelves, strict=True):
        # No line holds a line break: JSON spells it otherwise.
        prints = b"".join([fingerprint for fingerprint, _ in found])
        lines = b"\n".join([line for _, line in found])
        sizes = (len(prints).to_bytes(_LENGTH, "big"), len(lines).to_bytes(_LENGTH, "big"))
        shelf.write(b"".join((*sizes, prints, lines)))
        found.clear()


def _laid(shelf: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
    while sizes := shelf.read(2 * _LENGTH):
        prints = shelf.read(int.from_bytes(sizes[:_LENGTH], "big"))
        lines = shelf.read(int.from_bytes(sizes[_LENGTH:], "big"))
        if prints:
            for number, line in enumerate(lines.split(b"\n")):
                yield prints[number * SIZE : (number + 1) * SIZE], line


def line_groups(folder: Path, number: int) -> Iterator[LineGroup]:
    """The taxpayers of one shelf, with all their lines."""
    found: dict[str, LineGroup] = {}
    for box in BOXES:
        with _shelf(folder, box, number).open("rb") as shelf:
            for one in _laid(shelf):
                identifier = identifier_of(one[1])
                group = found.get(identifier)
                if group is None:
                    group = found[identifier] = LineGroup(identifier, [], [])
                (group.pk if box == "PK" else group.gb).append(one)
    yield from found.values()


def groups(folder: Path, number: int) -> Iterator[Group]:
    """The taxpayers of one shelf, with all their parts."""
    for identifier, pk, gb in line_groups(folder, number):
        yield Group(
            identifier,
            [(fingerprint, part_of(line)) for fingerprint, line in pk],
            [(fingerprint, part_of(line)) for fingerprint, line in gb],
        )
