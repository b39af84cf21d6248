"""Vector tiles: the parcels of one tile of the web map, as Mapbox Vector Tile 2.1."""

import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray
from shapely.geometry.base import BaseGeometry

from hasat.errors import UsageError
from hasat.messages import msg
from hasat.sources.tkgm.geometry import polygons_of
from hasat.sources.tkgm.selection import Box
from hasat.text import MAX_EXACT_INTEGER

MAX_ZOOM = 22
_EXTENT = 4096
_BUFFER = 64
# Of the 4,096 units of a tile: what is narrower cannot be seen.
_VISIBLE = 8.0
_POLYGON, _MOVE, _LINE, _CLOSE = 3, 1, 2, 7


@dataclass(frozen=True)
class Tile:
    """A tile of the web map, counted from the north-west."""

    z: int
    x: int
    y: int

    def __post_init__(self) -> None:
        if not (0 <= self.z <= MAX_ZOOM and 0 <= self.x < 2**self.z and 0 <= self.y < 2**self.z):
            raise UsageError(
                msg("There is no tile {z}/{x}/{y}.", z=self.z, x=self.x, y=self.y),
                remedy=msg("Zoom levels are 0 to {limit}.", limit=MAX_ZOOM),
            )

    @property
    def box(self) -> Box:
        """The tile and a margin around it, in degrees."""
        margin = _BUFFER / _EXTENT
        west, east = self._lon(self.x - margin), self._lon(self.x + 1 + margin)
        north, south = self._lat(self.y - margin), self._lat(self.y + 1 + margin)
        return Box(max(west, -180.0), south, min(east, 180.0), north)

    @property
    def least_degrees(self) -> float:
        """The longitude that the narrowest visible parcel spans."""
        return 360.0 / 2.0**self.z * _VISIBLE / _EXTENT

    def _lon(self, x: float) -> float:
        return x / 2.0**self.z * 360.0 - 180.0

    def _lat(self, y: float) -> float:
        return math.degrees(math.atan(math.sinh(math.pi * (1.0 - 2.0 * y / 2.0**self.z))))

    def place(self, lonlat: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return positions in the units of the tile, y downwards."""
        lat = np.radians(np.clip(lonlat[:, 1], -85.05, 85.05))
        x = (lonlat[:, 0] + 180.0) / 360.0
        y = (1.0 - np.arcsinh(np.tan(lat)) / np.pi) / 2.0
        scale = 2.0**self.z
        return np.column_stack((x * scale - self.x, y * scale - self.y)) * _EXTENT


def encode_tile(
    tile: Tile, parcels: Iterable[tuple[BaseGeometry, Mapping[str, Any]]], layer: str = "parcels"
) -> bytes:
    """Return a tile with one layer; parcels that vanish at this zoom are left out."""
    keys: dict[str, int] = {}
    values: dict[tuple[type, Any], int] = {}
    features = b""
    for outline, properties in parcels:
        commands = list(_commands(_in_tile(tile, outline)))
        if not commands:
            continue
        tags: list[int] = []
        for name, value in properties.items():
            if value is not None:
                tags.append(keys.setdefault(name, len(keys)))
                tags.append(values.setdefault((type(value), value), len(values)))
        feature = _bytes(2, _packed(tags)) + _number(3, _POLYGON) + _bytes(4, _packed(commands))
        features += _bytes(2, feature)
    if not features:
        return b""
    content = _number(15, 2) + _bytes(1, layer.encode()) + features
    content += b"".join(_bytes(3, name.encode()) for name in keys)
    content += b"".join(_bytes(4, _value(value)) for _, value in values)
    return _bytes(3, content + _number(5, _EXTENT))


def _in_tile(tile: Tile, outline: BaseGeometry) -> BaseGeometry:
    """Return an outline on the grid of a tile, cut at its margin."""
    placed = shapely.transform(outline, tile.place)
    side = _EXTENT + _BUFFER
    cut = shapely.clip_by_rect(shapely.make_valid(placed), -_BUFFER, -_BUFFER, side, side)
    return shapely.set_precision(shapely.make_valid(cut), 1.0)


def _commands(outline: BaseGeometry) -> Iterator[int]:
    """Yield the commands that draw the polygons of an outline; exterior rings turn clockwise."""
    at = np.zeros(2, np.int64)
    for polygon in polygons_of(outline):
        # y points down, so what shapely calls counter-clockwise is clockwise here.
        oriented = shapely.orient_polygons(polygon, exterior_cw=False)
        for ring in shapely.get_rings(oriented).tolist():
            corners = shapely.get_coordinates(ring).round().astype(np.int64)[:-1]
            before = np.vstack((at, corners[:-1]))
            steps: NDArray[np.int64] = corners - before
            yield _MOVE | 1 << 3
            yield from _zigzag(steps[:1])
            yield _LINE | (len(corners) - 1) << 3
            yield from _zigzag(steps[1:])
            yield _CLOSE | 1 << 3
            at = corners[-1]


def _zigzag(steps: NDArray[np.int64]) -> Iterator[int]:
    yield from ((steps << 1) ^ (steps >> 63)).ravel().tolist()


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _packed(numbers: Sequence[int]) -> bytes:
    return b"".join(map(_varint, numbers))


def _number(field: int, number: int) -> bytes:
    return _varint(field << 3) + _varint(number)


def _bytes(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _value(value: Any) -> bytes:
    match value:
        case bool():
            return _number(7, int(value))
        case int() if abs(value) < MAX_EXACT_INTEGER:
            return _number(6, (value << 1) ^ (value >> 63))
        case float():
            return _varint(3 << 3 | 1) + struct.pack("<d", value)
        case _:
            return _bytes(1, str(value).encode())
