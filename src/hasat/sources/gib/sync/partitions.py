"""Both lists at once, for a first run: grouped by taxpayer on disk, in bounded memory.

Neither list is sorted and both together do not fit into memory. So the lists are read by several
processes, which lay the line of every record on one of many shelves (files) by its identifier;
then shelf by shelf, in any process, the lines of a taxpayer are together.
"""

import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

from hasat.feed.encoding import pack_row, record_digest, weight
from hasat.sources.gib.lists.errors import ListError
from hasat.sources.gib.lists.fingerprints import SIZE, pack_identifiers
from hasat.sources.gib.lists.lines import (
    BOXES,
    Kept,
    dump_parts,
    identifier_of,
    load_parts,
    published,
    token_for,
    token_of,
)
from hasat.sources.gib.lists.list_file import ListFile, open_list
from hasat.sources.gib.lists.reader import Batch, ReachesOnError, Reader, Tally, conclude, settled
from hasat.sources.gib.lists.records import DOCUMENT_OF, SetAside
from hasat.sources.gib.sync.incremental import Unreadable, remaining

MOST_SHELVES = 256
# Few enough to be written out while the processor's cache still holds them.
_IN_MEMORY = 1_000
_SIZE_BYTES = 4
# What a list of the usual kind needs for a User, unpacked and packed.
_USER_BYTES, _PACKED_USER_BYTES = 700, 55


@dataclass(frozen=True)
class Shelved:
    """What the list had that was laid on the shelves."""

    tally: Tally
    set_aside: list[SetAside]


def shelve_doubtful(
    shares: Sequence[Shelved], name: str, folder: Path, box: str, count: int
) -> Shelved:
    """What all who shared a list found, if together that is a list; their doubts are settled."""
    tally = shares[0].tally
    for other in shares[1:]:
        tally = tally.and_also(other.tally)
    set_aside = [one for share in shares for one in share.set_aside]
    if len(shares) > 1:
        tally.agree()
        for number in range(len(shares)):
            with _doubtful(folder, box, number).open("rb") as file:
                batches = settled(file, tally)
                set_aside += _lay_all(batches, folder, box, count, len(shares) + number)
        conclude(tally, name)
    return Shelved(tally, set_aside)


KeptLines = tuple[list[Kept], list[Kept]]
"""All lines of one taxpayer in the PK list and in the GB list, with their fingerprints."""


