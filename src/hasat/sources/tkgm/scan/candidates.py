"""The gaps worth asking about, as columns of numbers, so that all are weighed at once."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hasat.sources.tkgm.scan.likelihood import Vector, chances

Tile = tuple[int, int]


class Shelf:
    """Gaps by the tile in which they lie; a tile's gaps are replaced together."""

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
        for slot in self._slots.pop(tile, ()):
            self.alive[slot] = False
            self.chances[slot] = 0.0
            self._free.append(slot)

    def put(
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
        """Replaces what is held of a tile; gaps whose ground lies together count as a share."""
        self.drop(tile)
        slots = [self._slot() for _ in places]
        if slots:
            self._slots[tile] = slots
            self.features[slots] = features
            self.places[slots] = places
            self.radii[slots] = radii
            self.spacing[slots] = spacing
            self.ranks[slots] = rank
            self.shares[slots] = share
            self.chances[slots] = chances(self.features[slots], weights) * share
            self.alive[slots] = True
            for slot in slots:
                self.tiles[slot] = tile

    def weigh(self, weights: Vector) -> None:
        """Works out all chances anew."""
        every = chances(self.features[: self.top], weights) * self.shares[: self.top]
        self.chances[: self.top] = np.where(self.alive[: self.top], every, 0.0)

    def _slot(self) -> int:
        if self._free:
            return self._free.pop()
        if self.top == len(self.alive):
            self._grow()
        self.top += 1
        return self.top - 1

    def _grow(self) -> None:
        for name in (
            "features",
            "places",
            "radii",
            "spacing",
            "ranks",
            "shares",
            "chances",
            "alive",
        ):
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros_like(old)]))
        self.tiles += [(0, 0)] * len(self.tiles)
