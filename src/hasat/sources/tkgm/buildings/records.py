"""Blocks and units as the registry sends them, and as Hasat publishes them: one record a parcel."""

from collections.abc import Mapping, Sequence
from typing import Any

from hasat.errors import BrokenAnswerError
from hasat.messages import msg
from hasat.sources.tkgm.registry.wire import ParcelKey, check_storable, parse_object

_BLOCK = ("blok", "bagimsizBolumSayisi", "zeminKmdurum", "atZeminId")
_UNIT = ("no", "kat", "giris", "tip", "nitelik", "durum")


def parse_rows(body: bytes) -> list[Mapping[str, Any]]:
    """Return the properties of the features of a response."""
    content = check_storable(parse_object(body))
    features = content.get("features")
    if not isinstance(features, list):
        raise BrokenAnswerError(msg("The registry's response is not a list of features."))
    rows = [one.get("properties") if isinstance(one, dict) else None for one in features]
    if not all(isinstance(row, dict) for row in rows):
        raise BrokenAnswerError(msg("A feature of the registry's response has no properties."))
    return [row for row in rows if row is not None]


def block_path(block: Mapping[str, Any]) -> str:
    """Return the name of a block in an address; a building without a name is 0."""
    return str(block.get("blok") or "").strip() or "0"


def build_record(
    key: ParcelKey,
    blocks: Sequence[Mapping[str, Any]],
    units: Sequence[Sequence[Mapping[str, Any]]],
) -> dict[str, Any]:
    """Return the record of a parcel: its blocks, each with its units."""
    mahalle, ada, parsel = key
    return {
        "mahalleId": mahalle,
        "adaNo": ada,
        "parselNo": parsel,
        "unitCount": sum(map(len, units)),
        "blocks": [
            {**_fields(block, _BLOCK), "units": [_fields(one, _UNIT) for one in of_block]}
            for block, of_block in zip(blocks, units, strict=True)
        ],
    }


def _fields(row: Mapping[str, Any], first: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a row in a fixed order, without those that repeat the key."""
    repeated = {"mahalleId", "adaNo", "parselNo", "blok"} - set(first)
    return {name: row.get(name) for name in first} | {
        name: row[name] for name in sorted(row) if name not in first and name not in repeated
    }
