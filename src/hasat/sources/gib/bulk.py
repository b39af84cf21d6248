"""Both lists at once, for a first run: grouped by taxpayer on disk, in bounded memory.

Neither list is sorted and both together do not fit into memory. So the lists are read by several
processes, which lay the line of every record on one of many shelves (files) by its identifier;
then shelf by shelf, in any process, the lines of a taxpayer are together.
"""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

from hasat.sources.gib.errors import ListError
from hasat.sources.gib.fingerprints import SIZE
from hasat.sources.gib.lines import token_of
from hasat.sources.gib.opening import ListFile, open_list
from hasat.sources.gib.parts import BOXES, Kept
from hasat.sources.gib.records import SetAside
from hasat.sources.gib.splitting import Batch, ReachesOnError, Reader, Tally, conclude, settled

MOST_SHELVES = 256
# Few enough to be written out while the processor's cache still holds them.
_IN_MEMORY = 1_000
_LENGTH = 4
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
        sizes = (len(prints).to_bytes(_LENGTH, "big"), len(lines).to_bytes(_LENGTH, "big"))
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
            while sizes := shelf.read(2 * _LENGTH):
                some = shelf.read(int.from_bytes(sizes[:_LENGTH], "big"))
                text = shelf.read(int.from_bytes(sizes[_LENGTH:], "big"))
                if some:
                    prints.append(some)
                    lines += text.split(b"\n")
    return b"".join(prints), lines
