"""Forecasts from the requests of the last hour."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hasat.budget.quota import Spending, forecast

MIDNIGHT = datetime(2026, 3, 10, tzinfo=UTC)


def spending(hour: float, **more: int | bool) -> Spending:
    values: dict[str, Any] = {
        "usable": 67_500,
        "to_target": 67_500,
        "others_last_hour": 0,
        "paced_last_hour": 0,
        "has_paced": True,
    } | more
    return Spending(
        now=MIDNIGHT + timedelta(hours=hour),
        starts_at=MIDNIGHT,
        ends_at=MIDNIGHT + timedelta(days=1),
        zone="UTC",
        target=0.9,
        **values,
    )


def test_the_time_of_running_out_is_exact_to_the_minute() -> None:
    said = forecast(spending(20, usable=3_000, to_target=3_000, others_last_hour=1_800))
    assert (said.kind, said.sentence) == ("runs_out", "runs out 21:40 UTC")


def test_the_unused_rest_is_reported() -> None:
    said = forecast(spending(22, usable=5_000, to_target=5_000, paced_last_hour=450))
    assert (said.kind, said.unused, said.sentence) == (
        "unused",
        4_100,
        "4,100 of the target of 90% unused at 24:00 UTC",
    )


def test_paced_lanes_that_keep_up_reach_the_target() -> None:
    said = forecast(spending(12, usable=30_000, to_target=30_000, paced_last_hour=2_550))
    assert said.kind == "on_target"


def test_a_spent_day_shows_its_reset() -> None:
    said = forecast(spending(12, usable=0, to_target=0))
    assert (said.kind, said.sentence) == ("spent", "spent until 24:00 UTC")


def test_without_paced_lanes_the_whole_quota_counts() -> None:
    said = forecast(spending(12, usable=900, to_target=0, has_paced=False))
    assert (said.kind, said.sentence) == ("unused", "900 unused at 24:00 UTC")


@pytest.mark.parametrize("hour", [0, 0.01, 23.999])
def test_the_first_and_last_minutes_of_a_day(hour: float) -> None:
    assert forecast(spending(hour, others_last_hour=5, paced_last_hour=5)).sentence
