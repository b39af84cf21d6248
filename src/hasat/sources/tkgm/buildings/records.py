"""Blocks and units as the registry sends them, and as Hasat publishes them: one record a parcel."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

from hasat.errors import BrokenAnswerError
from hasat.messages import msg
from hasat.sources.tkgm.registry.wire import ParcelKey, check_storable, parse_object

Row = Mapping[str, Any]

_BLOCKS = "/parsel/blok/"
_BLOCK = ("blok", "bagimsizBolumSayisi", "zeminKmdurum", "atZeminId")
_UNIT = ("no", "kat", "giris", "tip", "nitelik", "durum")


def parse_rows(body: bytes) -> list[Row]:
    """Return the properties of the features of a response."""
    content = check_storable(parse_object(body))
    features = content.get("features")
    if not isinstance(features, list):
        raise BrokenAnswerError(msg("The registry's response is not a list of features."))
    rows = [one.get("properties") if isinstance(one, dict) else None for one in features]
    if not all(isinstance(row, dict) for row in rows):
        raise BrokenAnswerError(msg("A feature of the registry's response has no properties."))
    return [row for row in rows if row is not None]


def blocks_path(key: ParcelKey) -> str:
    """Return the path of the list of a parcel's blocks."""
    return f"{_BLOCKS}{_path(key)}"


def units_path(key: ParcelKey, block: Row) -> str:
    """Return the path of the units of a block; the registry calls one without a name 0."""
    name = str(block.get("blok") or "").strip() or "0"
    return f"/parsel/bagimsizbolum/{_path(key)}/{quote(name, safe='')}"


def parcel_listed(path: str) -> ParcelKey | None:
    """Return the parcel whose blocks a path lists; None for a path of units."""
    if not path.startswith(_BLOCKS):
        return None
    mahalle, ada, parsel = (unquote(part) for part in path.removeprefix(_BLOCKS).split("/"))
    return int(mahalle), ada, parsel


def _path(key: ParcelKey) -> str:
    return "/".join(quote(str(part), safe="") for part in key)


def build_record(
    key: ParcelKey,
    blocks: Sequence[Row],
    units: Sequence[Sequence[Row]],
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
