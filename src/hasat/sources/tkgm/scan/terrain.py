"""What is known of the ground, tile by tile, and which gaps that leaves to hide a parcel in.

A change of the ground only marks the tiles around it as stale; they are looked at anew when the
planner wants to know, so that a batch of answers costs no more than a few looks.
"""

import math

from shapely import MultiPolygon, Polygon

from hasat.sources.tkgm.scan.candidates import Shelf, Tile
from hasat.sources.tkgm.scan.coverage import Box, Coverage, spread
from hasat.sources.tkgm.scan.gaps import FAR, MARGIN, OPEN, TILE, WINDOW, Gap, Mark, find_gaps
from hasat.sources.tkgm.scan.likelihood import START, Odds, describe
from hasat.sources.tkgm.scan.numbering import Block, Numbering

# The side of a parcel before any is known, in metres.
FIRST_SCALE = 20.0
# Empty points in open ground speak against parcels so many tiles around. Where no parcel is known
# beside, a tile is asked about once, no finer, and counts for less: what lies in open country lies
# together.
FAR_TILES = 4
BARREN = 2


class Terrain:
    """The ground of an area in metres, and the shelf of its gaps."""

    def __init__(
        self,
        area: Polygon | MultiPolygon,
        smallest_gap: int,
        odds: Odds,
        numbering: Numbering | None,
    ) -> None:
        self.coverage = Coverage(area, MARGIN)
        self.shelf = Shelf(len(START))
        self.stale: dict[Tile, None] = {}
        """Tiles whose gaps may be other than the shelf has them."""
        self._smallest_gap = smallest_gap
        self._odds = odds
        self._numbering = numbering
        self._changed: dict[Tile, None] = {}
        self._marks: dict[Tile, list[tuple[int, int, bool]]] = {}
        self._open_empty: dict[Tile, int] = {}
        self._scales: dict[Tile, tuple[int, float]] = {}
        self._blocks: dict[Tile, set[Block]] = {}
        self._parcels = 0
        self._scale_sum = 0.0
        self._lay_out()

    @property
    def scale(self) -> float:
        """The side of a square as large as parcels are here on (geometric) average."""
        return math.exp(self._scale_sum / self._parcels) if self._parcels else FIRST_SCALE

    def cover(self, ground: Polygon | MultiPolygon, block: Block) -> None:
        """Takes in the ground of a parcel, which is of a block."""
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
        """Remembers a place that stays unknown though it was asked about, and whether it is empty
        (which is a road, or speaks against parcels around if it lies in the open)."""
        tile = _tile(column, row)
        self._marks.setdefault(tile, []).append((column, row, road))
        self._touch((column, row, column, row))
        if road and in_the_open:
            self._open_empty[tile] = self._open_empty.get(tile, 0) + 1
            for beside in _around(tile, FAR_TILES):
                if self.coverage.any_in(beside[0] * TILE, beside[1] * TILE, TILE):
                    self.stale[beside] = None

    def look(self, tile: Tile) -> None:
        """Finds the gaps of a tile anew."""
        self.stale.pop(tile, None)
        self._changed.pop(tile, None)
        column, row = tile[0] * TILE, tile[1] * TILE
        unknown = self.coverage.window(column - MARGIN, row - MARGIN, WINDOW, WINDOW)
        if not unknown[MARGIN:-MARGIN, MARGIN:-MARGIN].any():
            self.shelf.drop(tile)
            return
        marks = [
            Mark(c - column + MARGIN, r - row + MARGIN, road)
            for beside in _around(tile)
            for c, r, road in self._marks.get(beside, ())
            if abs(c - column - TILE // 2) < WINDOW // 2 and abs(r - row - TILE // 2) < WINDOW // 2
        ]
        scale = self._scale_at(tile)
        sealed, barren = self._sealed(tile), self._barren(tile)
        apart = min(20, max(5, int(scale / self.coverage.cell / 2)))
        if barren >= BARREN:
            apart = TILE
        gaps = find_gaps(unknown, marks, self._smallest_gap, apart)
        self.shelf.put(
            tile,
            [describe(gap, scale, sealed, math.log1p(barren)) for gap in gaps],
            [(column + gap.column, row + gap.row) for gap in gaps],
            [gap.radius for gap in gaps],
            scale / self.coverage.cell,
            rank=spread(*tile),
            share=1.0 / (1.0 + barren),
            weights=self._odds.weights,
        )

    def catch_up(self, looks: int) -> None:
        """Looks at so many of the tiles whose ground changed the longest time ago."""
        for tile in [tile for tile, _ in zip(self._changed, range(looks), strict=False)]:
            self.look(tile)

    def _lay_out(self) -> None:
        """Takes all ground for open until a tile is looked at for the first time."""
        open_ground = describe(Gap(0, 0, OPEN, OPEN, FAR, False, 0, 0.0, 1, False), 1.0, 0.0, 0.0)
        for tile in self.coverage.tiles(TILE):
            middle = (tile[0] * TILE + TILE // 2, tile[1] * TILE + TILE // 2)
            self.shelf.put(
                tile,
                [open_ground],
                [middle],
                [OPEN],
                FIRST_SCALE,
                rank=spread(*tile),
                share=1.0,
                weights=self._odds.weights,
            )
            self.stale[tile] = None

    def _touch(self, box: Box) -> None:
        """Marks the tiles for a new look whose gaps a change in the box may alter."""
        low, high = _tile(box[0] - MARGIN, box[1] - MARGIN), _tile(box[2] + MARGIN, box[3] + MARGIN)
        for column in range(low[0], high[0] + 1):
            for row in range(low[1], high[1] + 1):
                tile = (column, row)
                if self.coverage.any_in(column * TILE, row * TILE, TILE):
                    self.stale[tile] = None
                    self._changed[tile] = None
                else:
                    self.shelf.drop(tile)
                    self.stale.pop(tile, None)
                    self._changed.pop(tile, None)

    def _barren(self, tile: Tile) -> int:
        """How many open places around were empty; nought as soon as a parcel is known beside."""
        if any(beside in self._scales for beside in _around(tile)):
            return 0
        return sum(self._open_empty.get(beside, 0) for beside in _around(tile, FAR_TILES))

    def _scale_at(self, tile: Tile) -> float:
        """The scale of the parcels around, drawn a little towards that of all."""
        count, total = 2.0, 2.0 * math.log(self.scale)
        for beside in _around(tile):
            known = self._scales.get(beside)
            if known is not None:
                count, total = count + known[0], total + known[1]
        return math.exp(total / count)

    def _sealed(self, tile: Tile) -> float:
        """The share of the blocks around whose numbers are complete."""
        if self._numbering is None:
            return 0.0
        blocks = set().union(*(self._blocks.get(beside, set()) for beside in _around(tile)))
        if not blocks:
            return 0.0
        return sum(self._numbering.complete(block) for block in blocks) / len(blocks)


def _tile(column: int, row: int) -> Tile:
    return (column // TILE, row // TILE)


def _around(tile: Tile, reach: int = 1) -> list[Tile]:
    span = range(-reach, reach + 1)
    return [(tile[0] + i, tile[1] + j) for i in span for j in span]
