"""The guard: measure the changes of a run against the last good state before they are applied.

A broken or half-published input looks like a mass change. A run that exceeds a limit is held as a
whole; nothing of it is applied until an operator approves it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hasat.messages import msg


@dataclass(frozen=True)
class Counts:
    """The changes that a run would make to one dataset."""

    added: int = 0
    modified: int = 0
    removed: int = 0
    records: int = 0
    """The number of records before the run."""

    @property
    def total(self) -> int:
        return self.added + self.modified + self.removed


@dataclass(frozen=True)
class Limits:
    """The largest share of the last good state, in percent, that may change in one run.

    `unreadable` is the share of the records of the run's input that it may fail to read, `smaller`
    and `larger` are how far the size of the input may differ from that of the last good one.
    """

    removed: float = 10.0
    modified: float = 20.0
    added: float = 20.0
    unreadable: float = 10.0
    smaller: float = 30.0
    larger: float = 100.0


@dataclass(frozen=True)
class Measure:
    """One measurement of the guard: `value` against `limit`, both in percent."""

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
    """Return the shares of added, modified and removed records; a first load has none."""
    return tuple(
        Measure(dataset, what, share(getattr(count, what), count.records), getattr(limits, what))
        for dataset, count in counts.items()
        if count.records
        for what in (msg("removed"), msg("modified"), msg("added"))
    )


def measure_removals(
    subject: str, removed: int, known: int, limits: Limits, *, unguarded: int = 0
) -> tuple[Measure, ...]:
    """Return the share of a part of a dataset that would be removed.

    Up to `unguarded` removals are never measured: a part may be so small that one is a large share.
    """
    if removed <= unguarded:
        return ()
    return (Measure(subject, msg("removed"), share(removed, known), limits.removed),)


def measure_size(subject: str, before: int, now: int, limits: Limits) -> tuple[Measure, ...]:
    """Return how far the bytes of an input fell below and rose above the last good one."""
    return (
        measure_drop(subject, msg("fewer bytes"), before, now, limits.smaller),
        measure_growth(subject, msg("more bytes"), before, now, limits.larger),
    )


def measure_unreadable(subject: str, unreadable: int, read: int, limits: Limits) -> Measure:
    """Return the share of an input's records that cannot be read."""
    value = share(unreadable, read + unreadable) if unreadable else 0.0
    return Measure(subject, msg("unreadable"), value, limits.unreadable)


def measure_drop(subject: str, what: str, before: int, now: int, limit: float) -> Measure:
    """Return how far a number (records of a list, bytes of a file) fell below the last good one."""
    return Measure(subject, what, share(max(before - now, 0), before), limit)


def measure_growth(subject: str, what: str, before: int, now: int, limit: float) -> Measure:
    """Return how far a number rose above the last good one."""
    return Measure(subject, what, share(max(now - before, 0), before), limit)


def share(part: int, whole: int) -> float:
    """Return a part in percent of the whole; 100 for any part of nothing."""
    if whole:
        return 100.0 * part / whole
    return 100.0 if part else 0.0


def exceeded(measures: Iterable[Measure]) -> tuple[Measure, ...]:
    return tuple(measure for measure in measures if measure.exceeded)