def shelves_for(lists: Iterable[Path], batch_size: int) -> int:
    """On how many shelves the lists have about `batch_size` taxpayers each."""
    users = 0
    for path in lists:
        with path.open("rb") as file:
            packed = file.read(2) == b"PK"
        users += path.stat().st_size // (_PACKED_USER_BYTES if packed else _USER_BYTES)
    return min(max(1, users // batch_size), MOST_SHELVES)


def _doubtful(folder: Path, box: str, share: int) -> Path:
    return folder / f"{box}.doubtful.{share}"


def _shelf(folder: Path, box: str, number: int, share: int) -> Path:
    return folder / f"{box}.{number:03d}.{share}"


def shelve_list(
    path: Path,
    name: str,
    folder: Path,
    box: str,
    seed: int,
    shelves: int,
    share: tuple[int, int],
    agreed: frozenset[str],
) -> Shelved | None:
    """Lay one's share of a list on the shelves; None if one reader should judge it all.

    Runs in a process of its own.
    """
    try:
        return shelve(open_list(path, name), folder, box, seed, shelves, share, agreed)
    except (ReachesOnError, ListError):
        if share[1] == 1:
            raise
        return None


def shelve(
    file: ListFile,
    folder: Path,
    box: str,
    seed: int,
    count: int,
    share: tuple[int, int] = (0, 1),
    agreed: frozenset[str] = frozenset(),
) -> Shelved:
    """Read a list, or one's share of it, and lay its lines on as many shelves in `folder`."""
    with _doubtful(folder, box, share[0]).open("w+b") as doubtful:
        reader = Reader(file, seed, share=share, agreed=agreed, doubtful=doubtful)
        return Shelved(reader.tally, _lay_all(reader, folder, box, count, share[0]))


def _lay_all(
    batches: Iterable[Batch], folder: Path, box: str, count: int, share: int
) -> list[SetAside]:
    set_aside: list[SetAside] = []
    with ExitStack() as stack:
        shelves = [
            stack.enter_context(_shelf(folder, box, number, share).open("wb"))
            for number in range(count)
        ]
        waiting: list[list[Kept]] = [[] for _ in shelves]
        held = 0
        for batch in batches:
            set_aside += batch.set_aside
            for found in batch.new:
                waiting[shelf_of(token_of(found[1]), count)].append(found)
            held += len(batch.new)
            if held >= _IN_MEMORY:
                _lay(waiting, shelves)
                held = 0
        _lay(waiting, shelves)
    return set_aside


def _lay(waiting: list[list[Kept]], shelves: Sequence[BinaryIO]) -> None:
    for found, shelf in zip(waiting, shelves, strict=True):
        # No line holds a line break: JSON spells it otherwise.
        prints = b"".join([fingerprint for fingerprint, _ in found])
        lines = b"\n".join([line for _, line in found])
        sizes = (len(prints).to_bytes(_SIZE_BYTES, "big"), len(lines).to_bytes(_SIZE_BYTES, "big"))
        shelf.write(b"".join((*sizes, prints, lines)))
        found.clear()


def clear_shelves(folder: Path, box: str) -> None:
    """Take what was laid of a list away again."""
    for path in folder.glob(f"{box}.*"):
        path.unlink()


def shelf_of(token: bytes, shelves: int) -> int:
    """The number of the shelf on which a taxpayer's lines lie."""
    return crc32(token) % shelves


@dataclass(frozen=True)
class Shelf:
    """One shelf's taxpayers by the token of their identifier.

    And of each list, the fingerprints and the tokens of its records in order.
    """

    taxpayers: dict[bytes, KeptLines]
    fingerprints: dict[str, bytes]
    tokens: dict[str, list[bytes]]


def read_shelf(folder: Path, number: int) -> Shelf:
    """The taxpayers of one shelf, with all their lines."""
    taxpayers: dict[bytes, KeptLines] = {}
    fingerprints: dict[str, bytes] = {}
    tokens: dict[str, list[bytes]] = {}
    for place, box in enumerate(BOXES):
        prints, lines = _laid(sorted(folder.glob(f"{box}.{number:03d}.*")))
        fingerprints[box] = prints
        tokens[box] = [token_of(line) for line in lines]
        each = [prints[at : at + SIZE] for at in range(0, len(prints), SIZE)]
        for token, kept in zip(tokens[box], zip(each, lines, strict=True), strict=True):
            if token not in taxpayers:
                taxpayers[token] = ([], [])
            taxpayers[token][place].append(kept)
    return Shelf(taxpayers, fingerprints, tokens)


def _laid(paths: Iterable[Path]) -> tuple[bytes, list[bytes]]:
    """All fingerprints on a shelf, and all lines."""
    prints: list[bytes] = []
    lines: list[bytes] = []
    for path in paths:
        with path.open("rb") as shelf:
            while sizes := shelf.read(2 * _SIZE_BYTES):
                some = shelf.read(int.from_bytes(sizes[:_SIZE_BYTES], "big"))
                text = shelf.read(int.from_bytes(sizes[_SIZE_BYTES:], "big"))
                if some:
                    prints.append(some)
                    lines += text.split(b"\n")
    return b"".join(prints), lines


_TWO_TEXTS = struct.Struct("!hi").pack
_LENGTH = struct.Struct("!i").pack


@dataclass(frozen=True)
class Rows:
    """Binary COPY rows in a file, how many they are, and their share of the state digest."""

    path: Path
    records: int
    weight: int


@dataclass(frozen=True)
class MergedShelf:
    """One shelf's rows by dataset, where its kept lines lie, and whose records they are."""

    rows: dict[str, Rows]
    taxpayers: Path
    fingerprints: dict[str, bytes]
    identifiers: dict[str, bytes]


def _old_shelf(folder: Path, number: int) -> Path:
    return folder / f"old.{number:03d}"


def shelve_old(folder: Path, shelves: int, rows: list[tuple[str, str]]) -> None:
    """Lay kept lines of the last run beside the new ones, for those who may need them."""
    lines: dict[int, list[str]] = {}
    for identifier, parts in rows:
        number = shelf_of(token_for(identifier), shelves)
        lines.setdefault(number, []).append(json.dumps([identifier, parts]) + "\n")
    for number, batch in lines.items():
        with _old_shelf(folder, number).open("a", encoding="utf-8") as file:
            file.writelines(batch)


def merge_shelf(folder: Path, number: int, unreadable: dict[str, Unreadable]) -> MergedShelf:
    """Merge one shelf into files; runs in a process of its own."""
    shelf = read_shelf(folder, number)
    _add_old(shelf, folder, number, unreadable)
    packed: dict[str, list[bytes]] = {name: [] for name in DOCUMENT_OF}
    weights = dict.fromkeys(packed, 0)
    kept: list[bytes] = []
    for token, (pk, gb) in shelf.taxpayers.items():
        identifier = identifier_of(token)
        key = identifier.encode()
        for name, body in published([line for _, line in pk], [line for _, line in gb]).items():
            digest = record_digest(body)
            packed[name].append(pack_row(key, body, digest))
            weights[name] += weight(identifier, digest)
        parts = dump_parts(pk, gb)
        kept += (_TWO_TEXTS(2, len(key)), key, _LENGTH(len(parts)), parts)
    return MergedShelf(
        {
            name: Rows(_written(rows, folder / f"{name}.{number:03d}"), len(rows), weights[name])
            for name, rows in packed.items()
        },
        _written(kept, folder / f"taxpayers.{number:03d}"),
        shelf.fingerprints,
        {box: pack_identifiers(map(identifier_of, tokens)) for box, tokens in shelf.tokens.items()},
    )


def _written(rows: list[bytes], path: Path) -> Path:
    path.write_bytes(b"".join(rows))
    return path


def _add_old(shelf: Shelf, folder: Path, number: int, unreadable: dict[str, Unreadable]) -> None:
    """Give everybody on the shelf what he keeps of the last run."""
    old_file = _old_shelf(folder, number)
    if not old_file.exists():
        return
    with old_file.open(encoding="utf-8") as file:
        for identifier, parts in map(json.loads, file):
            token = token_for(identifier)
            mine = shelf.taxpayers.get(token, ([], []))
            for box, kept in _still_kept(identifier, mine, load_parts(parts), unreadable):
                mine[BOXES.index(box)].append(kept)
                shelf.fingerprints[box] += kept[0]
                shelf.tokens[box].append(token)
            if any(mine):
                shelf.taxpayers[token] = mine


def _still_kept(
    identifier: str, mine: KeptLines, old: dict[str, list[Kept]], unreadable: dict[str, Unreadable]
) -> Iterator[tuple[str, Kept]]:
    for box, new in zip(BOXES, mine, strict=True):
        present = {fingerprint for fingerprint, _ in new}
        gone = [kept for kept in old[box] if kept[0] not in present]
        after = remaining(
            gone,
            {kept[0] for kept in gone},
            new,
            named=identifier in unreadable[box].named,
            anybody=unreadable[box].anybody,
        )
        yield from [(box, kept) for kept in after if kept[0] not in present]
