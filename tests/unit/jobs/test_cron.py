"""Due times of cron expressions, compared with a minute-by-minute reference."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hasat.errors import SettingsError
from hasat.jobs.cron import GRACE, Cron, Due, due_now

MINUTE = timedelta(minutes=1)
NEW_YEAR = datetime(2024, 1, 1, tzinfo=UTC)


def dues(expression: str, zone: str, after: datetime, until: datetime) -> list[datetime]:
    cron = Cron.parse(expression, zone)
    found = []
    while (after := cron.after(after)) <= until:
        found.append(after)
    return found


def local_days(expression: str, zone: str, first: str, days: int) -> list[str]:
    tz = ZoneInfo(zone)
    start = datetime.fromisoformat(first).replace(tzinfo=tz).astimezone(UTC) - MINUTE
    found = dues(expression, zone, start, start + timedelta(days=days))
    return [f"{due.astimezone(tz):%m-%d %H:%M %z}" for due in found]


@pytest.mark.parametrize(
    ("zone", "first", "expected"),
    [
        # 02:30 does not exist on 29 March: the first minute after the gap stands for it.
        ("Europe/Berlin", "2026-03-28", ["28 02:30 +0100", "29 03:00 +0200", "30 02:30 +0200"]),
        # 02:30 comes twice on 25 October: the first one counts.
        ("Europe/Berlin", "2026-10-24", ["24 02:30 +0200", "25 02:30 +0200", "26 02:30 +0100"]),
        ("America/New_York", "2026-03-07", ["07 02:30 -0500", "08 03:00 -0400", "09 02:30 -0400"]),
        ("America/New_York", "2026-10-31", ["31 02:30 -0400", "01 02:30 -0500", "02 02:30 -0500"]),
        ("Europe/Istanbul", "2026-03-28", ["28 02:30 +0300", "29 02:30 +0300", "30 02:30 +0300"]),
        ("Europe/Istanbul", "2026-10-24", ["24 02:30 +0300", "25 02:30 +0300", "26 02:30 +0300"]),
    ],
)
def test_a_job_at_half_past_two_runs_once_a_day(zone: str, first: str, expected: list[str]) -> None:
    found = local_days("30 2 * * *", zone, first, days=3)
    assert [line[3:] for line in found] == expected


def test_a_time_that_occurs_twice_in_new_york_counts_the_first_time() -> None:
    found = local_days("30 1 * * *", "America/New_York", "2026-10-31", days=3)
    assert [line[3:] for line in found] == ["31 01:30 -0400", "01 01:30 -0400", "02 01:30 -0500"]


@pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25"])
def test_a_job_every_ten_minutes_keeps_its_pace_when_clocks_change(day: str) -> None:
    start = datetime.fromisoformat(day).replace(tzinfo=UTC)
    found = dues("*/10 * * * *", "Europe/Berlin", start, start + timedelta(hours=6))
    assert found == [start + timedelta(minutes=10 * (n + 1)) for n in range(36)]


@dataclass(frozen=True)
class Field:
    text: str
    values: frozenset[int]

    def __contains__(self, value: int) -> bool:
        return value in self.values


def field(low: int, high: int, most: int | None = None) -> st.SearchStrategy[Field]:
    # `most`: day 31 of a month that has none would be no cron at all.
    every = frozenset(range(low, high + 1))
    steps = st.sampled_from([2, 5, 10, 15, 20, 30]).map(
        lambda n: Field(f"*/{n}", frozenset(range(low, high + 1, n)))
    )
    chosen = st.frozensets(st.integers(low, most or high), min_size=1, max_size=4).map(
        lambda values: Field(",".join(map(str, sorted(values))), values)
    )
    return st.one_of(st.just(Field("*", every)), steps, chosen)


@dataclass(frozen=True)
class Spec:
    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field

    def __str__(self) -> str:
        parts = (self.minute, self.hour, self.day, self.month, self.weekday)
        return " ".join(part.text for part in parts)

    def matches(self, wall: datetime) -> bool:
        on_day, on_weekday = wall.day in self.day, wall.isoweekday() % 7 in self.weekday
        both = self.day.text.startswith("*") or self.weekday.text.startswith("*")
        return (
            wall.minute in self.minute
            and wall.hour in self.hour
            and wall.month in self.month
            and (on_day and on_weekday if both else on_day or on_weekday)
        )


specs = st.builds(
    Spec, field(0, 59), field(0, 23), field(1, 31, most=28), field(1, 12), field(0, 6)
)
daily = st.builds(
    Spec,
    field(0, 59),
    field(0, 23, most=4),
    st.just(Field("*", frozenset(range(1, 32)))),
    st.just(Field("*", frozenset(range(1, 13)))),
    st.just(Field("*", frozenset(range(7)))),
)
zones = st.sampled_from(["Europe/Berlin", "America/New_York", "Europe/Istanbul", "UTC"])
changes = st.sampled_from(
    [
        datetime(2026, 3, 29, 1, tzinfo=UTC),
        datetime(2026, 10, 25, 1, tzinfo=UTC),
        datetime(2026, 3, 8, 7, tzinfo=UTC),
        datetime(2026, 11, 1, 6, tzinfo=UTC),
    ]
)


def reference(spec: Spec, zone: str, after: datetime, until: datetime) -> list[datetime]:
    tz = ZoneInfo(zone)
    fixed_time = not (spec.minute.text.startswith("*") or spec.hour.text.startswith("*"))
    found = []
    instant = after.replace(second=0, microsecond=0) + MINUTE
    while instant <= until:
        wall = instant.astimezone(tz)
        due = spec.matches(wall.replace(tzinfo=None))
        if fixed_time:
            due = due and wall.fold == 0
            previous = (instant - MINUTE).astimezone(tz).replace(tzinfo=None)
            while (previous := previous + MINUTE) < wall.replace(tzinfo=None):
                due = due or spec.matches(previous)
        if due:
            found.append(instant)
        instant += MINUTE
    return found


@settings(max_examples=60)
@given(
    spec=st.one_of(specs, daily),
    zone=zones,
    around=changes,
    start=st.timedeltas(timedelta(hours=-30), timedelta(hours=3)),
    length=st.timedeltas(timedelta(0), timedelta(hours=40)),
)
@example(
    spec=Spec(
        Field("30", frozenset({30})),
        Field("2", frozenset({2})),
        Field("*", frozenset(range(1, 32))),
        Field("*", frozenset(range(1, 13))),
        Field("*", frozenset(range(7))),
    ),
    zone="Europe/Berlin",
    around=datetime(2026, 10, 25, 1, tzinfo=UTC),
    start=timedelta(minutes=10),  # inside the second coming of the hour
    length=timedelta(hours=2),
)
def test_due_times_match_the_reference(
    spec: Spec, zone: str, around: datetime, start: timedelta, length: timedelta
) -> None:
    after, until = around + start, around + start + length
    expected = reference(spec, zone, after, until)
    assert dues(str(spec), zone, after, until) == expected
    newest = Cron.parse(str(spec), zone).newest(after, until)
    assert newest == (expected[-1] if expected else None)


@settings(max_examples=60)
@given(
    spec=specs,
    zone=zones,
    now=st.timedeltas(timedelta(0), timedelta(days=1100)).map(lambda age: NEW_YEAR + age),
    away=st.timedeltas(timedelta(0), timedelta(days=200)),
)
def test_the_newest_due_is_the_last_one_however_long_the_outage(
    spec: Spec, zone: str, now: datetime, away: timedelta
) -> None:
    cron = Cron.parse(str(spec), zone)
    newest = cron.newest(now - away, now)
    if newest is None:
        assert cron.after(now - away) > now
    else:
        assert now - away < newest <= now
        assert cron.after(newest) > now


AT = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
EVERY_MINUTE = Cron.parse("* * * * *", "UTC")


def test_after_an_outage_only_the_newest_due_time_is_run() -> None:
    assert due_now(EVERY_MINUTE, "once", AT, AT + timedelta(hours=5, seconds=30)) == Due(
        AT + timedelta(hours=5), fire=True
    )


def test_a_job_that_skips_missed_times_is_only_run_within_the_grace_period() -> None:
    hourly = Cron.parse("0 * * * *", "UTC")
    late = AT + timedelta(hours=1) + GRACE
    assert due_now(hourly, "skip", AT, late) == Due(AT + timedelta(hours=1), fire=True)
    assert due_now(hourly, "skip", AT, late + timedelta(seconds=1)) == Due(
        AT + timedelta(hours=1), fire=False
    )
    assert due_now(hourly, "once", AT, late + timedelta(days=30, seconds=1)) is not None


def test_nothing_is_due_early_or_after_the_clock_was_set_back() -> None:
    assert due_now(EVERY_MINUTE, "once", AT, AT + timedelta(seconds=59)) is None
    assert due_now(EVERY_MINUTE, "once", AT, AT - timedelta(days=1)) is None


@pytest.mark.parametrize(
    ("expression", "zone"),
    [
        ("* * * *", "UTC"),
        ("0 * * * * *", "UTC"),
        ("@daily", "UTC"),
        ("61 * * * *", "UTC"),
        ("0 0 31 2 *", "UTC"),
        ("0 0 * * *", "Europe/Atlantis"),
    ],
)
def test_an_invalid_expression_is_rejected(expression: str, zone: str) -> None:
    with pytest.raises(SettingsError):
        Cron.parse(expression, zone)
