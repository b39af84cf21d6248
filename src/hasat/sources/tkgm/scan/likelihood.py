"""The likelihood that a gap holds a parcel: a logistic model fitted to the responses of a scan.

The model starts from weights that hold for cadastres in general, so that a scan of a town with
wide roads soon stops querying every wide road.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hasat.sources.tkgm.scan.gaps import FAR, OPEN, SIGHT, Gap

Vector = NDArray[np.float64]

# Fitted to surveyed and generated cadastres; a scan only starts from these.
PRIOR_WEIGHTS = np.array(
    [-0.5, 2.0, 0.0, 0.4, -0.4, 1.0, -0.7, -2.0, -0.2, 1.3, 0.0, -0.5, 0.5, -2.0, 0.0, 0.5, -1.0]
)
# How many responses the prior counts for; less for features that depend most on the place.
PRIOR_STRENGTH = np.array([4.0] * 13 + [1.0] * 4)
# Early responses come from open ground; the latest describe the gaps that are left.
MEMORY = 4000
# The model is refitted after this many responses, or this share of all of them if that is more.
REFIT_EVERY = 40
REFIT_SHARE = 0.01


def gap_features(gap: Gap, scale: float, sealed: float, barren: float) -> list[float]:
    """Return the features of a gap.

    `scale` is the side of parcels around, `sealed` the share of their blocks whose numbers are
    complete, `barren` how much of the open ground around was empty.
    """
    if gap.radius >= OPEN:
        return [*_OPEN_GROUND, barren]
    return [*_features(gap, scale, sealed), barren]


def _features(gap: Gap, scale: float, sealed: float) -> list[float]:
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
        math.log(gap.free_area / scale**2),
        float(gap.hidden),
        size * gap.hidden,
        0.0 if unseen else math.log(max(gap.width, 1) / gap.usual),
    ]


_OPEN_GROUND = tuple(_features(Gap(0, 0, OPEN, OPEN, FAR, False, 16, 3000.0, 3, False), 20.0, 0.0))


class LikelihoodModel:
    """The model and the latest responses; it may start with the weights of an earlier scan."""

    def __init__(self, weights: Sequence[float] | None = None) -> None:
        self._prior: Vector = (
            PRIOR_WEIGHTS if weights is None else np.array(weights, dtype=np.float64)
        )
        self.weights: Vector = self._prior.copy()
        self._features: Vector = np.zeros((MEMORY, len(PRIOR_WEIGHTS)))
        self._hits: Vector = np.zeros(MEMORY)
        self._seen = 0
        self._unfitted = 0

    def learn(self, features: Vector, hit: bool) -> None:
        """Add a response."""
        self._features[self._seen % MEMORY] = features
        self._hits[self._seen % MEMORY] = hit
        self._seen += 1
        self._unfitted += 1

    def fit(self) -> bool:
        """Take two Newton steps if there are enough new responses; return whether there were."""
        if self._unfitted < max(REFIT_EVERY, REFIT_SHARE * self._seen):
            return False
        self._unfitted = 0
        features = self._features[: min(self._seen, MEMORY)]
        hits = self._hits[: len(features)]
        for _ in range(2):
            chance = likelihoods(features, self.weights)
            slope = np.einsum("ij,i->j", features, hits - chance) - PRIOR_STRENGTH * (
                self.weights - self._prior
            )
            bend = np.einsum("ij,i,ik->jk", features, chance * (1 - chance), features)
            bend[np.diag_indices_from(bend)] += PRIOR_STRENGTH
            self.weights = self.weights + np.clip(np.linalg.solve(bend, slope), -1.0, 1.0)
        return True


def likelihoods(features: Vector, weights: Vector) -> Vector:
    """Return the likelihood of a parcel for each row of features."""
    # Not the matrix product, which would start a thread per core to add a few numbers.
    score: Vector = np.einsum("ij,j->i", features, weights)
    return 1.0 / (1.0 + np.exp(-np.clip(score, -30.0, 30.0)))
