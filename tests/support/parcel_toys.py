"""Parcels for tests: a street of squares, one bent around a corner, one that is passive."""

from collections.abc import Iterable
from typing import Any

from hasat.sources.tkgm.features import key_text, publish
from hasat.sources.tkgm.registry.wire import Registered, read_feature
from hasat.store import Store

WEST, SOUTH, STEP = 32.85, 39.9, 0.001
NEIGHBOURHOOD = 1162


def parcel(number: int, outline: list[list[float]] | None, ada: str = "101", **more: Any) -> Any:
    geometry = None if outline is None else {"type": "Polygon", "coordinates": [outline]}
    return {
        "type": "Feature",
        "geometry": geometry,
        "properties": {
            "mahalleId": NEIGHBOURHOOD,
            "adaNo": ada,
            "parselNo": str(number),
            "mahalleAd": "Remzi Oğuz Arık",
            "nitelik": "Arsa",
            "alan": "9,500.00",
            "durum": "1" if outline else "0",
            **more,
        },
    }


def square(column: int, row: int = 0, size: float = STEP) -> list[list[float]]:
    west, south = WEST + column * STEP, SOUTH + row * STEP
    east, north = west + size, south + size
    return [[west, south], [east, south], [east, north], [west, north], [west, south]]


def corner() -> list[list[float]]:
    """North of the street, bent around a piece of ground that belongs to nobody."""
    w, s = WEST, SOUTH + 5 * STEP
    ways = [(0, 0), (4, 0), (4, 1), (1, 1), (1, 4), (0, 4), (0, 0)]
    return [[w + x * STEP, s + y * STEP] for x, y in ways]


def street(count: int = 25) -> list[Any]:
    """So many squares from west to east, the bent one, and one without ground."""
    squares = [parcel(number + 1, square(number)) for number in range(count)]
    return [*squares, parcel(1, corner(), ada="102"), parcel(9, None, ada="103")]


async def publish_features(store: Store, features: Iterable[Any]) -> None:
    told: dict[str, Registered] = {}
    for feature in features:
        found = read_feature(feature)
        told[key_text(found.key)] = found
    await publish(store, told, run=None)
