"""How likely a gap holds a parcel: a logistic model that each scan fits to its own answers.

It starts from odds that hold for cadastres in general and moves as far as the answers carry it, so
that a town whose roads are wide is soon not asked about every wide road.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hasat.sources.tkgm.scan.gaps import FAR, OPEN, SIGHT, Gap

Vector = NDArray[np.float64]

# Fitted to surveyed and generated cadastres alike; a scan only starts from here.
START = np.array(
    [-0.5, 2.0, 0.0, 0.4, -0.4, 1.0, -0.7, -2.0, -0.2, 1.3, 0.0, -0.5, 0.5, -2.0, 0.0, 0.5, -1.0]
)
# So many answers' worth of trust in the start; less in what depends most on the place.
TRUST = np.array([4.0] * 13 + [1.0] * 4)
# Old answers come from open ground; the last ones tell about the gaps that are left.
MEMORY = 4000
# The model is fitted anew after so many answers, and after a share of all as they grow many.
REFIT_EVERY = 40
REFIT_SHARE = 0.01


def describe(gap: Gap, scale: float, sealed: float, barren: float) -> list[float]:
    """The gap in numbers: `scale` is the side of parcels around, `sealed` the share of their
    blocks whose numbers are complete, `barren` how much of the open ground around was empty."""
    if gap.radius >= OPEN:
        return [*_OPEN_GROUND, barren]
    return [*_numbers(gap, scale, sealed), barren]


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
        0.0 if unseen else math.log(max(gap.width, 1) / gap.usual),
    ]


_OPEN_GROUND = tuple(_numbers(Gap(0, 0, OPEN, OPEN, FAR, False, 16, 3000.0, 3, False), 20.0, 0.0))


class Odds:
    """The model and the last answers it has seen.

    It may begin with what an earlier scan of the same ground has learnt.
    """

    def __init__(self, learnt: Sequence[float] | None = None) -> None:
        self._start: Vector = START if learnt is None else np.array(learnt, dtype=np.float64)
        self.weights: Vector = self._start.copy()
        self._features: Vector = np.zeros((MEMORY, len(START)))
        self._hits: Vector = np.zeros(MEMORY)
        self._seen = 0
        self._unfitted = 0

    def learn(self, features: Vector, hit: bool) -> None:
        self._features[self._seen % MEMORY] = features
        self._hits[self._seen % MEMORY] = hit
        self._seen += 1
        self._unfitted += 1

    def fit(self) -> bool:
        """Takes two Newton steps when enough answers have come since the last time."""
        if self._unfitted < max(REFIT_EVERY, REFIT_SHARE * self._seen):
            return False
        self._unfitted = 0
        features = self._features[: min(self._seen, MEMORY)]
        hits = self._hits[: len(features)]
        for _ in range(2):
            chance = chances(features, self.weights)
            slope = np.einsum("ij,i->j", features, hits - chance) - TRUST * (
                self.weights - self._start
            )
            bend = np.einsum("ij,i,ik->jk", features, chance * (1 - chance), features)
            bend[np.diag_indices_from(bend)] += TRUST
            self.weights = self.weights + np.clip(np.linalg.solve(bend, slope), -1.0, 1.0)
        return True


def chances(features: Vector, weights: Vector) -> Vector:
    """The chance of a parcel for each row of features."""
    # Not the matrix product: it would wake a thread for each core to add up a few numbers.
    score: Vector = np.einsum("ij,j->i", features, weights)
    return 1.0 / (1.0 + np.exp(-np.clip(score, -30.0, 30.0)))
