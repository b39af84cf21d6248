"""The trend of a source: its records and its changes over the last hours or days."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from uuid import UUID
from zoneinfo import ZoneInfo

from hasat.store import Store
from hasat.store.queries import load_query

# The step of the trend by the age of the mirror, so that a new one shows something too.
_STEPS = (
    (timedelta(hours=3), timedelta(minutes=5), 24),
    (timedelta(days=2), timedelta(hours=1), 24),
    (timedelta.max, timedelta(days=1), 14),
)


@dataclass(frozen=True)
class Point:
    """The records at the end of an interval, and the changes in it."""

    since: datetime
    until: datetime
    records: int
    changes: int


@dataclass(frozen=True)
class Trend:
    """The points of a source, oldest first, all of the same length."""

    step_seconds: float
    points: Sequence[Point]

    @property
    def days(self) -> bool:
        """Whether each point is a calendar day."""
        return self.step_seconds >= timedelta(days=1).total_seconds()


@dataclass(frozen=True)
class _State:
    """The state of a dataset at one edge."""

    source: str
    dataset: str
    edge: datetime
    epoch: UUID
    seq: int
    records: int
    first_seq: int
    """The change before the first one that is known."""


async def load_trends(store: Store, now: datetime, zone: ZoneInfo) -> Mapping[str, Trend]:
    """Return the trend of every source that has data.

    Numbers of changes are dense, so two versions show how many lie between them, and no change is
    read.
    """
    async with store.connection() as conn:
        row = await (await conn.execute(load_query("hasat.web", "first_version"))).fetchone()
    oldest = row[0] if row else None
    if oldest is None:
        return {}
    step, edges = _edges(now, now - oldest, zone)
    states = await store.rows(_State, load_query("hasat.web", "trend"), {"edges": list(edges)})
    by_source: dict[str, dict[str, dict[datetime, _State]]] = {}
    for one in states:
        by_source.setdefault(one.source, {}).setdefault(one.dataset, {})[one.edge] = one
    return {
        source: Trend(step.total_seconds(), [_point(datasets, *pair) for pair in pairwise(edges)])
        for source, datasets in by_source.items()
    }


def _edges(now: datetime, age: timedelta, zone: ZoneInfo) -> tuple[timedelta, Sequence[datetime]]:
    """Return the step and the edges of the intervals; days begin at midnight in the zone."""
    step, count = next((step, count) for limit, step, count in _STEPS if age < limit)
    if step < timedelta(days=1):
        return step, [now - step * number for number in range(count, -1, -1)]
    midnight = now.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0)
    return step, [*(midnight - step * number for number in range(count - 1, -1, -1)), now]


def _point(
    datasets: Mapping[str, Mapping[datetime, _State]], since: datetime, until: datetime
) -> Point:
    ends = [(states.get(since), states[until]) for states in datasets.values() if until in states]
    return Point(
        since,
        until,
        sum(end.records for _, end in ends),
        sum(_changes(before, end) for before, end in ends),
    )


def _changes(before: _State | None, end: _State) -> int:
    if before is None:
        return max(0, end.seq - end.first_seq)
    return max(0, end.seq - before.seq)
