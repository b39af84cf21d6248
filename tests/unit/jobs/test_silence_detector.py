"""Who counts as dead: silence by two clocks, so that a turned clock kills nobody."""

from datetime import UTC, datetime, timedelta

from hasat.jobs.recovery import SilenceDetector

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def test_a_worker_is_given_up_after_it_was_watched_in_silence_for_long_enough() -> None:
    watch = SilenceDetector(20)
    assert all(not watch.silent({1: at(0)}, at(t), t) for t in range(0, 20, 5))
    assert watch.silent({1: at(0)}, at(21), 21) == {1: at(0)}


def test_a_worker_that_beats_is_never_given_up() -> None:
    watch = SilenceDetector(20)
    assert all(not watch.silent({1: at(t)}, at(t + 2), t) for t in range(0, 500, 5))


def test_an_old_sign_of_life_alone_condemns_nobody() -> None:
    """The database's clock jumps a day ahead; the worker beats on its next turn."""
    watch = SilenceDetector(20)
    day = 86_400
    assert not watch.silent({1: at(0)}, at(1), 1)
    assert not watch.silent({1: at(0)}, at(day), 5)
    assert not watch.silent({1: at(day + 1)}, at(day + 6), 10)


def test_silence_on_the_watch_alone_condemns_nobody() -> None:
    """The database's clock stands still: every beat looks like the one before."""
    watch = SilenceDetector(20)
    assert all(not watch.silent({1: at(0)}, at(0), t) for t in range(0, 200, 5))


def test_a_worker_that_died_before_the_clock_was_turned_back_is_given_up() -> None:
    watch = SilenceDetector(20)
    found = [watch.silent({1: at(0)}, at(-86_400 + t), t) for t in range(0, 30, 5)]
    assert found[-1] == {1: at(0)}


def test_an_observer_that_was_held_up_starts_watching_anew() -> None:
    watch = SilenceDetector(20)
    assert not watch.silent({1: at(0)}, at(0), 0)
    assert not watch.silent({1: at(0)}, at(100), 100)
    assert not watch.silent({1: at(0)}, at(110), 110)
    assert watch.silent({1: at(0)}, at(120), 120) == {1: at(0)}


def test_workers_that_are_gone_are_forgotten() -> None:
    watch = SilenceDetector(20)
    for t in range(0, 20, 5):
        watch.silent({1: at(0), 2: at(t)}, at(t), t)
    assert not watch.silent({2: at(20)}, at(21), 21)
