"""The known ground of an area, tile by tile, and the gaps in it that become candidates.

A change only marks the tiles around it as stale; their gaps are searched again when the planner
needs them, so that a batch of responses costs no more than a few searches.
"""

import math

from shapely import MultiPolygon, Polygon

from hasat.sources.tkgm.scan.candidates import Candidates, Tile
from hasat.sources.tkgm.scan.coverage import Box, Coverage, spread
from hasat.sources.tkgm.scan.gaps import FAR, MARGIN, OPEN, TILE, WINDOW, Gap, Mark, find_gaps
from hasat.sources.tkgm.scan.likelihood import PRIOR_WEIGHTS, LikelihoodModel, gap_features
from hasat.sources.tkgm.scan.numbering import Block, Numbering

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
        model: LikelihoodModel,
        numbering: Numbering | None,
    ) -> None:
        self.coverage = Coverage(area, MARGIN)
        self.candidates = Candidates(len(PRIOR_WEIGHTS))
        self.stale: dict[Tile, None] = {}
        """Tiles whose candidates may be out of date."""
        self._smallest_gap = smallest_gap
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

    def cover(self, ground: Polygon | MultiPolygon, block: Block) -> None:
        """Mark the ground of a parcel as known; the parcel belongs to a block."""
        box = self.coverage.cover(ground)
        self._touch(box)
        tile = _tile((box[0] + box[2]) // 2, (box[1] + box[3]) // 2)
        count, total = self._scales.get(tile, (0, 0.0))
        side = math.log(max(3.0, math.sqrt(float(ground.area))))
        self._scales[tile] = (count + 1, total + side)
        self._scale_sum += side
        self._parcels += 1
        if self._numbering is not None:
            self._blocks.setdefault(tile, set()).add(block)

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
        apart = min(20, max(5, int(scale / self.coverage.cell / 2)))
        if barren >= BARREN:
            apart = TILE
        gaps = find_gaps(unknown, marks, self._smallest_gap, apart)
        self.candidates.replace(
            tile,
            [gap_features(gap, scale, sealed, math.log1p(barren)) for gap in gaps],
            [(column + gap.column, row + gap.row) for gap in gaps],
            [gap.radius for gap in gaps],
            scale / self.coverage.cell,
            rank=spread(*tile),
            share=1.0 / (1.0 + barren),
            weights=self._model.weights,
        )

    def catch_up(self, count: int) -> None:
        """Update the tiles whose ground changed the longest time ago."""
        for tile in [tile for tile, _ in zip(self._changed, range(count), strict=False)]:
            self.update(tile)

    def _add_open_tiles(self) -> None:
        """Treat all ground as open until a tile is updated for the first time."""
        open_ground = gap_features(
            Gap(0, 0, OPEN, OPEN, FAR, False, 0, 0.0, 1, False), 1.0, 0.0, 0.0
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
        if self._numbering is None:
            return 0.0
        blocks = set().union(*(self._blocks.get(near, set()) for near in _around(tile)))
        if not blocks:
            return 0.0
        return sum(self._numbering.is_complete(block) for block in blocks) / len(blocks)


def _tile(column: int, row: int) -> Tile:
    return (column // TILE, row // TILE)


def _around(tile: Tile, reach: int = 1) -> list[Tile]:
    span = range(-reach, reach + 1)
    return [(tile[0] + i, tile[1] + j) for i in span for j in span]
