"""The unknown ground of an area as a raster with one bit per cell."""

from collections.abc import Iterator

import numpy as np
import shapely
from numpy.typing import NDArray
from shapely import MultiPolygon, Polygon

Bits = NDArray[np.uint8]
Box = tuple[int, int, int, int]

# A larger raster takes too much memory; the cell size is doubled until it fits.
MAX_CELLS = 3_000_000_000


class Coverage:
    """The unknown ground of an area, in cells of about a metre; columns east, rows north.

    A cell is unknown while its centre lies in the area and in no known parcel.
    """

    def __init__(self, area: Polygon | MultiPolygon, margin: int) -> None:
        west, south, east, north = area.bounds
        self.cell = 1.0
        while (east - west) * (north - south) / self.cell**2 > MAX_CELLS:
            self.cell *= 2
        self.west = west - margin * self.cell
        self.south = south - margin * self.cell
        self.rows = int((north - south) / self.cell) + 2 * margin + 1
        self.columns = (int((east - west) / self.cell) + 2 * margin + 8) // 8 * 8
        self._bits: Bits = np.zeros((self.rows, self.columns // 8), dtype=np.uint8)
        self._apply(area, unknown=True)
        self.unknown_cells = int(np.bitwise_count(self._bits).sum(dtype=np.int64))
        self.area_cells = self.unknown_cells

    def cells_of(self, xy: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return column and row of points in metres."""
        return np.floor((xy - [self.west, self.south]) / self.cell).astype(np.int64)

    def metres_of(self, column: float, row: float) -> tuple[float, float]:
        """Return the centre of a cell in metres."""
        return (
            self.west + (column + 0.5) * self.cell,
            self.south + (row + 0.5) * self.cell,
        )

    def cover(self, geometry: Polygon | MultiPolygon) -> Box:
        """Mark the ground of a parcel as known; return the first column and row, and the last."""
        return self._apply(geometry, unknown=False)

    def window(self, column: int, row: int, width: int, height: int) -> Bits:
        """Return a window of the raster: 1 where unknown, 0 elsewhere and outside the raster."""
        out = np.zeros((height, width), dtype=np.uint8)
        left, right = max(column, 0), min(column + width, self.columns)
        low, high = max(row, 0), min(row + height, self.rows)
        if left < right and low < high:
            first = left // 8
            bits = np.unpackbits(self._bits[low:high, first : (right + 7) // 8], axis=1)
            out[low - row : high - row, left - column : right - column] = bits[
                :, left - first * 8 : right - first * 8
            ]
        return out

    def any_in(self, column: int, row: int, size: int) -> bool:
        """Return whether a square has unknown ground; `column` and `size` are multiples of 8."""
        rows = slice(max(row, 0), max(row + size, 0))
        columns = slice(max(column // 8, 0), max((column + size) // 8, 0))
        return bool(self._bits[rows, columns].any())

    def tiles(self, size: int) -> Iterator[tuple[int, int]]:
        """Yield column and row of tiles with unknown ground; `size` is a multiple of 8."""
        for row in range(0, self.rows, size):
            some = self._bits[row : row + size].any(axis=0)
            for column in np.unique(np.flatnonzero(some) * 8 // size).tolist():
                yield (column, row // size)

    def _apply(self, geometry: Polygon | MultiPolygon, *, unknown: bool) -> Box:
        starts, ends = _edges(geometry)
        origin = np.array([self.west, self.south])
        starts, ends = (starts - origin) / self.cell, (ends - origin) / self.cell
        low = np.clip(np.floor(starts.min(axis=0)), 0, [self.columns, self.rows]).astype(int)
        high = np.clip(np.ceil(starts.max(axis=0)), 0, [self.columns, self.rows]).astype(int)
        first = int(low[0]) // 8
        width = (int(high[0]) + 7) // 8 - first
        height = int(high[1] - low[1])
        if width > 0 and height > 0:
            inside = _fill(
                starts - [first * 8, low[1]], ends - [first * 8, low[1]], width * 8, height
            )
            packed = np.packbits(inside, axis=1)
            view = self._bits[int(low[1]) : int(high[1]), first : first + width]
            if unknown:
                view |= packed
            else:
                gone = view & packed
                self.unknown_cells -= int(np.bitwise_count(gone).sum(dtype=np.int64))
                view ^= gone
        return (int(low[0]), int(low[1]), int(high[0]), int(high[1]))


def spread(column: int, row: int) -> float:
    """Return a number in [0, 1) whose highest values form an even, ever finer pattern."""
    value, weight = 0.0, 0.5
    for _ in range(12):
        # The order of the quarters matters little; diagonal ones are farthest apart.
        value += weight * ((column ^ row) & 1) + weight / 2 * (row & 1)
        column, row, weight = column >> 1, row >> 1, weight / 4
    return value


def _edges(
    geometry: Polygon | MultiPolygon,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return starts and ends of all edges of all rings, holes included."""
    rings = shapely.get_rings(shapely.get_parts(geometry))
    xy, ring = shapely.get_coordinates(rings, return_index=True)
    same = ring[1:] == ring[:-1]
    return xy[:-1][same], xy[1:][same]


def _fill(starts: NDArray[np.float64], ends: NDArray[np.float64], width: int, height: int) -> Bits:
    """Return 1 in cells whose centre is inside by the even-odd rule, which handles holes."""
    flipped = starts[:, 1] > ends[:, 1]
    low = np.where(flipped[:, None], ends, starts)
    high = np.where(flipped[:, None], starts, ends)
    first = np.clip(np.ceil(low[:, 1] - 0.5), 0, height).astype(np.int64)
    last = np.clip(np.ceil(high[:, 1] - 0.5), 0, height).astype(np.int64)
    count = last - first
    edge = np.repeat(np.arange(len(count)), count)
    row = np.arange(len(edge)) - np.repeat(np.cumsum(count) - count, count) + first[edge]
    slope = (high[edge, 0] - low[edge, 0]) / (high[edge, 1] - low[edge, 1])
    crossing = low[edge, 0] + (row + 0.5 - low[edge, 1]) * slope
    column = np.clip(np.ceil(crossing - 0.5), 0, width).astype(np.int64)
    toggles = np.zeros((height, width + 1), dtype=np.uint8)
    np.bitwise_xor.at(toggles, (row, column), 1)
    return np.bitwise_xor.accumulate(toggles[:, :-1], axis=1)
