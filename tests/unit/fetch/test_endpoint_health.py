"""Latency sketches, token budgets, throttles, cooldowns and the choice of an endpoint."""

import math
import random

import pytest

from hasat.fetch import Outcome, Request, Verdict, retry_after
from hasat.fetch.endpoint_state import EndpointState, choose
from hasat.fetch.fetcher import TokenBudget
from hasat.fetch.health import (
    CostEstimate,
    EndpointRecord,
    LatencySketch,
    Measurement,
    Throttle,
    cost_of,
    effect_of,
)
from hasat.fetch.workers_file import Endpoint

FRESH = EndpointRecord(points=1, learned=None, streak=0, rest_level=0)


def test_quantiles_are_right_to_five_percent() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    values = [rng.lognormvariate(-2, 1) for _ in range(900)]
    sketch = LatencySketch()
    for value in values:
        sketch.add(value)
    again = LatencySketch.from_bytes(sketch.to_bytes())
    for share in (0.5, 0.9, 0.95, 0.99):
        exact = sorted(values)[math.ceil(share * len(values)) - 1]
        found = again.quantile(share)
        assert found is not None
        assert exact * 0.9999 < found < exact * 1.0501


def test_a_sketch_forgets_and_never_grows() -> None:
    sketch = LatencySketch()
    for _ in range(5000):
        sketch.add(1.0)
    for _ in range(3000):
        sketch.add(0.01)
    usual = sketch.quantile(0.5)
    assert usual is not None
    assert usual < 0.02
    assert len(sketch.to_bytes()) == len(LatencySketch().to_bytes())


def test_extreme_times_are_counted_too() -> None:
    sketch = LatencySketch()
    for seconds in (0.0, -1.0, 1e9):
        sketch.add(seconds)
    assert sketch.total == 3
    assert LatencySketch.from_bytes(b"nonsense").quantile(0.5) is None


def test_extra_requests_stay_a_share_of_all() -> None:
    tokens = TokenBudget(0.02, max_saved=10.0)
    extra = 0
    for _ in range(1000):
        tokens.earn()
        extra += tokens.spend()
    assert 15 <= extra <= 20


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "120"}, 120.0),
        ({"retry-after": " 7 "}, 7.0),
        (
            {
                "retry-after": "Mon, 16 Nov 2026 04:01:00 GMT",
                "date": "Mon, 16 Nov 2026 04:00:00 GMT",
            },
            60.0,
        ),
        ({"retry-after": "Mon, 16 Nov 2020 04:01:00 GMT"}, 0.0),
        ({"retry-after": "999999999999"}, 3_600.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-5"}, None),
        ({}, None),
    ],
)
def test_retry_after_in_both_forms(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def effect(
    verdict: Verdict, status: int | None = None, record: EndpointRecord = FRESH
) -> float | None:
    return effect_of(record, verdict, status, points=1, cooldown=300.0).rest


def test_cooldowns_grow_by_cause_up_to_a_maximum() -> None:
    limited = Verdict(Outcome.MINUTE_LIMITED)
    levels = [EndpointRecord(1, None, 0, level) for level in range(30)]
    refused = [effect(limited, 403, record) for record in levels]
    assert refused[:3] == [300.0, 600.0, 1200.0]
    assert refused[-1] == 6 * 3600.0
    too_many = [effect(limited, 429, record) for record in levels]
    assert (too_many[0], too_many[-1]) == (60.0, 900.0)
    assert effect(Verdict(Outcome.MINUTE_LIMITED, "", 33.0), 429) == 33.0


def test_single_failures_cause_no_cooldown() -> None:
    failing = [
        effect(Verdict(Outcome.TRANSIENT), None, EndpointRecord(1, None, streak, 0))
        for streak in range(20)
    ]
    assert failing[:4] == [None, None, 30.0, 60.0]
    assert failing[-1] == 300.0


def test_the_daily_limit_is_learned_in_both_directions() -> None:
    over = effect_of(
        EndpointRecord(41, None, 0, 0),
        Verdict(Outcome.DAY_EXHAUSTED),
        403,
        points=1,
        cooldown=300.0,
    )
    assert (over.until_day_ends, over.learned) == (True, 40)
    more = effect_of(
        EndpointRecord(44, 40, 0, 0), Verdict(Outcome.OK), 200, points=1, cooldown=300.0
    )
    assert more.learned == 44


def state(name: str, worth: CostEstimate, *, free_at: float = 0.0) -> EndpointState:
    made = EndpointState(Endpoint(f"https://{name}.example", 100, 0.2), free_at=free_at)
    made.stats["single"].cost = worth
    made.stats["single"].at = 1000.0
    for _ in range(20):
        made.stats["single"].sketch.add(0.1)
    return made


def test_a_fast_failure_costs_more_than_a_response() -> None:
    failing = CostEstimate()
    answering = CostEstimate()
    for _ in range(3):
        failing = failing.with_cost(cost_of(Measurement(0.001, answered=False), 0.1))
        answering = answering.with_cost(cost_of(Measurement(0.1, answered=True), 0.1))
    chosen = choose(
        [state("failing", failing), state("answering", answering)],
        Request("/x", timeout=1.0),
        excluded=(),
        now=1000.0,
    )
    assert chosen
    assert chosen[0].endpoint.url == "https://answering.example"


def test_a_busy_fast_endpoint_is_preferred_to_a_free_slow_one() -> None:
    good = state("good", CostEstimate(0.1, 20.0), free_at=1000.2)
    bad = state("bad", CostEstimate(5.0, 20.0))
    request = Request("/x", timeout=1.0)
    chosen = choose([good, bad], request, excluded=(), now=1000.0)
    assert chosen
    assert chosen[0] is good
    assert chosen[1] == pytest.approx(0.2)
    # What is known fades: after a while the bad one is given another chance.
    good.free_at, good.used, good.stats["single"].at = 0.0, 5, 2000.0
    later = choose([good, bad], request, excluded=(), now=2000.0)
    assert later
    assert later[0] is bad


def test_rising_latency_slows_down_and_recovers() -> None:
    throttle = Throttle()
    for _ in range(100):
        assert not throttle.note(0.1)
    # Single slow answers mean nothing.
    for n in range(60):
        assert not throttle.note(5.0 if n % 10 == 0 else 0.1)
    assert throttle.factor == 1.0
    slower = [throttle.note(0.5) for _ in range(200)]
    assert sum(slower) >= 3
    assert 2.0 < throttle.factor <= 8.0
    for _ in range(100):
        throttle.note(0.1)
    assert throttle.factor == 1.0
