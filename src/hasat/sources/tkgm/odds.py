"""How likely a gap holds a parcel: a logistic model that each scan fits to its own answers.

It starts from odds that hold for cadastres in general and moves as far as the answers carry it, so
that a town whose roads are wide is soon not asked about every wide road.
"""

import math

import numpy as np
from numpy.typing import NDArray

from hasat.sources.tkgm.gaps import FAR, OPEN, SIGHT, Gap

Vector = NDArray[np.float64]

# Fitted to surveyed and generated cadastres alike; a scan only starts from here.
START = np.array([-0.5, 2.0, 0.0, 0.4, -0.4, 1.0, -0.7, -2.0, -0.2, 1.3, 0.0, -0.5, 0.5, -2.0, 0.0, 0.5])
# So many answers' worth of trust in the start.
TRUST = 4.0
# Old answers come from open ground; the last ones tell about the gaps that are left.
MEMORY = 6000
REFIT_EVERY = 20


def describe(gap: Gap, scale: float, sealed: float) -> list[float]:
    """The gap in numbers: `scale` is the side of parcels around, `sealed` the share of their
    blocks whose numbers are complete."""
    if gap.radius >= OPEN:
        return list(OPEN_GROUND)
    return _numbers(gap, scale, sealed)


def _numbers(gap: Gap, scale: float, sealed: float) -> list[float]:
    size = math.log(gap.radius / 6.0)
    unseen = gap.nearest_road >= SIGHT
    road = math.log(min(gap.nearest_road, SIGHT) / 20.0)
    return [
        1.0,
        size,
        size * size,
        road,
        road * size,
        math.log(gap.radius / scale) + 1.0,
        gap.open_rays / 4.0 - 1.0,
        float(gap.between_roads),
        math.log(max(gap.width, 1) / gap.radius),
        float(unseen),
        size * unseen,
        sealed,
        math.log(gap.room / scale**2),
        float(gap.hidden),
        size * gap.hidden,
        math.log(max(gap.width, 1) / gap.usual) if not unseen else 0.0,
    ]


OPEN_GROUND = tuple(_numbers(Gap(0, 0, OPEN, OPEN, FAR, False, 16, 3000.0, 3, False), 20.0, 0.0))


class Odds:
    """The model and the answers it has seen."""

    def __init__(self) -> None:
        self.weights: Vector = START.copy()
        self._features: list[Vector] = []
        self._hits: list[bool] = []
        self._unfitted = 0

    def learn(self, features: Vector, hit: bool) -> None:
        self._features.append(features)
        self._hits.append(hit)
        self._unfitted += 1
        if len(self._hits) > 2 * MEMORY:
            del self._features[:-MEMORY], self._hits[:-MEMORY]

    def fit(self) -> None:
        """Takes a few Newton steps when enough answers have come since the last time."""
        if self._unfitted < REFIT_EVERY:
            return
        self._unfitted = 0
        features = np.array(self._features[-MEMORY:])
        hits = np.array(self._hits[-MEMORY:], dtype=float)
        for _ in range(2):
            chance = chances(features, self.weights)
            slope = features.T @ (hits - chance) - TRUST * (self.weights - START)
            bend = (features * (chance * (1 - chance))[:, None]).T @ features
            bend[np.diag_indices_from(bend)] += TRUST
            self.weights = self.weights + np.clip(np.linalg.solve(bend, slope), -1.0, 1.0)


def chances(features: Vector, weights: Vector) -> Vector:
    """The chance of a parcel for each row of features."""
    return 1.0 / (1.0 + np.exp(-np.clip(features @ weights, -30.0, 30.0)))
