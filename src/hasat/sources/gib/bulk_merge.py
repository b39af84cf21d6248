"""The shelves of both lists, merged shelf by shelf into rows ready to be copied."""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hasat.feed.encoding import pack_row, record_digest, weight
from hasat.sources.gib.bulk import KeptLines, Shelf, read_shelf, shelf_of
from hasat.sources.gib.fingerprints import pack_identifiers
from hasat.sources.gib.lines import identifier_of, published, token_for
from hasat.sources.gib.merging import DOCUMENT_OF
from hasat.sources.gib.parts import BOXES, Kept, dump_parts, load_parts
from hasat.sources.gib.reading import Unreadable, remaining

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
