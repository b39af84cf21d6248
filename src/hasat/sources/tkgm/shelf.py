"""The gaps worth asking about, as columns of numbers, so that all are weighed at once."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Tile = tuple[int, int]


class Shelf:
    """Gaps by the tile in which they lie; a tile's gaps are replaced together."""

    def __init__(self, width: int) -> None:
        self.features: NDArray[np.float64] = np.zeros((1024, width))
        self.places: NDArray[np.int32] = np.zeros((1024, 2), dtype=np.int32)
        self.radii: NDArray[np.float32] = np.zeros(1024, dtype=np.float32)
        self.spacing: NDArray[np.float32] = np.zeros(1024, dtype=np.float32)
        self.ranks: NDArray[np.float32] = np.zeros(1024, dtype=np.float32)
        self.alive: NDArray[np.bool_] = np.zeros(1024, dtype=bool)
        self.tiles: list[Tile] = [(0, 0)] * 1024
        self.top = 0
        self._free: list[int] = []
        self._slots: dict[Tile, list[int]] = {}

    def __len__(self) -> int:
        return int(self.alive[: self.top].sum())

    def tiles_held(self) -> list[Tile]:
        return list(self._slots)

    def drop(self, tile: Tile) -> None:
        for slot in self._slots.pop(tile, ()):
            self.alive[slot] = False
            self._free.append(slot)

    def put(
        self,
        tile: Tile,
        features: Sequence[Sequence[float]],
        places: Sequence[tuple[int, int]],
        radii: Sequence[float],
        spacing: float,
        rank: float,
    ) -> None:
        """Replaces what is held of a tile."""
        self.drop(tile)
        slots = [self._slot() for _ in places]
        if slots:
            self._slots[tile] = slots
            self.features[slots] = features
            self.places[slots] = places
            self.radii[slots] = radii
            self.spacing[slots] = spacing
            self.ranks[slots] = rank
            self.alive[slots] = True
            for slot in slots:
                self.tiles[slot] = tile

    def _slot(self) -> int:
        if self._free:
            return self._free.pop()
        if self.top == len(self.alive):
            self._grow()
        self.top += 1
        return self.top - 1

    def _grow(self) -> None:
        for name in ("features", "places", "radii", "spacing", "ranks", "alive"):
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros_like(old)]))
        self.tiles += [(0, 0)] * len(self.tiles)
