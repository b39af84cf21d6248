"""The unknown ground of an area as a raster with one bit per cell, and the gaps in it.

A gap may hold a parcel. It is described by the largest disc that fits into it. Ground that is
probably road (the disc around an empty point, and the stretch between two empty points in sight of
each other) is erased first, so that a bay at the side of a road is a gap by itself.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import shapely
from numpy.random import Generator
from numpy.typing import NDArray
from shapely import MultiPolygon, Polygon

Bits = NDArray[np.uint8]
Box = tuple[int, int, int, int]

# A larger raster takes too much memory; the cell size is doubled until it fits.
MAX_CELLS = 2_000_000_000
# Cells filled at once.
MAX_FILLED = 32_000_000


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
        self.unknown_cells = int(self._counts().sum())
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

    def random_unknown(self, count: int, dice: Generator) -> list[tuple[float, float]]:
        """Return points in metres that are uniform in the unknown ground."""
        some = self._counts()
        if not some.any():
            return []
        points = []
        for row in dice.choice(self.rows, size=count, p=some / some.sum()).tolist():
            column = int(dice.choice(np.flatnonzero(np.unpackbits(self._bits[row]))))
            east, north = (dice.random(2) - 0.5).tolist()
            points.append(self.metres_of(column + east, row + north))
        return points

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

    def _counts(self) -> NDArray[np.int64]:
        """Return the unknown cells of each row."""
        band = max(1, MAX_FILLED // self.columns)
        return np.concatenate(
            [
                np.bitwise_count(self._bits[row : row + band]).sum(axis=1, dtype=np.int64)
                for row in range(0, self.rows, band)
            ]
        )

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
            band = max(1, MAX_FILLED // (width * 8))
            for bottom in range(int(low[1]), int(high[1]), band):
                rows = min(band, int(high[1]) - bottom)
                corner = [first * 8, bottom]
                inside = _fill(starts - corner, ends - corner, width * 8, rows)
                self._set(np.packbits(inside, axis=1), first, bottom, unknown)
        return (int(low[0]), int(low[1]), int(high[0]), int(high[1]))

    def _set(self, packed: Bits, first: int, bottom: int, unknown: bool) -> None:
        """Mark the cells of a block of the raster as unknown, or as known."""
        height, width = packed.shape
        view = self._bits[bottom : bottom + height, first : first + width]
        if unknown:
            view |= packed
        else:
            gone = view & packed
            self.unknown_cells -= int(np.bitwise_count(gone).sum(dtype=np.int64))
            view ^= gone


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


TILE = 64
MARGIN = 32
WINDOW = TILE + 2 * MARGIN
# Discs are measured up to this radius; anything larger is open ground.
OPEN = 16
# Wider ground than this is not erased as road: it may as well be a field.
WIDEST_ROAD = 12
SIGHT = 60.0
FAR = 200.0

_ANGLES = np.arange(16) * (2 * math.pi / 16)
_STEPS = np.arange(1, MARGIN)
_RAY_X = np.rint(np.cos(_ANGLES)[:, None] * _STEPS).astype(np.int64)
_RAY_Y = np.rint(np.sin(_ANGLES)[:, None] * _STEPS).astype(np.int64)
_LAST_ROW = (1 << WINDOW) - 1
_FIRST_ROW = _LAST_ROW << WINDOW * (WINDOW - 1)
_ALONG = np.linspace(0.0, 1.0, 25)[1:]


def _disc(radius: int) -> Bits:
    span = np.arange(-radius, radius + 1)
    inside = span[:, None] ** 2 + span[None, :] ** 2 <= (radius + 0.5) ** 2
    return (~inside).astype(np.uint8)


_OUTSIDE_DISC = [_disc(radius) for radius in range(WIDEST_ROAD + 5)]


@dataclass(frozen=True)
class Mark:
    """A queried point, in cells of the window: a road, or in a known parcel."""

    column: int
    row: int
    road: bool


@dataclass(frozen=True)
class Gap:
    """The largest disc at a place, in cells from the corner of the tile, with its surroundings."""

    column: int
    row: int
    radius: int
    width: int
    nearest_road: float
    between_roads: bool
    open_rays: int
    free_area: float
    usual: int
    hidden: bool


def find_gaps(unknown: Bits, marks: Sequence[Mark], smallest: int, apart: int) -> list[Gap]:
    """Return the gaps whose disc is centred in the middle tile of the window, widest first.

    Gaps in erased roads come after the others: they are unlikely, not impossible.
    """
    wide = clearance(unknown)
    roads = np.array([(m.column, m.row) for m in marks if m.road], dtype=np.int64).reshape(-1, 2)
    usual = _usual_width(wide, roads)
    free, free_radii = unknown, wide
    if marks:
        free = unknown.copy()
        for mark in marks:
            radius = int(wide[mark.row, mark.column]) if mark.road else 1
            # Open ground that is empty here is likely empty around, but not for a certain distance.
            radius = min(radius, usual) if radius <= WIDEST_ROAD else radius * 3 // 5
            _erase(free, mark.column, mark.row, radius + 1)
        _erase_stretches(free, wide, roads, 2.0 * apart, usual)
        free_radii = clearance(free)
    around = _Surroundings(unknown, free, wide, roads, usual)
    core = free_radii[MARGIN:-MARGIN, MARGIN:-MARGIN].copy()
    places = _widest(core, smallest, apart)
    gaps = around.describe(places, hidden=False)
    if marks:
        core = wide[MARGIN:-MARGIN, MARGIN:-MARGIN].copy()
        for column, row, radius in places:
            _blank(core, column, row, _reach(radius, apart))
        for mark in marks:
            radius = max(2, int(0.7 * wide[mark.row, mark.column]))
            _blank(core, mark.column - MARGIN, mark.row - MARGIN, radius)
        gaps += around.describe(_widest(core, smallest, apart), hidden=True)
    return gaps


def _widest(core: Bits, smallest: int, apart: int) -> list[tuple[int, int, int]]:
    """Return column, row and radius of the discs in the tile, which the search consumes."""
    places: list[tuple[int, int, int]] = []
    while True:
        row, column = divmod(int(core.argmax()), TILE)
        radius = int(core[row, column])
        if radius < smallest:
            return places
        row, column = _middle(core, row, column, radius)
        places.append((column, row, radius))
        _blank(core, column, row, _reach(radius, apart))


def _reach(radius: int, apart: int) -> int:
    return max(radius + radius // 3, apart) if radius < OPEN else TILE // 2


def _blank(core: Bits, column: int, row: int, reach: int) -> None:
    core[
        max(0, row - reach) : max(0, row + reach + 1),
        max(0, column - reach) : max(0, column + reach + 1),
    ] = 0


def clearance(unknown: Bits) -> Bits:
    """Return for each cell the radius of the disc of unknown ground around it, up to `OPEN`.

    Erosion by diamonds and squares in turn makes octagons: within a few per cent of discs. The
    window is one long integer, eroded by shifting; rows run on into each other, which reaches no
    further than the margin.
    """
    left = int.from_bytes(np.packbits(unknown).tobytes(), "big")
    # The depth of all cells at once, as binary digits: digits[k] holds the k-th bit of each.
    digits = [left] + [0] * (OPEN.bit_length() - 1)
    for step in range(1, OPEN):
        across = left & (left << 1) & (left >> 1)
        upright = across if step % 2 == 0 else left
        left = across & (upright << WINDOW | _LAST_ROW) & (upright >> WINDOW | _FIRST_ROW)
        if not left:
            break
        carry = left
        for k, digit in enumerate(digits):
            digits[k] = digit ^ carry
            carry &= digit
            if not carry:
                break
    depth = np.zeros(WINDOW * WINDOW, dtype=np.uint8)
    for k, digit in enumerate(digits):
        if digit:
            raw = np.frombuffer(digit.to_bytes(WINDOW * WINDOW // 8, "big"), dtype=np.uint8)
            depth |= np.unpackbits(raw) << k
    return depth.reshape(WINDOW, WINDOW)


def _erase(free: Bits, column: int, row: int, radius: int) -> None:
    """Erase a disc, clipped to the window."""
    low, high = max(0, row - radius), min(WINDOW, row + radius + 1)
    left, right = max(0, column - radius), min(WINDOW, column + radius + 1)
    if low < high and left < right:
        shape = _OUTSIDE_DISC[radius]
        free[low:high, left:right] &= shape[
            low - row + radius : high - row + radius,
            left - column + radius : right - column + radius,
        ]


def _usual_width(wide: Bits, roads: NDArray[np.int64]) -> int:
    """Return half the usual width of roads here; a wider one may have a parcel at its side."""
    widths = wide[roads[:, 1], roads[:, 0]]
    widths = widths[widths <= WIDEST_ROAD]
    return max(1, int(1.2 * float(np.median(widths)) + 0.5)) if widths.size else 3


def _erase_stretches(
    free: Bits, wide: Bits, roads: NDArray[np.int64], longest: float, usual: int
) -> None:
    """Erase the road between every two empty points in sight of each other."""
    if len(roads) < 2:
        return
    first, second = np.triu_indices(len(roads), 1)
    away = roads[second] - roads[first]
    length = np.hypot(away[:, 0], away[:, 1])
    near = (length <= longest) & (length > 2)
    first, away, length = first[near], away[near], length[near]
    if not len(first):
        return
    path = np.rint(roads[first][:, None, :] + away[:, None, :] * _ALONG[None, :, None])
    columns, rows = path[..., 0].astype(np.int64), path[..., 1].astype(np.int64)
    widths = wide[rows, columns]
    least = widths.min(axis=1)
    most = widths.max(axis=1)
    for index in np.flatnonzero((least >= 1) & (least * 2 >= most) & (most <= WIDEST_ROAD)):
        stride = max(1, int(len(_ALONG) * 3 / length[index]))
        for k in range(0, len(_ALONG), stride):
            radius = min(int(widths[index, k]), usual) + 1
            _erase(free, int(columns[index, k]), int(rows[index, k]), radius)


def _middle(core: Bits, row: int, column: int, radius: int) -> tuple[int, int]:
    """Return the middle one of the cells around with the same radius."""
    low, left = max(0, row - radius), max(0, column - radius)
    rows, columns = np.nonzero(core[low : row + radius + 1, left : column + radius + 1] == radius)
    off = (rows - rows.sum() / rows.size) ** 2 + (columns - columns.sum() / rows.size) ** 2
    best = int(off.argmin())
    return int(rows[best]) + low, int(columns[best]) + left


@dataclass(frozen=True)
class _Surroundings:
    """A window: its unknown ground, the same without roads, the clearance, and the roads."""

    unknown: Bits
    free: Bits
    wide: Bits
    roads: NDArray[np.int64]
    usual: int

    def describe(self, places: list[tuple[int, int, int]], *, hidden: bool) -> list[Gap]:
        """Return the gaps at places of column, row and radius."""
        if not places:
            return []
        place = np.array(places)
        x, y, radius = place[:, 0] + MARGIN, place[:, 1] + MARGIN, place[:, 2]
        columns, rows = x[:, None, None] + _RAY_X, y[:, None, None] + _RAY_Y
        ahead = _run(self.unknown[rows, columns])
        open_rays = (ahead >= np.minimum(MARGIN - 1, 2 * radius + 2)[:, None]).sum(axis=1)
        if not hidden and self.free is not self.unknown:
            ahead = _run(self.free[rows, columns])
        free_area = ((ahead + 0.5) ** 2).sum(axis=1) * (math.pi / len(_ANGLES))
        nearest, between = self._see_roads(x, y)
        return [
            Gap(column, row, disc, width, road, roads, rays, area, self.usual, hidden)
            for column, row, disc, width, road, roads, rays, area in zip(
                place[:, 0].tolist(),
                place[:, 1].tolist(),
                radius.tolist(),
                self.wide[y, x].tolist(),
                nearest.tolist(),
                between.tolist(),
                open_rays.tolist(),
                free_area.tolist(),
                strict=True,
            )
        ]

    def _see_roads(
        self, x: NDArray[np.int64], y: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return the distance of the nearest road in sight, and whether one lies opposite."""
        if not len(self.roads):
            return np.full(len(x), FAR), np.zeros(len(x), dtype=bool)
        here = np.stack([x, y], axis=1)
        away = self.roads[None, :, :] - here[:, None, :]
        distance = np.hypot(away[..., 0], away[..., 1])
        path = np.rint(here[:, None, None, :] + away[:, :, None, :] * _ALONG[:, None])
        columns, rows = path[..., 0].astype(np.int64), path[..., 1].astype(np.int64)
        seen = self.unknown[rows, columns].all(axis=2) & (distance < SIGHT)
        distance = np.where(seen, distance, FAR)
        each = np.arange(len(x))
        closest = distance.argmin(axis=1)
        nearest = distance[each, closest]
        same_way = (away * away[each, closest][:, None, :]).sum(axis=2)
        return nearest, (seen & (same_way < -0.5 * distance * nearest[:, None])).any(axis=1)


def _run(rays: Bits) -> NDArray[np.int64]:
    """Return how many cells from the start of each ray are set."""
    ends: NDArray[np.int64] = rays.argmin(axis=-1)
    ends[(ends == 0) & (rays[..., 0] == 1)] = rays.shape[-1]
    return ends
