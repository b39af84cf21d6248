"""The likelihood that a gap holds a parcel.

It starts from weights that hold for cadastres in general and learns from the responses of the scan,
so that a scan of a town with wide roads soon stops querying every wide road.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hasat.sources.tkgm.scan.coverage import FAR, OPEN, SIGHT, Gap

Vector = NDArray[np.float64]

# Fitted to surveyed and generated cadastres; a scan only starts from these.
_OF_THE_GAP = [-0.6, 0.5, 0.0, 0.2, 0.0, 1.7, 0.3, -2.1, 0.6, 1.0, 0.3]
_OF_ITS_SURROUNDINGS = [-0.5, -0.6, -0.5, -0.7, 0.0, -1.0]
_OF_MISSING_NUMBERS = [0.8, 1.2, -1.1, 0.6, -0.3, -1.9, 1.1]
PRIOR_WEIGHTS = np.array([*_OF_THE_GAP, *_OF_ITS_SURROUNDINGS, *_OF_MISSING_NUMBERS])
# How many responses the prior counts for; less for features that depend most on the place. Three
# times as many cost 5 % more queries on surveyed cadastres, which differ from the generated ones.
PRIOR_STRENGTH = np.array([1.2] * 13 + [0.3] * 3 + [0.06] + [0.3] * 7)
# Early responses come from open ground; the latest describe the gaps that are left.
MEMORY = 4000
# The model is refitted after this many responses, or this share of all of them if that is more.
REFIT_EVERY = 40
REFIT_SHARE = 0.01
# The latest responses that calibrate the chances, and how strongly these resist.
RECENT = 240
RECENT_STRENGTH = 2.0


def gap_features(
    gap: Gap, scale: float, sealed: float, barren: float, one: float, both: float, empty: float
) -> list[float]:
    """Return the features of a gap.

    `scale` is the side of parcels around, `sealed` the share of their blocks whose numbers are
    complete, `barren` how much of the open ground around was empty, `one` and `both` how near it
    lies to the neighbours of a missing number, `empty` how many points next to these were empty.
    """
    if gap.radius >= OPEN:
        return [*_OPEN_GROUND, barren, *[0.0] * len(_OF_MISSING_NUMBERS)]
    size, none = math.log(gap.radius / 6.0), 1.0 - one
    searched = math.log1p(empty)
    numbers = [one, both, one * searched, both * searched, one * gap.hidden, none, size * none]
    return [*_features(gap, scale, sealed), barren, *numbers]


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
        """The weights, calibrated to the latest responses."""
        self._fitted: Vector = self._prior.copy()
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
        """Refit and calibrate if there are enough new responses; return whether there were."""
        if self._unfitted < max(REFIT_EVERY, REFIT_SHARE * self._seen):
            return False
        self._unfitted = 0
        features = self._features[: min(self._seen, MEMORY)]
        hits = self._hits[: len(features)]
        for _ in range(2):
            chance = likelihoods(features, self._fitted)
            slope = np.einsum("ij,i->j", features, hits - chance) - PRIOR_STRENGTH * (
                self._fitted - self._prior
            )
            bend = np.einsum("ij,i,ik->jk", features, chance * (1 - chance), features)
            bend[np.diag_indices_from(bend)] += PRIOR_STRENGTH
            self._fitted = self._fitted + np.clip(np.linalg.solve(bend, slope), -1.0, 1.0)
        self._calibrate()
        return True

    def _calibrate(self) -> None:
        """Shift all scores so that the latest responses are as likely as they turned out.

        The latest queries went to the likeliest of the gaps that are left, so they resemble those
        more than all responses together do.
        """
        latest = np.arange(max(0, self._seen - RECENT), self._seen) % MEMORY
        features, hits = self._features[latest], self._hits[latest]
        shifted = self._fitted.copy()
        for _ in range(4):
            chance = likelihoods(features, shifted)
            shift = shifted[0] - self._fitted[0]
            slope = float((hits - chance).sum()) - RECENT_STRENGTH * shift
            bend = float((chance * (1 - chance)).sum()) + RECENT_STRENGTH
            shifted[0] += min(1.0, max(-1.0, slope / bend))
        self.weights = shifted


def likelihoods(features: Vector, weights: Vector) -> Vector:
    """Return the likelihood of a parcel for each row of features."""
    # Not the matrix product, which would start a thread per core to add a few numbers.
    score: Vector = np.einsum("ij,j->i", features, weights)
    return 1.0 / (1.0 + np.exp(-np.clip(score, -30.0, 30.0)))
