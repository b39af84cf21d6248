"""Slowing down before a limit is hit: an upstream that queues what comes too fast answers later."""

from collections import deque
from statistics import median

from hasat.fetch.sketch import LatencySketch

_RECENT = 15
_RISEN = 2.0
_SLOWER = 1.5
_FASTER = 0.9
_MOST = 8.0
_ENOUGH = 30


class Pace:
    """A factor from 1 to 8 by which the time between requests is stretched.

    Medians are compared, so that single slow answers mean nothing. The factor grows while recent
    answers take more than twice as long as they usually do, and shrinks with each that does not.
    """

    def __init__(self) -> None:
        self.factor = 1.0
        self._usual = LatencySketch()
        self._recent: deque[float] = deque(maxlen=_RECENT)

    def note(self, seconds: float) -> bool:
        """Take in an answer; True if it is time to be slower."""
        self._recent.append(seconds)
        usual = self._usual.quantile(0.5)
        if usual is None or self._usual.total < _ENOUGH:
            self._usual.add(seconds)
            return False
        if len(self._recent) < _RECENT:
            # A step was just made; its effect is not seen yet.
            return False
        if risen := median(self._recent) > _RISEN * usual:
            self.factor = min(_MOST, self.factor * _SLOWER)
            self._recent.clear()
        else:
            self.factor = max(1.0, self.factor * _FASTER)
        # Slowness must not soon count as usual; only where slowing down did not help, it is.
        if self.factor in (1.0, _MOST):
            self._usual.add(seconds)
        return risen
