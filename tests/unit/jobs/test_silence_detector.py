"""A worker is given up only if two clocks agree that it is silent."""

from datetime import UTC, datetime, timedelta

from hasat.jobs.recovery import SilenceDetector

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def test_a_silent_worker_is_given_up_after_the_stall_time() -> None:
    watch = SilenceDetector(20)
    assert all(not watch.silent({1: at(0)}, at(t), t) for t in range(0, 20, 5))
    assert watch.silent({1: at(0)}, at(21), 21) == {1: at(0)}


def test_a_worker_with_heartbeats_is_never_given_up() -> None:
    watch = SilenceDetector(20)
    assert all(not watch.silent({1: at(t)}, at(t + 2), t) for t in range(0, 500, 5))


def test_an_old_heartbeat_alone_is_not_enough() -> None:
    """The database's clock jumps a day ahead; the worker beats on its next turn."""
    watch = SilenceDetector(20)
    day = 86_400
    assert not watch.silent({1: at(0)}, at(1), 1)
    assert not watch.silent({1: at(0)}, at(day), 5)
    assert not watch.silent({1: at(day + 1)}, at(day + 6), 10)


def test_silence_on_the_monotonic_clock_alone_is_not_enough() -> None:
    """The database's clock stands still: every beat looks like the one before."""
    watch = SilenceDetector(20)
    assert all(not watch.silent({1: at(0)}, at(0), t) for t in range(0, 200, 5))


def test_a_worker_that_died_before_the_clock_was_set_back_is_given_up() -> None:
    watch = SilenceDetector(20)
    found = [watch.silent({1: at(0)}, at(-86_400 + t), t) for t in range(0, 30, 5)]
    assert found[-1] == {1: at(0)}


def test_a_blocked_observer_starts_again() -> None:
    watch = SilenceDetector(20)
    assert not watch.silent({1: at(0)}, at(0), 0)
    assert not watch.silent({1: at(0)}, at(100), 100)
    assert not watch.silent({1: at(0)}, at(110), 110)
    assert watch.silent({1: at(0)}, at(120), 120) == {1: at(0)}


def test_removed_workers_are_forgotten() -> None:
    watch = SilenceDetector(20)
    for t in range(0, 20, 5):
        watch.silent({1: at(0), 2: at(t)}, at(t), t)
    assert not watch.silent({2: at(20)}, at(21), 21)
