"""The shelves of both lists, merged shelf by shelf into rows ready to be copied."""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from hasat.feed.copying import Chunk, pack_row
from hasat.feed.digest import record_digest, weight
from hasat.sources.gib.bulk import SHELVES, Group, groups
from hasat.sources.gib.merging import canonical_body, merge
from hasat.sources.gib.parts import Kept, dump_parts, load_parts
from hasat.sources.gib.reading import Unreadable, remaining
from hasat.sources.gib.state import BOXES, pack_identifiers

_TWO_TEXTS = struct.Struct("!hi").pack
_LENGTH = struct.Struct("!i").pack


@dataclass(frozen=True)
class MergedShelf:
    """One shelf's rows by dataset, where its kept parts lie, and whose records they are."""

    rows: dict[str, Chunk]
    taxpayers: Path
    fingerprints: dict[str, bytes]
    identifiers: dict[str, bytes]


def old_shelf(folder: Path, number: int) -> Path:
    return folder / f"old.{number:02d}"


def shelve_old(folder: Path, rows: list[tuple[str, str]]) -> None:
    """Lay kept parts of the last run beside the new ones, for those who may need them."""
    lines: dict[int, list[str]] = {}
    for identifier, parts in rows:
        number = crc32(identifier.encode()) % SHELVES
        lines.setdefault(number, []).append(json.dumps([identifier, parts]) + "\n")
    for number, batch in lines.items():
        with old_shelf(folder, number).open("a", encoding="utf-8") as file:
            file.writelines(batch)


def merge_shelf(folder: Path, number: int, unreadable: dict[str, Unreadable]) -> MergedShelf:
    """Merge one shelf; runs in a process of its own."""
    rows: dict[str, list[bytes]] = {"einvoice": [], "edespatch": []}
    weights = dict.fromkeys(rows, 0)
    kept: dict[str, list[bytes]] = {box: [] for box in BOXES}
    whose: dict[str, list[str]] = {box: [] for box in BOXES}
    target = folder / f"taxpayers.{number:02d}"
    with target.open("wb") as file:
        for group in _with_old(folder, number, unreadable):
            identifier = group.identifier
            for box, parts in zip(BOXES, (group.pk, group.gb), strict=True):
                kept[box] += [fingerprint for fingerprint, _ in parts]
                whose[box] += [identifier] * len(parts)
            taxpayer = merge([part for _, part in group.pk], [part for _, part in group.gb])
            key = identifier.encode()
            for dataset, lines in rows.items():
                body = canonical_body(taxpayer, dataset)
                if body is not None:
                    digest = record_digest(body)
                    lines.append(pack_row(key, body, digest))
                    weights[dataset] += weight(identifier, digest)
            parts_text = dump_parts(group.pk, group.gb).encode()
            file.write(_TWO_TEXTS(2, len(key)) + key + _LENGTH(len(parts_text)) + parts_text)
    return MergedShelf(
        {name: Chunk(b"".join(lines), len(lines), weights[name]) for name, lines in rows.items()},
        target,
        {box: b"".join(found) for box, found in kept.items()},
        {box: pack_identifiers(found) for box, found in whose.items()},
    )


def _with_old(folder: Path, number: int, unreadable: dict[str, Unreadable]) -> Iterator[Group]:
    """The shelf's taxpayers, each with what he keeps of the last run."""
    old_file = old_shelf(folder, number)
    if not old_file.exists():
        yield from groups(folder, number)
        return
    with old_file.open(encoding="utf-8") as file:
        old = {identifier: load_parts(parts) for identifier, parts in map(json.loads, file)}
    for group in groups(folder, number):
        yield _kept(group, old.pop(group.identifier, {}), unreadable)
    for identifier, parts in old.items():
        group = _kept(Group(identifier, [], []), parts, unreadable)
        if group.pk or group.gb:
            yield group


def _kept(group: Group, old: dict[str, list[Kept]], unreadable: dict[str, Unreadable]) -> Group:
    lists = {}
    for box, new in zip(BOXES, (group.pk, group.gb), strict=True):
        present = {fingerprint for fingerprint, _ in new}
        gone = [kept for kept in old.get(box, []) if kept[0] not in present]
        lists[box] = remaining(
            gone,
            {kept[0] for kept in gone},
            new,
            named=group.identifier in unreadable[box].named,
            anybody=unreadable[box].anybody,
        )
    return Group(group.identifier, lists["PK"], lists["GB"])
