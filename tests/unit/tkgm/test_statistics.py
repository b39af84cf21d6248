"""Bounds are exact, and intervals contain the truth."""

import math

import numpy as np
import pytest

from hasat.sources.tkgm.scan.statistics import (
    Interval,
    audit_error,
    binomial_upper,
    estimate_parcels,
    multiply,
)


@pytest.mark.parametrize(
    ("hits", "trials", "error", "bound"),
    # Clopper and Pearson, from tables.
    [(0, 30, 0.05, 0.0950), (1, 20, 0.05, 0.2161), (3, 60, 0.025, 0.1392), (20, 20, 0.05, 1.0)],
)
def test_a_bound_is_that_of_clopper_and_pearson(
    hits: int, trials: int, error: float, bound: float
) -> None:
    assert binomial_upper(hits, trials, error) == pytest.approx(bound, abs=1e-4)


def test_without_hits_the_bound_has_a_closed_form() -> None:
    for trials in (1, 20, 400):
        assert binomial_upper(0, trials, 0.05) == pytest.approx(1 - 0.05 ** (1 / trials))


def test_all_audits_together_err_as_often_as_stated() -> None:
    assert math.fsum(audit_error(number) for number in range(1, 60)) == pytest.approx(0.05)


def test_skewed_sizes_are_estimated_without_bias() -> None:
    # Half of the ground is one parcel, half holds a hundred: a point meets each half as often.
    sizes = [5000.0] * 30 + [50.0] * 30
    estimate = estimate_parcels(sizes, 10_000.0)
    assert estimate.expected == pytest.approx(0.5 * 2 + 0.5 * 200)
    assert estimate.low < 101 < estimate.high


def test_parcels_that_no_point_met_are_allowed_for() -> None:
    assert estimate_parcels([1000.0] * 60, 1e6).high > 1000 + 0.04 * 1e6 / 150
    assert estimate_parcels([0.0] * 60, 1e6).high > 0.04 * 1e6 / 150


@pytest.mark.parametrize("spread", [0.3, 1.0, 1.6, 2.0])
def test_the_interval_contains_the_truth_for_small_and_skewed_parcels(spread: float) -> None:
    dice = np.random.default_rng(20261118)
    sizes = dice.lognormal(6.0, spread, 4000)
    area = sizes.sum() / 0.85
    chances = np.append(sizes, area - sizes.sum()) / area
    held = 0
    for _ in range(300):
        at = dice.choice(len(chances), 60, p=chances)
        found = [float(sizes[i]) if i < len(sizes) else 0.0 for i in at]
        estimate = estimate_parcels(found, float(area))
        held += estimate.low <= len(sizes) <= estimate.high
    assert held >= 0.9 * 300


def test_a_product_is_narrower_than_that_of_its_bounds() -> None:
    parcels, queries = Interval(500, 700, 1000), Interval(1.1, 1.7, 3.5)
    product = multiply(parcels, queries)
    assert product.expected == pytest.approx(700 * 1.7)
    assert 500 * 1.1 < product.low < 700 * 1.1
    assert 700 * 3.5 < product.high < 1000 * 3.5
    certain = multiply(parcels, Interval(2, 2, 2))
    assert [certain.low, certain.high] == pytest.approx([1000, 2000])
