"""The claims of a scan about itself are true, over cadastres of every generated kind."""

import random
from dataclasses import dataclass
from itertools import pairwise

import pytest
import shapely

from hasat.sources.tkgm.registry.wire import Parcel, ParcelKey, Point
from hasat.sources.tkgm.scan.audit import INSIDE
from hasat.sources.tkgm.scan.planner import Planner
from hasat.sources.tkgm.simulator.cadastre import Cadastre
from hasat.sources.tkgm.simulator.kinds import KINDS, generate_cadastre

# The scans of the fixture take most of the time: one worker runs them.
pytestmark = pytest.mark.xdist_group("tkgm-claims")

# Intervals of 95 % that hold independently of each other are below these shares by chance once in
# more than ten thousand runs.
LEAST_BEFORE = 0.65
LEAST_AFTER = 0.5


@dataclass(frozen=True)
class Scan:
    cadastre: Cadastre
    planner: Planner
    found: set[ParcelKey]

    @property
    def recall(self) -> float:
        counted = {p.key for p in self.cadastre.parcels if p.square_metres >= 60}
        return len(counted & self.found) / len(counted)


def scan(cadastre: Cadastre) -> Scan:
    planner = Planner(cadastre.area())
    found: set[ParcelKey] = set()
    while batch := planner.next_batch():
        step(cadastre, planner, found, batch)
    return Scan(cadastre, planner, found)


def step(cadastre: Cadastre, planner: Planner, found: set[ParcelKey], batch: object) -> None:
    assert isinstance(batch, list)
    for query in batch:
        assert isinstance(query, Point)
        parcel = cadastre.at(query.lat, query.lon)
        if parcel is not None:
            found.add(parcel.key)
        planner.record(query, Parcel(parcel.key, parcel.outline) if parcel else None)


@pytest.fixture(scope="module")
def scans() -> list[Scan]:
    seed = random.randrange(10**6)
    print("seed", seed)
    return [scan(generate_cadastre(kind, 80, seed=seed)) for kind in KINDS]


def test_forecasts_contain_the_truth() -> None:
    seed = random.randrange(10**6)
    print("seed", seed)
    held = []
    for kind in KINDS:
        for number in range(2):
            cadastre = generate_cadastre(kind, 300, seed=seed + number)
            planner = Planner(cadastre.area())
            while planner.is_sampling:
                step(cadastre, planner, set(), planner.next_batch())
            forecast = planner.forecast()
            assert forecast is not None
            held.append(forecast.low <= len(cadastre.parcels) <= forecast.high)
    assert sum(held) >= LEAST_BEFORE * len(held)


def test_claims_at_the_end_are_true(scans: list[Scan]) -> None:
    true = []
    for one in scans:
        claim, estimate = one.planner.completeness(), one.planner.estimate()
        assert claim is not None
        assert claim.smallest == 60
        true.append(
            claim.low <= one.recall and estimate.low <= len(one.cadastre.parcels) <= estimate.high
        )
    assert sum(true) >= LEAST_AFTER * len(true)


def test_a_claim_is_the_lower_of_audit_and_numbers(scans: list[Scan]) -> None:
    for one in scans:
        claim = one.planner.completeness()
        assert claim is not None
        bounds = [bound for bound in (claim.audited, claim.numbered) if bound is not None]
        assert claim.low == min(bounds)
        assert claim.low <= claim.share <= claim.high


def test_missing_numbers_are_those_between_known_ones(scans: list[Scan]) -> None:
    for one in scans:
        outlines = {p.key[1:]: p.outline for p in one.cadastre.parcels if p.key in one.found}
        ground = one.cadastre.area()
        expected, at_the_edge = set(), set()
        for ada in {ada for ada, _ in outlines}:
            known = sorted(int(parsel) for block, parsel in outlines if block == ada)
            for low, high in pairwise([0, *known]):
                ends = [outlines[ada, str(n)] for n in (low, high) if n > 0]
                inside = all(
                    ground.covers(e)
                    or ground.intersection(shapely.make_valid(e)).area >= INSIDE * e.area
                    for e in ends
                )
                # A rounded outline may reach over the edge, where a number proves nothing.
                (expected if inside else at_the_edge).update((ada, n) for n in range(low + 1, high))
        missing = one.planner.missing_numbers()
        reported = {(m.block[1], n) for m in missing for n in m.numbers}
        assert expected - reported == set()
        assert reported - expected <= at_the_edge
        assert all(ground.buffer(0.0005).intersects(m.place) for m in missing)


def test_an_audit_point_is_asked_once_and_anywhere_in_the_unknown_ground() -> None:
    town = generate_cadastre("town", 100, seed=3)
    planner = Planner(town.area())
    asked: list[Point] = []
    while batch := planner.next_batch():
        asked += [query for query in batch if isinstance(query, Point)]
        step(town, planner, set(), batch)
    assert len(asked) == len(set(asked))
    claim = planner.completeness()
    assert claim is not None
    ground = shapely.union_all([p.outline for p in town.parcels]).buffer(0.00001)
    late = asked[-claim.points :]
    assert sum(not ground.covers(shapely.Point(q.lon, q.lat)) for q in late) >= 0.7 * len(late)
