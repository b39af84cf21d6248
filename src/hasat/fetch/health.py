"""How long answers take: counts in buckets that grow by five percent, of fixed size."""

import math
from collections import deque
from dataclasses import dataclass
from statistics import median
from typing import Self

import numpy as np
from numpy.typing import NDArray

from hasat.fetch.outcomes import DEFINITIVE, Outcome, Verdict

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


DAY_OVER = "its day is spent"
_LIMITED = "it limits requests"
_REFUSING = "it refuses without a reason"
_FAILING = "it fails again and again"

_TOO_MANY_SECONDS, _TOO_MANY_MOST = 60.0, 900.0
_REFUSED_MOST = 6 * 3600.0
_FAILING_SECONDS, _FAILING_MOST, _FAILURES_ALLOWED = 30.0, 300.0, 3

_HALF_LIFE_SECONDS = 15.0
_MOST_WEIGHT = 20.0
_FAILURE_COSTS = 10.0
_LOST_RACE_COSTS = 2.0
_ANSWER_COSTS_MOST, _NEVER_LESS_SECONDS = 5.0, 0.25


@dataclass(frozen=True)
class Record:
    """An endpoint's record as its holder found it; `points` includes the request being made."""

    points: int
    learned: int | None
    streak: int
    rest_level: int


@dataclass(frozen=True)
class Effect:
    """What is written into the record; `rest` is in seconds."""

    streak: int
    rest_level: int
    learned: int | None
    rest: float | None = None
    until_day_ends: bool = False
    cause: str | None = None


def effect_of(
    record: Record, verdict: Verdict | None, status: int | None, points: int, cooldown: float
) -> Effect:
    """How a verdict changes an endpoint: rest by cause, longer each time in a row.

    Without a verdict, as when a race is lost, nothing changes.
    """
    level, learned = record.rest_level, record.learned
    if verdict is None:
        return Effect(record.streak, level, learned)
    outcome, asked_for = verdict.outcome, verdict.retry_after
    if outcome in DEFINITIVE:
        grown = learned and max(learned, record.points)
        return Effect(streak=0, rest_level=0, learned=grown)
    if outcome is Outcome.UNAUTHORISED:
        # The key is refused, which is no fault of the endpoint.
        return Effect(record.streak, level, learned)
    if outcome is Outcome.DAY_EXHAUSTED:
        spent = max(record.points - points, 0)
        return Effect(0, 0, spent, until_day_ends=True, cause=DAY_OVER)
    if outcome is Outcome.MINUTE_LIMITED and status == 403:
        rest = asked_for or min(cooldown * 2**level, max(_REFUSED_MOST, cooldown))
        return Effect(record.streak + 1, level + 1, learned, rest, cause=_REFUSING)
    if outcome is Outcome.MINUTE_LIMITED:
        rest = asked_for or min(_TOO_MANY_SECONDS * 2**level, _TOO_MANY_MOST)
        return Effect(record.streak + 1, level + 1, learned, rest, cause=_LIMITED)
    streak = record.streak + 1
    beyond = streak - _FAILURES_ALLOWED + 1
    usual = min(_FAILING_SECONDS * beyond, _FAILING_MOST) if beyond > 0 else None
    return Effect(streak, level, learned, asked_for or usual, cause=_FAILING)


@dataclass(frozen=True)
class Worth:
    """What a question to an endpoint is expected to cost in seconds; old knowledge fades."""

    mean: float = 0.0
    weight: float = 0.0

    def after(self, seconds: float) -> Self:
        """As it is known after some time."""
        return type(self)(self.mean, self.weight * 0.5 ** (max(seconds, 0.0) / _HALF_LIFE_SECONDS))

    def expected(self, usual: float) -> float:
        """The expected seconds, leaning on what is usual as far as little is known."""
        return (self.mean * self.weight + usual) / (self.weight + 1.0)

    def with_cost(self, seconds: float) -> Self:
        weight = min(self.weight + 1.0, _MOST_WEIGHT)
        return type(self)(self.mean + (seconds - self.mean) / weight, weight)


@dataclass(frozen=True)
class Measured:
    """What became of one request, as far as time is concerned."""

    seconds: float
    answered: bool
    lost: bool = False


def cost_of(measured: Measured, usual: float) -> float:
    """The seconds to charge: failing fast is never cheap, and a lost race would have gone on.

    A single answer weighs only so much, or bad luck would look like a bad endpoint.
    """
    if not (measured.answered or measured.lost):
        return measured.seconds + usual * _FAILURE_COSTS
    seconds = measured.seconds * (_LOST_RACE_COSTS if measured.lost else 1.0)
    return min(seconds, max(usual * _ANSWER_COSTS_MOST, _NEVER_LESS_SECONDS))


def note(sketch: LatencySketch, measured: Measured) -> None:
    """Count an answer; a lost race counts as long as it was waited for, a failure not at all."""
    if measured.answered or measured.lost:
        sketch.add(measured.seconds)
