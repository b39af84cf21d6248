"""The health of an endpoint: its latencies, its throttle, its cooldowns and its expected cost."""

import math
import sys
from array import array
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass
from itertools import accumulate
from statistics import median
from typing import Self

from hasat.fetch.outcomes import DEFINITIVE, Outcome, Verdict

_FIRST_SECONDS = 0.0005
_GROWTH = 1.05
_BUCKETS = 260  # up to 160 s
_MAX_TOTAL = 1000
_LOG_GROWTH = math.log(_GROWTH)


class LatencySketch:
    """A histogram of latencies in buckets that grow by five percent; older responses weigh less."""

    def __init__(self, counts: "array[int] | None" = None) -> None:
        self._counts = array("H", bytes(2 * _BUCKETS)) if counts is None else counts
        self._total = sum(self._counts)
        # Read far more often than changed.
        self._quantiles: dict[float, float] = {}

    @property
    def total(self) -> int:
        """The number of responses in the histogram."""
        return self._total

    def add(self, seconds: float) -> None:
        self._quantiles.clear()
        place = math.ceil(math.log(max(seconds, _FIRST_SECONDS) / _FIRST_SECONDS) / _LOG_GROWTH)
        self._counts[min(place, _BUCKETS - 1)] += 1
        self._total += 1
        if self._total > _MAX_TOTAL:
            self._counts = array("H", (count // 2 for count in self._counts))
            self._total = sum(self._counts)

    def quantile(self, share: float) -> float | None:
        """Return the seconds within which this share of responses arrived; None without any."""
        if self._total == 0:
            return None
        if share not in self._quantiles:
            place = bisect_left(list(accumulate(self._counts)), share * self._total)
            self._quantiles[share] = _FIRST_SECONDS * _GROWTH ** min(place, _BUCKETS - 1)
        return self._quantiles[share]

    def to_bytes(self) -> bytes:
        return _little_endian(self._counts).tobytes()

    @classmethod
    def from_bytes(cls, data: bytes | None) -> Self:
        """Read the result of `to_bytes`; anything else is an empty sketch."""
        if data is None or len(data) != 2 * _BUCKETS:
            return cls()
        return cls(_little_endian(array("H", data)))


def _little_endian(counts: "array[int]") -> "array[int]":
    """Convert from or to the stored order of bytes."""
    if sys.byteorder == "little":
        return counts
    swapped = counts[:]
    swapped.byteswap()
    return swapped


_RECENT = 15
_SLOW_FACTOR = 2.0
_SLOWER = 1.5
_FASTER = 0.9
_MAX_FACTOR = 8.0
_MIN_MEASUREMENTS = 30


class Throttle:
    """A factor from 1 to 8 that lengthens the time between requests while responses are slow.

    An upstream that queues requests responds later before it rejects any. Medians are compared, so
    that single slow responses have no effect: the factor grows while recent responses take more
    than twice as long as usual, and shrinks with each that does not.
    """

    def __init__(self) -> None:
        self.factor = 1.0
        self._usual = LatencySketch()
        self._recent: deque[float] = deque(maxlen=_RECENT)

    def note(self, seconds: float) -> bool:
        """Record a response; return whether to slow down."""
        self._recent.append(seconds)
        usual = self._usual.quantile(0.5)
        if usual is None or self._usual.total < _MIN_MEASUREMENTS:
            self._usual.add(seconds)
            return False
        if len(self._recent) < _RECENT:
            # The last step has no visible effect yet.
            return False
        if is_slow := median(self._recent) > _SLOW_FACTOR * usual:
            self.factor = min(_MAX_FACTOR, self.factor * _SLOWER)
            self._recent.clear()
        else:
            self.factor = max(1.0, self.factor * _FASTER)
        # Slow responses count as usual only if slowing down did not help.
        if self.factor in (1.0, _MAX_FACTOR):
            self._usual.add(seconds)
        return is_slow


DAY_OVER = "daily quota used up"
_LIMITED = "rate limited"
_REFUSING = "forbidden without a reason"
_FAILING = "repeated failures"

_LIMITED_SECONDS, _MAX_LIMITED_SECONDS = 60.0, 900.0
_MAX_REFUSED_SECONDS = 6 * 3600.0
_FAILING_SECONDS, _MAX_FAILING_SECONDS, _ALLOWED_FAILURES = 30.0, 300.0, 3

_HALF_LIFE_SECONDS = 15.0
_MAX_WEIGHT = 20.0
_FAILURE_FACTOR = 10.0
_LOST_RACE_FACTOR = 10.0


@dataclass(frozen=True)
class EndpointRecord:
    """An endpoint's stored state when it was claimed; `points` includes the claiming request."""

    points: int
    learned: int | None
    streak: int
    rest_level: int


@dataclass(frozen=True)
class Effect:
    """The new state of an endpoint after a request; `rest` is its cooldown in seconds."""

    streak: int
    rest_level: int
    learned: int | None
    rest: float | None = None
    until_day_ends: bool = False
    cause: str | None = None


def effect_of(
    record: EndpointRecord,
    verdict: Verdict | None,
    status: int | None,
    points: int,
    cooldown: float,
) -> Effect:
    """Return how a verdict changes an endpoint: a cooldown by cause, longer each time in a row.

    A cancelled request has no verdict and changes nothing.
    """
    level, learned = record.rest_level, record.learned
    if verdict is None:
        return Effect(record.streak, level, learned)
    outcome, requested = verdict.outcome, verdict.retry_after
    if outcome in DEFINITIVE:
        grown = learned and max(learned, record.points)
        return Effect(streak=0, rest_level=0, learned=grown)
    if outcome is Outcome.UNAUTHORISED:
        # A rejected key is no fault of the endpoint.
        return Effect(record.streak, level, learned)
    if outcome is Outcome.DAY_EXHAUSTED:
        spent = max(record.points - points, 0)
        return Effect(0, 0, spent, until_day_ends=True, cause=DAY_OVER)
    if outcome is Outcome.MINUTE_LIMITED and status == 403:
        rest = requested or min(cooldown * 2**level, max(_MAX_REFUSED_SECONDS, cooldown))
        return Effect(record.streak + 1, level + 1, learned, rest, cause=_REFUSING)
    if outcome is Outcome.MINUTE_LIMITED:
        rest = requested or min(_LIMITED_SECONDS * 2**level, _MAX_LIMITED_SECONDS)
        return Effect(record.streak + 1, level + 1, learned, rest, cause=_LIMITED)
    streak = record.streak + 1
    beyond = streak - _ALLOWED_FAILURES + 1
    usual = min(_FAILING_SECONDS * beyond, _MAX_FAILING_SECONDS) if beyond > 0 else None
    return Effect(streak, level, learned, requested or usual, cause=_FAILING)


@dataclass(frozen=True)
class CostEstimate:
    """The seconds that a request to an endpoint is expected to take; old measurements fade."""

    mean: float = 0.0
    weight: float = 0.0

    def after(self, seconds: float) -> Self:
        """Return the estimate after some time has passed."""
        return type(self)(self.mean, self.weight * 0.5 ** (max(seconds, 0.0) / _HALF_LIFE_SECONDS))

    def expected(self, usual: float) -> float:
        """Return the expected seconds; with few measurements, close to the usual ones."""
        return (self.mean * self.weight + usual) / (self.weight + 1.0)

    def with_cost(self, seconds: float) -> Self:
        weight = min(self.weight + 1.0, _MAX_WEIGHT)
        return type(self)(self.mean + (seconds - self.mean) / weight, weight)


@dataclass(frozen=True)
class Measurement:
    """The duration of one request, and whether it was answered or lost a race."""

    seconds: float
    answered: bool
    lost: bool = False


def cost_of(measurement: Measurement, usual: float) -> float:
    """Return the seconds to charge: a fast failure is expensive, a lost race would have gone on.

    How long is unknown; a tail that is worth a hedge is usually an order of magnitude longer.
    """
    if measurement.lost:
        return measurement.seconds * _LOST_RACE_FACTOR
    return measurement.seconds + (0.0 if measurement.answered else usual * _FAILURE_FACTOR)


def note(sketch: LatencySketch, measurement: Measurement) -> None:
    """Count a response or the wait of a lost race; failures do not count."""
    if measurement.answered or measurement.lost:
        sketch.add(measurement.seconds)
