"""A taxpayer's parts as they are kept between runs: one line of JSON, exact to the letter."""

import json
from typing import Any

from hasat.sources.gib.records import Part

Kept = tuple[bytes, Part]
"""A part with the fingerprint of the record it was read from."""

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def dump_parts(pk: list[Kept], gb: list[Kept]) -> str:
    """The parts of both lists as text."""
    return _encode([[_plain(kept) for kept in pk], [_plain(kept) for kept in gb]])


def load_parts(text: str) -> dict[str, list[Kept]]:
    """The parts by list."""
    pk, gb = json.loads(text)
    return {"PK": [_kept(entry) for entry in pk], "GB": [_kept(entry) for entry in gb]}


def _plain(kept: Kept) -> list[Any]:
    fingerprint, part = kept
    return [fingerprint.hex(), *part]


def _kept(entry: list[Any]) -> Kept:
    fingerprint, identifier, title, type_, account, first, documents, extra, flat = entry
    part = Part(
        identifier,
        title,
        type_,
        account,
        first,
        {kind: tuple((a, t) for a, t in aliases) for kind, aliases in documents.items()},
        tuple((name, text) for name, text in extra),
        flat,
    )
    return bytes.fromhex(fingerprint), part
