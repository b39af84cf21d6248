"""The candidates of a scan: gaps worth a query, as columns of numbers that are ranked together."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import shapely
from numpy.typing import NDArray

from hasat.sources.tkgm.geometry import Outline, Plane
from hasat.sources.tkgm.scan.coverage import Coverage
from hasat.sources.tkgm.scan.gaps import OPEN, TILE
from hasat.sources.tkgm.scan.likelihood import Vector, likelihoods

Tile = tuple[int, int]

# A gap likelier than this is as good as any other such; the widest goes first.
LIKELY = 0.6
# Gaps less likely than this are not reported as unknown.
_MIN_UNKNOWN = 0.01
_COLUMNS = ("features", "places", "radii", "spacing", "ranks", "shares", "chances", "alive")


@dataclass(frozen=True)
class UnknownArea:
    """An area in degrees that may still hold a parcel, and how likely it does."""

    geometry: Outline
    chance: float


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
            for slot in slots:
                self.tiles[slot] = tile

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

    def sample(self, count: int, seed: int) -> NDArray[np.intp]:
        """Return random slots, each with the same probability."""
        slots = np.flatnonzero(self.chances[: self.top] > 0.0)
        return np.random.default_rng(seed).permutation(slots)[:count]

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
        return sorted(found, key=lambda one: -one.chance)

    def _allocate(self) -> int:
        if self._free:
            return self._free.pop()
        if self.top == len(self.alive):
            for name in _COLUMNS:
                old = getattr(self, name)
                setattr(self, name, np.concatenate([old, np.zeros_like(old)]))
            self.tiles += [(0, 0)] * len(self.tiles)
        self.top += 1
        return self.top - 1
