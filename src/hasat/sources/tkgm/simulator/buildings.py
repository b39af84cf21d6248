"""Blocks and building units of simulated condominiums, derived from their numbers."""

import zlib
from typing import Any

from hasat.sources.tkgm.simulator.cadastre import CadastreParcel

_FLOORS = ("Zemin", "1", "2", "3")


def blocks_of(parcel: CadastreParcel) -> list[dict[str, Any]]:
    """Return the blocks of a parcel; none unless it is a condominium."""
    if not parcel.is_condominium:
        return []
    names = ("A", "B") if _seed(parcel) % 3 == 0 else ("",)
    return [
        {
            "blok": name,
            "bagimsizBolumSayisi": len(units_of(parcel, name)),
            "zeminKmdurum": "Kat Mülkiyeti",
            "atZeminId": 20_000_000_000 + _seed(parcel) + number,
            "mahalleId": parcel.mahalle_id,
            "adaNo": parcel.ada,
            "parselNo": parcel.parsel,
        }
        for number, name in enumerate(names)
    ]


def units_of(parcel: CadastreParcel, block: str) -> list[dict[str, Any]]:
    """Return the units of a block."""
    floors = _FLOORS[: 2 + (_seed(parcel) + len(block)) % 3]
    return [
        {
            "no": str(2 * level + side + 1),
            "kat": floor,
            "giris": "",
            "tip": "Bağımsız Bölüm",
            "nitelik": "Dükkan" if level == 0 else "Mesken",
            "blok": block,
            "durum": "1",
        }
        for level, floor in enumerate(floors)
        for side in range(2)
    ]


def collection(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return rows in the form of the registry: features without a geometry."""
    features = [{"type": "Feature", "geometry": None, "properties": row} for row in rows]
    return {"type": "FeatureCollection", "features": features}


def _seed(parcel: CadastreParcel) -> int:
    return zlib.crc32(f"{parcel.ada}/{parcel.parsel}".encode()) % 100_000
