"""The candidates of a scan: gaps in the known ground, tile by tile, ranked together.

A change only marks the tiles around it as stale; their gaps are searched again when the planner
needs them, so that a batch of responses costs no more than a few searches.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import shapely
from numpy.typing import NDArray
from shapely import MultiPolygon, Polygon

from hasat.sources.tkgm.geometry import Outline, Plane
from hasat.sources.tkgm.registry.wire import ParcelKey
from hasat.sources.tkgm.scan.coverage import (
    FAR,
    MARGIN,
    OPEN,
    TILE,
    WINDOW,
    Box,
    Coverage,
    Gap,
    Mark,
    find_gaps,
    spread,
)
from hasat.sources.tkgm.scan.likelihood import (
    PRIOR_WEIGHTS,
    LikelihoodModel,
    Vector,
    gap_features,
    likelihoods,
)
from hasat.sources.tkgm.scan.numbering import Block, Numbering, Run, Tile

# A gap likelier than this is as good as any other such; the widest goes first.
LIKELY = 0.6
# Gaps less likely than this are not reported as unknown.
_MIN_UNKNOWN = 0.01
_COLUMNS = ("features", "places", "radii", "spacing", "ranks", "shares", "chances", "alive")


@dataclass(frozen=True)
class UnknownArea:
    """An area in degrees that may still hold a parcel, and how likely it does.

    Or the place between the neighbours of missing `numbers` of a block, without a likelihood.
    """

    geometry: Outline
    chance: float | None
    numbers: str | None = None


class Candidates:
    """Gaps by the tile in which they lie; the gaps of a tile are replaced together."""

    def __init__(self, width: int) -> None:
        self.features: NDArray[np.float64] = np.zeros((1024, width))
        self.places: NDArray[np.int32] = np.zeros((1024, 2), dtype=np.int32)
        self.radii: NDArray[np.float32] = np.zeros(1024, dtype=np.float32)
        self.spacing: NDArray[np.float32] = np.zeros(1024, dtype=np.float32)
        self.ranks: NDArray[np.float32] = np.zeros(1024, dtype=np.float32)
        self.shares: NDArray[np.float32] = np.ones(1024, dtype=np.float32)
        self.chances: NDArray[np.float64] = np.zeros(1024)
        self.alive: NDArray[np.bool_] = np.zeros(1024, dtype=bool)
        self.tiles: list[Tile] = [(0, 0)] * 1024
        self.runs: list[Run | None] = [None] * 1024
        self.top = 0
        self._free: list[int] = []
        self._slots: dict[Tile, list[int]] = {}

    def drop(self, tile: Tile) -> None:
        """Remove the gaps of a tile."""
        for slot in self._slots.pop(tile, ()):
            self.alive[slot] = False
            self.chances[slot] = 0.0
            self._free.append(slot)

    def replace(
        self,
        tile: Tile,
        features: Sequence[Sequence[float]],
        places: Sequence[tuple[int, int]],
        radii: Sequence[float],
        spacing: float,
        rank: float,
        share: float,
        weights: Vector,
        runs: Sequence[Run | None] = (),
    ) -> None:
        """Replace the gaps of a tile; `share` scales the chances of gaps in barren ground."""
        self.drop(tile)
        slots = [self._allocate() for _ in places]
        if slots:
            self._slots[tile] = slots
            self.features[slots] = features
            self.places[slots] = places
            self.radii[slots] = radii
            self.spacing[slots] = spacing
            self.ranks[slots] = rank
            self.shares[slots] = share
            self.chances[slots] = likelihoods(self.features[slots], weights) * share
            self.alive[slots] = True
            for index, slot in enumerate(slots):
                self.tiles[slot] = tile
                self.runs[slot] = runs[index] if runs else None

    def reweigh(self, weights: Vector) -> None:
        """Recompute all chances with new weights."""
        every = likelihoods(self.features[: self.top], weights) * self.shares[: self.top]
        self.chances[: self.top] = np.where(self.alive[: self.top], every, 0.0)

    def best(self, count: int) -> NDArray[np.intp]:
        """Return the best slots, best first: likely ones by width, the rest by chance."""
        chance = self.chances[: self.top]
        likely = chance >= LIKELY
        merit = np.where(likely, 1 + self.radii[: self.top] + self.ranks[: self.top], chance)
        count = min(count, self.top)
        best = np.argpartition(-merit, count - 1)[:count] if count else np.zeros(0, dtype=np.intp)
        best = best[merit[best] > 0.0]
        return best[np.argsort(-merit[best], kind="stable")]

    def unknown_areas(self, coverage: Coverage, plane: Plane) -> list[UnknownArea]:
        """Return the areas of gaps that may hold a parcel, likeliest first.

        Gaps that touch each other form one area.
        """
        slots = np.flatnonzero(self.chances[: self.top] >= _MIN_UNKNOWN)
        if not slots.size:
            return []
        centres = (self.places[slots] + 0.5) * coverage.cell + [coverage.west, coverage.south]
        # A gap in open ground stands for its whole tile.
        is_open = self.radii[slots] >= OPEN
        reach = np.where(is_open, TILE / 2, self.radii[slots]) * coverage.cell
        places = shapely.points(centres)
        shapes = np.where(
            is_open,
            shapely.buffer(places, reach, cap_style="square"),
            shapely.buffer(places, reach),
        )
        areas = shapely.get_parts(shapely.union_all(shapes))
        place, area = shapely.STRtree(areas).query(places, predicate="intersects")
        empty = np.ones(len(areas))
        np.multiply.at(empty, area, 1.0 - self.chances[slots][place])
        found = [
            UnknownArea(plane.to_degrees(one), float(1.0 - rest))
            for one, rest in zip(areas.tolist(), empty.tolist(), strict=True)
        ]
        return sorted(found, key=lambda one: -(one.chance or 0.0))

    def _allocate(self) -> int:
        if self._free:
            return self._free.pop()
        if self.top == len(self.alive):
            for name in _COLUMNS:
                old = getattr(self, name)
                setattr(self, name, np.concatenate([old, np.zeros_like(old)]))
            self.runs += [None] * len(self.runs)
            self.tiles += [(0, 0)] * len(self.tiles)
        self.top += 1
        return self.top - 1


# Gaps are at least this many cells apart.
MIN_APART = 4
# A parcel gives hints for gaps up to this far away.
HINT_CELLS = 24
# The side of a parcel before any is known, in metres.
FIRST_SCALE = 20.0
# Empty points in open ground lower the likelihood of parcels this many tiles around.
BARREN_REACH = 4
# From this many empty points on, and without a known parcel next to it, a tile gets only one
# candidate that counts for less: parcels in open country lie together.
BARREN = 2


class Terrain:
    """The ground of an area in metres, and its candidates."""

    def __init__(
        self,
        area: Polygon | MultiPolygon,
        smallest_gap: int,
        spacing: float,
        model: LikelihoodModel,
        numbering: Numbering,
    ) -> None:
        self.coverage = Coverage(area, MARGIN)
        self.candidates = Candidates(len(PRIOR_WEIGHTS))
        self.stale: dict[Tile, None] = {}
        """Tiles whose candidates may be out of date."""
        self._smallest_gap = smallest_gap
        self._spacing = spacing
        self._model = model
        self._numbering = numbering
        self._changed: dict[Tile, None] = {}
        self._marks: dict[Tile, list[tuple[int, int, bool]]] = {}
        self._open_empty: dict[Tile, int] = {}
        self._scales: dict[Tile, tuple[int, float]] = {}
        self._blocks: dict[Tile, set[Block]] = {}
        self._parcels = 0
        self._scale_sum = 0.0
        self._add_open_tiles()

    @property
    def scale(self) -> float:
        """The side of a square with the geometric mean area of the parcels."""
        return math.exp(self._scale_sum / self._parcels) if self._parcels else FIRST_SCALE

    def cover(self, ground: Polygon | MultiPolygon, key: ParcelKey) -> None:
        """Mark the ground of a parcel as known."""
        box = self.coverage.cover(ground)
        self._touch(box)
        tile = _tile((box[0] + box[2]) // 2, (box[1] + box[3]) // 2)
        count, total = self._scales.get(tile, (0, 0.0))
        side = math.log(max(3.0, math.sqrt(float(ground.area))))
        self._scales[tile] = (count + 1, total + side)
        self._scale_sum += side
        self._parcels += 1
        self._blocks.setdefault(tile, set()).add(key[:2])
        for near in self._numbering.add(key, ground, _tiles_near(box, HINT_CELLS)):
            if self.coverage.any_in(near[0] * TILE, near[1] * TILE, TILE):
                self.stale[near] = None

    def mark(self, column: int, row: int, *, road: bool, in_the_open: bool) -> None:
        """Mark a place that stays unknown after its query.

        An empty place is a road; in open ground it lowers the likelihood of parcels around.
        """
        tile = _tile(column, row)
        self._marks.setdefault(tile, []).append((column, row, road))
        self._touch((column, row, column, row))
        if road and in_the_open:
            self._open_empty[tile] = self._open_empty.get(tile, 0) + 1
            for near in _around(tile, BARREN_REACH):
                if self.coverage.any_in(near[0] * TILE, near[1] * TILE, TILE):
                    self.stale[near] = None

    def update(self, tile: Tile) -> None:
        """Search the gaps of a tile again."""
        self.stale.pop(tile, None)
        self._changed.pop(tile, None)
        column, row = tile[0] * TILE, tile[1] * TILE
        unknown = self.coverage.window(column - MARGIN, row - MARGIN, WINDOW, WINDOW)
        if not unknown[MARGIN:-MARGIN, MARGIN:-MARGIN].any():
            self.candidates.drop(tile)
            return
        marks = [
            Mark(c - column + MARGIN, r - row + MARGIN, road)
            for near in _around(tile)
            for c, r, road in self._marks.get(near, ())
            if abs(c - column - TILE // 2) < WINDOW // 2 and abs(r - row - TILE // 2) < WINDOW // 2
        ]
        scale = self._scale_at(tile)
        sealed, barren = self._sealed(tile), self._barren(tile)
        apart = min(20, max(MIN_APART, int(self._spacing * scale / self.coverage.cell)))
        if barren >= BARREN:
            apart = TILE
        gaps = find_gaps(unknown, marks, self._smallest_gap, apart)
        cells = [(column + gap.column, row + gap.row) for gap in gaps]
        cell = self.coverage.cell
        corner = [self.coverage.west, self.coverage.south]
        metres = (np.array(cells).reshape(-1, 2) + 0.5) * cell + corner
        hints = self._numbering.hints(tile, metres, [gap.radius * cell for gap in gaps], scale)
        self.candidates.replace(
            tile,
            [
                gap_features(gap, scale, sealed, math.log1p(barren), *hint)
                for gap, *hint in zip(
                    gaps,
                    hints.one.tolist(),
                    hints.both.tolist(),
                    hints.empty.tolist(),
                    strict=True,
                )
            ],
            cells,
            [gap.radius for gap in gaps],
            scale / self.coverage.cell,
            rank=spread(*tile),
            share=1.0 / (1.0 + barren),
            weights=self._model.weights,
            runs=hints.runs,
        )

    def catch_up(self, count: int) -> None:
        """Update the tiles whose ground changed the longest time ago."""
        for tile in [tile for tile, _ in zip(self._changed, range(count), strict=False)]:
            self.update(tile)

    def _add_open_tiles(self) -> None:
        """Treat all ground as open until a tile is updated for the first time."""
        open_ground = gap_features(
            Gap(0, 0, OPEN, OPEN, FAR, False, 0, 0.0, 1, False), 1.0, 0.0, 0.0, 0.0, 0.0, 0.0
        )
        for tile in self.coverage.tiles(TILE):
            middle = (tile[0] * TILE + TILE // 2, tile[1] * TILE + TILE // 2)
            self.candidates.replace(
                tile,
                [open_ground],
                [middle],
                [OPEN],
                FIRST_SCALE,
                rank=spread(*tile),
                share=1.0,
                weights=self._model.weights,
            )
            self.stale[tile] = None

    def _touch(self, box: Box) -> None:
        """Mark the tiles as stale whose gaps a change in the box may alter."""
        low, high = _tile(box[0] - MARGIN, box[1] - MARGIN), _tile(box[2] + MARGIN, box[3] + MARGIN)
        for column in range(low[0], high[0] + 1):
            for row in range(low[1], high[1] + 1):
                tile = (column, row)
                if self.coverage.any_in(column * TILE, row * TILE, TILE):
                    self.stale[tile] = None
                    self._changed[tile] = None
                else:
                    self.candidates.drop(tile)
                    self.stale.pop(tile, None)
                    self._changed.pop(tile, None)

    def _barren(self, tile: Tile) -> int:
        """Return how many open places around were empty; 0 once a parcel is known nearby."""
        if any(near in self._scales for near in _around(tile)):
            return 0
        return sum(self._open_empty.get(near, 0) for near in _around(tile, BARREN_REACH))

    def _scale_at(self, tile: Tile) -> float:
        """Return the scale of the parcels around, drawn a little towards that of all."""
        count, total = 2.0, 2.0 * math.log(self.scale)
        for near in _around(tile):
            known = self._scales.get(near)
            if known is not None:
                count, total = count + known[0], total + known[1]
        return math.exp(total / count)

    def _sealed(self, tile: Tile) -> float:
        """Return the share of the blocks around whose numbers are complete."""
        blocks = set().union(*(self._blocks.get(near, set()) for near in _around(tile)))
        if not blocks:
            return 0.0
        return sum(self._numbering.is_complete(block) for block in blocks) / len(blocks)


def _tile(column: int, row: int) -> Tile:
    return (column // TILE, row // TILE)


def _tiles_near(box: Box, reach: int) -> list[Tile]:
    low, high = _tile(box[0] - reach, box[1] - reach), _tile(box[2] + reach, box[3] + reach)
    return [(i, j) for i in range(low[0], high[0] + 1) for j in range(low[1], high[1] + 1)]


def _around(tile: Tile, reach: int = 1) -> list[Tile]:
    span = range(-reach, reach + 1)
    return [(tile[0] + i, tile[1] + j) for i in span for j in span]
