"""Geometry of the charts that templates draw as SVG, without scripts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo

WIDTH = 960
_MIN_BAR_PERCENT = 0.4
_TICK_MINUTES = (5, 10, 15, 30, 60, 120, 180, 360, 720, 1440)


class RunSpan(Protocol):
    """The time span of a run, or of several in close succession; `run` is the newest."""

    @property
    def run(self) -> int: ...
    @property
    def runs(self) -> int: ...
    @property
    def job(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def started_at(self) -> datetime: ...
    @property
    def finished_at(self) -> datetime | None: ...


@dataclass(frozen=True)
class DayUsage:
    """The requests of a quota day by hour, up to now."""

    now: datetime
    starts_at: datetime
    ends_at: datetime
    limit: int | None
    target: float
    by_hour: Sequence[int]


@dataclass(frozen=True)
class Tick:
    """A labelled position on an axis."""

    at: float
    label: str


@dataclass(frozen=True)
class Bar:
    """One or several runs on the timeline, in percent of its width."""

    x: float
    width: float
    status: str
    run: int
    runs: int


@dataclass(frozen=True)
class Row:
    """The runs of one job."""

    job: str
    bars: Sequence[Bar]


@dataclass(frozen=True)
class Timeline:
    """Runs as bars over time, one row per job."""

    rows: Sequence[Row]
    ticks: Sequence[Tick]


def min_gap(span: timedelta) -> timedelta:
    """Return the smallest gap between two runs that a timeline of this length can show."""
    return span * (_MIN_BAR_PERCENT / 100)


def timeline(spans: Iterable[RunSpan], since: datetime, now: datetime, zone: ZoneInfo) -> Timeline:
    """Place the runs; every bar is wide enough to be seen and clicked."""
    scale = 100 / (now - since).total_seconds()
    jobs: dict[str, list[Bar]] = {}
    for one in spans:
        begin = max(0.0, (one.started_at - since).total_seconds())
        end = max(begin, ((one.finished_at or now) - since).total_seconds())
        width = max(_MIN_BAR_PERCENT, (end - begin) * scale)
        x = min(begin * scale, 100 - width)
        bar = Bar(round(x, 2), round(width, 2), one.status, one.run, one.runs)
        jobs.setdefault(one.job, []).append(bar)
    rows = [Row(job, jobs[job]) for job in sorted(jobs)]
    return Timeline(rows, time_ticks(since, now, zone, 100, 0))


def time_ticks(
    since: datetime, until: datetime, zone: ZoneInfo, width: int, left: int
) -> Sequence[Tick]:
    """Return at most ten round times of day."""
    minutes = (until - since).total_seconds() / 60
    step = next((one for one in _TICK_MINUTES if minutes / one <= 10), _TICK_MINUTES[-1])
    local = since.astimezone(zone)
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
    passed = int((local - midnight).total_seconds() // (step * 60)) + 1
    ticks = []
    moment = midnight + timedelta(minutes=passed * step)
    while moment < until:
        share = (moment - since).total_seconds() / 60 / minutes
        ticks.append(Tick(round(left + share * (width - left), 1), f"{moment:%H:%M}"))
        moment += timedelta(minutes=step)
    return ticks


@dataclass(frozen=True)
class Sparkline:
    """A small chart without axes: bars from zero, or a line between its extremes."""

    width: int
    height: int
    line: str
    area: str
    bars: Sequence[tuple[float, float, float]]
    """The place, the height and the width of each bar."""


def sparkline(
    values: Sequence[float], width: int = 120, height: int = 28, slots: int = 1
) -> Sparkline:
    """Draw values as a line, which shows small differences, and as bars, which begin at zero.

    There is room for at least `slots` values, so that few bars are not wide.
    """
    low, high = min(values, default=0), max(values, default=0)
    inner = height - 4
    step = width / max(slots, len(values))

    def y(value: float) -> float:
        share = (value - low) / (high - low) if high > low else 0.5
        return round(2 + inner * (1 - share), 1)

    spots = [(round((at + 0.5) * step, 1), y(value)) for at, value in enumerate(values)]
    line = " ".join(f"{x},{y}" for x, y in spots)
    ends = f"{spots[-1][0]},{height} {spots[0][0]},{height}" if spots else ""
    bars = [
        (round(at * step, 2), round(max(1.5, inner * value / high), 1) if value else 0, step * 0.7)
        for at, value in enumerate(values)
    ]
    return Sparkline(width, height, line, f"{line} {ends}", bars)


@dataclass(frozen=True)
class DayChart:
    """Usage over a quota day with the pace that reaches the target and the limit."""

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


def day_chart(day: DayUsage, zone: ZoneInfo) -> DayChart:
    """Draw cumulative usage up to now and the straight line to the target."""
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
