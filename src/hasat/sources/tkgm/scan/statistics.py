"""The claims of a scan: forecasts from a random sample, bounds from an audit.

Parcel sizes are skewed: a random point meets a large parcel, while most parcels are small. So each
parcel that is met counts for as many as fit into the area (Horvitz and Thompson), the interval
widens with the spread of these counts, and its upper end includes what no point has met.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# Standard errors on both sides of a forecast, and the error that it has at least, as a share.
ERRORS = 2.0
LEAST_ERROR = 0.1
# The share of an area that no point of a sample has met is bounded with this confidence, and may
# hold parcels of this size: nine in ten registered parcels of the country are larger.
UNMET_CONFIDENCE = 0.95
UNMET_SQUARE_METRES = 150.0
CONFIDENCE = 0.95
# Of the error that all audits of a scan may make together, the first takes this share, the next
# the same share of the rest, and so on.
FIRST_AUDIT = 0.8


@dataclass(frozen=True)
class Interval:
    """An expected number with bounds."""

    low: float
    expected: float
    high: float


def estimate_parcels(sizes: Sequence[float], area: float) -> Interval:
    """Estimate the parcels of an area from those at random points, with a 95 % interval.

    `sizes` has the square metres inside the area of the parcel at each point, or 0 where there is
    none.
    """
    held = np.array([area / max(size, 1.0) if size else 0.0 for size in sizes])
    mean = float(held.mean())
    unmet = 1.0 - (1.0 - UNMET_CONFIDENCE) ** (1.0 / len(held))
    max_unmet = unmet * area / UNMET_SQUARE_METRES
    if not mean:
        return Interval(0.0, 0.0, max(max_unmet, 1.0))
    error = math.sqrt(math.log1p(float(held.var()) / len(held) / mean**2) + LEAST_ERROR**2)
    factor = math.exp(ERRORS * error)
    return Interval(mean / factor, mean, mean * factor + max_unmet)


def multiply(first: Interval, second: Interval) -> Interval:
    """Return the product of two independent positive quantities.

    The logarithms of their errors add as squares: both are rarely at the same end.
    """
    middle = first.expected * second.expected
    below = math.hypot(*(math.log(one.expected / one.low) for one in (first, second)))
    above = math.hypot(*(math.log(one.high / one.expected) for one in (first, second)))
    return Interval(middle * math.exp(-below), middle, middle * math.exp(above))


def binomial_upper(hits: int, trials: int, error: float) -> float:
    """Return the largest share that is consistent with some hits, after Clopper and Pearson.

    With a larger share, as few hits have a probability below `error`.
    """
    if hits >= trials:
        return 1.0
    low, high = hits / trials, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if _at_most(hits, trials, middle) > error:
            low = middle
        else:
            high = middle
    return high


def audit_error(number: int) -> float:
    """Return the error that the audit with a number, from 1, may make."""
    return (1.0 - CONFIDENCE) * FIRST_AUDIT * (1.0 - FIRST_AUDIT) ** (number - 1)


def _at_most(hits: int, trials: int, share: float) -> float:
    """Return the probability of at most some hits."""
    if not 0.0 < share < 1.0:
        return float(share <= 0.0)
    logs = [
        math.lgamma(trials + 1)
        - math.lgamma(k + 1)
        - math.lgamma(trials - k + 1)
        + k * math.log(share)
        + (trials - k) * math.log1p(-share)
        for k in range(hits + 1)
    ]
    return math.fsum(math.exp(one) for one in logs)
