"""Geometry of the charts, and JSON of pages."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from hasat.web.charts import DayUsage, day_chart, timeline
from hasat.web.rendering import to_json

ZONE = ZoneInfo("Europe/Istanbul")
MIDNIGHT = datetime(2026, 11, 16, tzinfo=UTC)


@dataclass(frozen=True)
class Span:
    run: int
    runs: int
    job: str
    status: str
    started_at: datetime
    finished_at: datetime | None


def points(text: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in (one.split(",") for one in text.split())]


def test_usage_is_drawn_up_to_now_and_the_pace_ends_at_the_target() -> None:
    noon = MIDNIGHT + timedelta(hours=12)
    day = DayUsage(noon, MIDNIGHT, MIDNIGHT + timedelta(days=1), 1000, 0.5, [50] * 12 + [0] * 12)
    chart = day_chart(day, ZONE)
    line, pace = points(chart.line), points(chart.pace)
    assert line[-1][0] == chart.now_x
    # 600 of 1000 at noon is above the pace to 500 at midnight, and never falls.
    assert line[-1][1] < pace[-1][1]
    assert [y for _, y in line] == sorted((y for _, y in line), reverse=True)
    assert pace[0] == (chart.left, chart.bottom)
    assert abs((chart.bottom - pace[-1][1]) - (chart.bottom - chart.limit_y) / 2) < 0.2


def test_days_without_a_limit_and_above_the_limit_can_be_drawn() -> None:
    for limit, by_hour in ((None, [0] * 24), (10, [500] + [0] * 23), (None, [3] * 25)):
        day = DayUsage(MIDNIGHT, MIDNIGHT, MIDNIGHT + timedelta(days=1), limit, 0.9, by_hour)
        assert all(y >= 0 for _, y in points(day_chart(day, ZONE).line))


def test_bars_stay_inside_the_timeline_and_are_wide_enough() -> None:
    now = MIDNIGHT + timedelta(hours=6)
    ran = [
        Span(1, 1, "old", "done", MIDNIGHT - timedelta(hours=5), MIDNIGHT + timedelta(hours=1)),
        Span(2, 1, "short", "failed", now, now),
        Span(3, 1, "short", "running", MIDNIGHT, None),
    ]
    drawn = timeline(ran, MIDNIGHT, now, ZONE)
    assert [row.job for row in drawn.rows] == ["old", "short"]
    for bar in (bar for row in drawn.rows for bar in row.bars):
        assert bar.x >= 0
        assert bar.x + bar.width <= 100.01
        assert bar.width >= 0.4
    assert [tick.label for tick in drawn.ticks] == [f"0{hour}:00" for hour in range(4, 9)]


def test_json_has_camel_case_fields_and_unchanged_data_keys() -> None:
    document = to_json(Span(1, 1, "a_b", "done", MIDNIGHT, None))
    assert document == {
        "run": 1,
        "runs": 1,
        "job": "a_b",
        "status": "done",
        "startedAt": "2026-11-16T00:00:00+00:00",
        "finishedAt": None,
    }
    assert to_json({"fixture_events": [document]}) == {"fixture_events": [document]}
