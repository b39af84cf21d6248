"""Where the lines and bars of a chart go; templates draw them, so they need no script."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo

WIDTH = 960
# A run on the time line, in percent of its width.
_NARROWEST = 0.4
_TICKS = (5, 10, 15, 30, 60, 120, 180, 360, 720, 1440)


class RunStretch(Protocol):
    """When a run was at work, or some that followed each other; `run` is the newest."""

    @property
    def run(self) -> int: ...
    @property
    def runs(self) -> int: ...
    @property
    def job(self) -> str: ...
    @property
    def how(self) -> str: ...
    @property
    def started_at(self) -> datetime: ...
    @property
    def finished_at(self) -> datetime | None: ...


@dataclass(frozen=True)
class SpentDay:
    """A quota day as far as it has come: what each of its hours cost."""

    now: datetime
    starts_at: datetime
    ends_at: datetime
    limit: int | None
    target: float
    by_hour: Sequence[int]


@dataclass(frozen=True)
class Tick:
    """A labelled place on an axis."""

    at: float
    label: str


@dataclass(frozen=True)
class Bar:
    """A run on the time line, or some that cannot be told apart there; in percent of its width."""

    x: float
    width: float
    how: str
    run: int
    runs: int


@dataclass(frozen=True)
class Row:
    """A job on the time line."""

    job: str
    bars: Sequence[Bar]


@dataclass(frozen=True)
class Timeline:
    """Runs as bars over time, a row for each job; as wide as there is room."""

    rows: Sequence[Row]
    ticks: Sequence[Tick]


def too_close(span: timedelta) -> timedelta:
    """Runs with less than that between them cannot be told apart on a time line."""
    return span * (_NARROWEST / 100)


def timeline(
    stretches: Iterable[RunStretch], since: datetime, now: datetime, zone: ZoneInfo
) -> Timeline:
    """The geometry; every run is wide enough to be seen and clicked."""
    scale = 100 / (now - since).total_seconds()
    jobs: dict[str, list[Bar]] = {}
    for one in stretches:
        begin = max(0.0, (one.started_at - since).total_seconds())
        end = max(begin, ((one.finished_at or now) - since).total_seconds())
        width = max(_NARROWEST, (end - begin) * scale)
        x = min(begin * scale, 100 - width)
        bar = Bar(round(x, 2), round(width, 2), one.how, one.run, one.runs)
        jobs.setdefault(one.job, []).append(bar)
    rows = [Row(job, jobs[job]) for job in sorted(jobs)]
    return Timeline(rows, time_ticks(since, now, zone, 100, 0))


def time_ticks(
    since: datetime, until: datetime, zone: ZoneInfo, width: int, left: int
) -> Sequence[Tick]:
    """At most ten round clock times."""
    minutes = (until - since).total_seconds() / 60
    step = next((one for one in _TICKS if minutes / one <= 10), _TICKS[-1])
    there = since.astimezone(zone)
    midnight = there.replace(hour=0, minute=0, second=0, microsecond=0)
    passed = int((there - midnight).total_seconds() // (step * 60)) + 1
    ticks = []
    moment = midnight + timedelta(minutes=passed * step)
    while moment < until:
        share = (moment - since).total_seconds() / 60 / minutes
        ticks.append(Tick(round(left + share * (width - left), 1), f"{moment:%H:%M}"))
        moment += timedelta(minutes=step)
    return ticks


@dataclass(frozen=True)
class DayChart:
    """Spending over a quota day: what was spent, the pace that reaches the target, the limit."""

    width: int
    height: int
    left: int
    bottom: int
    line: str
    area: str
    pace: str
    limit_y: float
    now_x: float
    ticks_x: Sequence[Tick]
    ticks_y: Sequence[Tick]


def day_chart(day: SpentDay, zone: ZoneInfo) -> DayChart:
    """Cumulative spending by the hour up to now, against the straight line to the target."""
    left, top, height = 64, 14, 300
    bottom = height - 26
    span = (day.ends_at - day.starts_at).total_seconds()
    total = sum(day.by_hour)
    highest = max(day.limit or 0, total, 4)

    def x(seconds: float) -> float:
        return round(left + (WIDTH - 12 - left) * max(0.0, min(seconds / span, 1.0)), 1)

    def y(units: float) -> float:
        return round(bottom - (bottom - top) * units / highest, 1)

    passed = (day.now - day.starts_at).total_seconds()
    points, spent = [(x(0), y(0))], 0
    for hour, units in enumerate(day.by_hour):
        if hour * 3600 >= passed:
            break
        spent += units
        points.append((x(min((hour + 1) * 3600, passed)), y(spent)))
    line = " ".join(f"{a},{b}" for a, b in points)
    target = (day.limit or 0) * day.target
    hours = [
        Tick(tick.at, tick.label)
        for tick in time_ticks(day.starts_at, day.ends_at, zone, WIDTH - 12, left)
    ]
    return DayChart(
        WIDTH,
        height,
        left,
        bottom,
        line,
        f"{line} {points[-1][0]},{bottom} {left},{bottom}",
        f"{x(0)},{y(0)} {x(span)},{y(target)}",
        y(day.limit or 0),
        x(passed),
        hours,
        [Tick(y(highest * part / 4), str(round(highest * part / 4))) for part in range(5)],
    )
