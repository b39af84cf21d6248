"""The guard: what a run would do, measured against the last good state, before it does it.

A broken or half-published input looks like a mass change. Whatever passes a limit holds the whole
run; nothing of it is applied until a person says so.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hasat.messages import msg


@dataclass(frozen=True)
class Counts:
    """What a run would do to one dataset."""

    added: int = 0
    modified: int = 0
    removed: int = 0
    records: int = 0
    """How many records the dataset held before."""

    @property
    def total(self) -> int:
        return self.added + self.modified + self.removed


@dataclass(frozen=True)
class Limits:
    """The largest share of the last good state, in percent, that may change in one run."""

    removed: float = 10.0
    modified: float = 20.0
    added: float = 20.0


@dataclass(frozen=True)
class Measure:
    """One thing the guard looked at: `value` against `limit`, both in percent."""

    subject: str
    what: str
    value: float
    limit: float

    @property
    def exceeded(self) -> bool:
        return self.value > self.limit

    def __str__(self) -> str:
        return msg(
            "{subject}: {what} {value:.2f} % (limit {limit:g} %)",
            subject=self.subject,
            what=self.what,
            value=self.value,
            limit=self.limit,
        )


def measure_changes(counts: Mapping[str, Counts], limits: Limits) -> tuple[Measure, ...]:
    """The shares of added, modified and removed records per dataset; a first load has none."""
    return tuple(
        Measure(dataset, what, share(getattr(count, what), count.records), getattr(limits, what))
        for dataset, count in counts.items()
        if count.records
        for what in (msg("removed"), msg("modified"), msg("added"))
    )


def measure_drop(subject: str, what: str, before: int, now: int, limit: float) -> Measure:
    """How far a number (users of a list, bytes of a file) fell against the last good one."""
    return Measure(subject, what, share(max(before - now, 0), before), limit)


def measure_growth(subject: str, what: str, before: int, now: int, limit: float) -> Measure:
    """How far a number rose above the last good one."""
    return Measure(subject, what, share(max(now - before, 0), before), limit)


def share(part: int, whole: int) -> float:
    """A part in percent of the whole; of nothing, any part is everything."""
    if whole:
        return 100.0 * part / whole
    return 100.0 if part else 0.0


def exceeded(measures: Iterable[Measure]) -> tuple[Measure, ...]:
    return tuple(measure for measure in measures if measure.exceeded)
