"""Where in a window of unknown ground a parcel may still hide, and what speaks for and against it.

A gap is described by the largest disc that fits into it. Ground that is probably road (the disc
around a point answered with "no parcel", and the stretch between two such points in sight of each
other) is taken out first, so that a bay at the side of a road shows as a gap of its own.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hasat.sources.tkgm.coverage import Bits

TILE = 64
MARGIN = 32
WINDOW = TILE + 2 * MARGIN
# Discs are measured up to this radius; anything larger is simply open ground.
OPEN = 16
# No road is taken out with a half-width beyond this: it may as well be a field.
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
    """A point asked before, in cells of the window: a road, or a parcel told already."""

    column: int
    row: int
    road: bool


@dataclass(frozen=True)
class Gap:
    """The largest disc at a place, in cells from the tile's corner, with its surroundings."""

    column: int
    row: int
    radius: int
    width: int
    nearest_road: float
    between_roads: bool
    narrowest: int
    open_rays: int
    room: float


def find_gaps(unknown: Bits, marks: Sequence[Mark], smallest: int, apart: int) -> list[Gap]:
    """Gaps whose disc is centred in the tile in the middle of the window, widest first."""
    wide = clearance(unknown)
    free = unknown
    roads = np.array([(m.column, m.row) for m in marks if m.road], dtype=np.int64).reshape(-1, 2)
    if marks:
        free = unknown.copy()
        usual = _usual_width(wide, roads)
        for mark in marks:
            radius = int(wide[mark.row, mark.column]) if mark.road else 1
            _erase(free, mark.column, mark.row, min(radius, usual) + 1)
        _erase_stretches(free, wide, roads, 2.0 * apart, usual)
        room = clearance(free)
    else:
        room = wide
    core = room[MARGIN:-MARGIN, MARGIN:-MARGIN].copy()
    gaps = []
    while True:
        row, column = divmod(int(core.argmax()), TILE)
        radius = int(core[row, column])
        if radius < smallest:
            return gaps
        row, column = _middle(core, row, column, radius)
        gaps.append(_describe(unknown, free, wide, roads, column, row, radius))
        reach = max(radius + radius // 3, apart)
        core[max(0, row - reach) : row + reach + 1, max(0, column - reach) : column + reach + 1] = 0


def clearance(unknown: Bits) -> Bits:
    """For each cell the radius of the disc of unknown ground around it, up to `OPEN`.

    Erosion by diamonds and squares in turn makes octagons: within a few per cent of discs. The
    window is one long integer, eroded by shifting; rows run on into each other, which reaches no
    further than the margin.
    """
    depth = unknown.copy()
    left = int.from_bytes(np.packbits(unknown).tobytes(), "big")
    for step in range(1, OPEN):
        across = left & (left << 1) & (left >> 1)
        upright = across if step % 2 == 0 else left
        left = across & (upright << WINDOW | _LAST_ROW) & (upright >> WINDOW | _FIRST_ROW)
        if not left:
            break
        raw = np.frombuffer(left.to_bytes(WINDOW * WINDOW // 8, "big"), dtype=np.uint8)
        depth += np.unpackbits(raw).reshape(WINDOW, WINDOW)
    return depth


def _erase(free: Bits, column: int, row: int, radius: int) -> None:
    """Takes a disc out; one that reaches beyond the window is cut."""
    low, high = max(0, row - radius), min(WINDOW, row + radius + 1)
    left, right = max(0, column - radius), min(WINDOW, column + radius + 1)
    if low < high and left < right:
        shape = _OUTSIDE_DISC[radius]
        free[low:high, left:right] &= shape[
            low - row + radius : high - row + radius, left - column + radius : right - column + radius
        ]


def _usual_width(wide: Bits, roads: NDArray[np.int64]) -> int:
    """Half the width that roads have here: where one seems wider, a parcel may lie beside it."""
    widths = wide[roads[:, 1], roads[:, 0]]
    widths = widths[widths <= WIDEST_ROAD]
    return int(1.2 * float(np.median(widths)) + 0.5) if widths.size else 3


def _erase_stretches(
    free: Bits, wide: Bits, roads: NDArray[np.int64], longest: float, usual: int
) -> None:
    """Takes out the road between each two points that were answered empty and see each other."""
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
    """The cell amid those around that are as far from everything as this one."""
    low, left = max(0, row - radius), max(0, column - radius)
    rows, columns = np.nonzero(
        core[low : row + radius + 1, left : column + radius + 1] == radius
    )
    off = (rows - rows.sum() / rows.size) ** 2 + (columns - columns.sum() / rows.size) ** 2
    best = int(off.argmin())
    return int(rows[best]) + low, int(columns[best]) + left


def _describe(
    unknown: Bits, free: Bits, wide: Bits, roads: NDArray[np.int64], column: int, row: int, radius: int
) -> Gap:
    x, y = column + MARGIN, row + MARGIN
    rays = unknown[y + _RAY_Y, x + _RAY_X]
    reach = min(MARGIN - 1, 2 * radius + 2)
    open_rays = int(rays[:, :reach].all(axis=1).sum())
    ends = free[y + _RAY_Y, x + _RAY_X].argmin(axis=1).astype(np.float64)
    # A ray that never ends has its least element first; what it sees is cut at the margin.
    ends[(ends == 0) & (free[y + _RAY_Y[:, 0], x + _RAY_X[:, 0]] == 1)] = MARGIN
    room = float((ends + 0.5) @ (ends + 0.5)) * math.pi / len(_ANGLES)
    width = int(wide[y, x])
    nearest, between, narrowest = FAR, False, radius
    if len(roads):
        away = roads - [x, y]
        distance = np.hypot(away[:, 0], away[:, 1])
        near = distance < SIGHT
        away, distance = away[near], distance[near]
        path = np.rint([x, y] + away[:, None, :] * _ALONG[None, :, None]).astype(np.int64)
        columns, rows = path[..., 0], path[..., 1]
        seen = unknown[rows, columns].all(axis=1)
        if seen.any():
            away, distance = away[seen], distance[seen]
            k = int(distance.argmin())
            nearest = float(distance[k])
            narrowest = int(wide[rows[seen][k], columns[seen][k]].min())
            between = bool((away @ away[k] < -0.5 * distance * distance[k]).any())
    return Gap(column, row, radius, width, nearest, between, narrowest, open_rays, room)
