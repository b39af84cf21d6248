"""Parcels for tests: a street of squares, an L-shaped one, and a passive one."""

from collections.abc import Iterable
from typing import Any

from hasat.sources.tkgm.features import format_key, publish_parcels
from hasat.sources.tkgm.registry.wire import parse_parcel
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


def l_shape() -> list[list[float]]:
    """Return an L-shaped outline north of the street."""
    w, s = WEST, SOUTH + 5 * STEP
    corners = [(0, 0), (4, 0), (4, 1), (1, 1), (1, 4), (0, 4), (0, 0)]
    return [[w + x * STEP, s + y * STEP] for x, y in corners]


def street(count: int = 25) -> list[Any]:
    """Return squares from west to east, an L-shaped parcel, and a passive one."""
    squares = [parcel(number + 1, square(number)) for number in range(count)]
    return [*squares, parcel(1, l_shape(), ada="102"), parcel(9, None, ada="103")]


async def publish_features(store: Store, features: Iterable[Any]) -> None:
    """Publish parcels in the form of the registry."""
    parcels = [parse_parcel(feature) for feature in features]
    await publish_parcels(store, {format_key(one.key): one for one in parcels}, run=None)
