"""The rate limit: bursts pass, the mean holds, memory does not grow."""

import random

import pytest

from hasat.serve.limits import Buckets, neighbourhood


class Watch:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_a_minutes_worth_passes_at_once_and_then_the_caller_must_wait() -> None:
    buckets = Buckets(60, monotonic=Watch())
    drawn = [buckets.draw("a") for _ in range(61)]
    assert [allowance.remaining for allowance in drawn if allowance][:3] == [59, 58, 57]
    assert drawn[59] is not None
    assert drawn[59].retry_after is None
    assert drawn[60] is not None
    assert drawn[60].retry_after == 1
    assert drawn[60].remaining == 0


def test_waiting_as_long_as_told_is_enough() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(200):
        watch = Watch()
        buckets = Buckets(chance.choice([1, 7, 60, 600]), monotonic=watch)
        while (allowance := buckets.draw("a")) and allowance.retry_after is None:
            watch.seconds += chance.random() / 100
        assert allowance is not None
        assert allowance.retry_after is not None
        watch.seconds += allowance.retry_after
        again = buckets.draw("a")
        assert again is not None
        assert again.retry_after is None


def test_over_a_long_time_nobody_gets_more_than_the_burst_and_the_rate() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance, watch = random.Random(seed), Watch()
    buckets = Buckets(120, monotonic=watch)
    passed = 0
    for _ in range(20_000):
        watch.seconds += chance.expovariate(30)
        allowance = buckets.draw("a")
        passed += allowance is not None and allowance.retry_after is None
    assert passed <= 120 + 2 * watch.seconds + 1


def test_callers_do_not_share_a_bucket() -> None:
    buckets = Buckets(1, monotonic=Watch())
    assert [
        allowance.retry_after for allowance in (buckets.draw("a"), buckets.draw("b")) if allowance
    ] == [
        None,
        None,
    ]


def test_reset_says_when_the_bucket_is_full_again() -> None:
    watch = Watch()
    buckets = Buckets(60, monotonic=watch)
    *_, allowance = [buckets.draw("a") for _ in range(30)]
    assert allowance is not None
    assert allowance.reset_seconds == 30
    watch.seconds += allowance.reset_seconds
    full = buckets.draw("a")
    assert full is not None
    assert full.remaining == 59


def test_zero_means_no_limit() -> None:
    assert Buckets(0).draw("a") is None


def test_memory_is_bounded_and_the_busy_are_remembered() -> None:
    buckets = Buckets(2, at_most=100, monotonic=Watch())
    for number in range(5_000):
        buckets.draw(f"flood {number}")
        buckets.draw("busy")
    busy = buckets.draw("busy")
    assert len(buckets) == 100
    assert busy is not None
    assert busy.retry_after is not None


@pytest.mark.parametrize(
    ("address", "counts_as"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("not an address", "not an address"),
    ],
)
def test_one_network_of_an_ipv6_user_counts_as_one_address(address: str, counts_as: str) -> None:
    assert neighbourhood(address) == counts_as
