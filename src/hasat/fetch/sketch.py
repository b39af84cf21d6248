"""How long answers take: counts in buckets that grow by five percent, of fixed size."""

import math
from typing import Self

import numpy as np
from numpy.typing import NDArray

_FIRST_SECONDS = 0.0005
_GROWTH = 1.05
_BUCKETS = 260  # up to 160 s
_REMEMBERED = 1000
_LOG_GROWTH = math.log(_GROWTH)


class LatencySketch:
    """A quantile is right to five percent; what is long ago weighs ever less."""

    def __init__(self, counts: NDArray[np.uint16] | None = None) -> None:
        self._counts = np.zeros(_BUCKETS, np.uint16) if counts is None else counts
        self._total = int(self._counts.sum())
        # Asked for far more often than it changes.
        self._found: dict[float, float] = {}

    @property
    def total(self) -> int:
        """How many answers are remembered."""
        return self._total

    def add(self, seconds: float) -> None:
        self._found.clear()
        place = math.ceil(math.log(max(seconds, _FIRST_SECONDS) / _FIRST_SECONDS) / _LOG_GROWTH)
        self._counts[min(place, _BUCKETS - 1)] += 1
        self._total += 1
        if self._total > _REMEMBERED:
            self._counts //= 2
            self._total = int(self._counts.sum())

    def quantile(self, share: float) -> float | None:
        """The seconds within which this share of the answers came; None if there were none."""
        if self._total == 0:
            return None
        if share not in self._found:
            place = int(np.searchsorted(np.cumsum(self._counts), share * self._total))
            self._found[share] = _FIRST_SECONDS * _GROWTH ** min(place, _BUCKETS - 1)
        return self._found[share]

    def to_bytes(self) -> bytes:
        return self._counts.astype("<u2").tobytes()

    @classmethod
    def from_bytes(cls, data: bytes | None) -> Self:
        """What `to_bytes` gave; anything else is an empty sketch."""
        if data is None or len(data) != 2 * _BUCKETS:
            return cls()
        return cls(np.frombuffer(data, "<u2").astype(np.uint16))
