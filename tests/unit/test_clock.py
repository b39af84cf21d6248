from datetime import UTC, datetime, timedelta

import pytest

from hasat.clock import system_clock, zone
from hasat.errors import SettingsError, UsageError
from hasat.sim.clock import SettableClock


def test_the_system_clock_is_aware_and_in_utc() -> None:
    assert system_clock().tzinfo is UTC


@pytest.mark.parametrize("name", ["Europe/Istambul", "", "../etc/passwd", "Europe"])
def test_a_zone_that_does_not_exist_is_named_in_the_error(name: str) -> None:
    with pytest.raises(SettingsError, match="no time zone"):
        zone(name)


def test_a_turnable_clock_stops_jumps_and_runs_at_any_speed() -> None:
    ticks = [100.0]
    start = datetime(2026, 1, 1, tzinfo=UTC)
    clock = SettableClock(start, speed=60, ticks=lambda: ticks[0])
    ticks[0] += 2
    assert clock() == start + timedelta(minutes=2)
    clock.set_speed(0)
    ticks[0] += 1000
    assert clock() == start + timedelta(minutes=2)
    clock.advance(30)
    assert clock() == start + timedelta(minutes=2, seconds=30)
    clock.set_time(start)
    assert clock() == start


def test_a_turnable_clock_refuses_what_cannot_be() -> None:
    with pytest.raises(UsageError, match="no time zone"):
        SettableClock(datetime(2026, 1, 1))  # noqa: DTZ001 - that is the point
    with pytest.raises(UsageError, match="backwards"):
        SettableClock().set_speed(-1)
