"""The planner finds the parcels of an area with few queries, and is deterministic."""

import random
from dataclasses import dataclass

import pytest
import shapely
from shapely import MultiPolygon, Polygon

from hasat.sources.tkgm.registry.wire import Parcel, ParcelKey, ParcelNumber, Point, Query
from hasat.sources.tkgm.scan import Quality
from hasat.sources.tkgm.scan.planner import GridPlanner, Planner
from hasat.sources.tkgm.simulator.cadastre import Cadastre
from hasat.sources.tkgm.simulator.kinds import generate_cadastre


def respond(cadastre: Cadastre, query: Query) -> Parcel | None:
    if isinstance(query, ParcelNumber):
        parcel = cadastre.numbered(query.mahalle_id, query.ada, query.parsel)
    else:
        parcel = cadastre.at(query.lat, query.lon)
    return Parcel(parcel.key, parcel.outline) if parcel else None


def run(planner: Planner | GridPlanner, cadastre: Cadastre) -> tuple[set[ParcelKey], int]:
    found: set[ParcelKey] = set()
    sent = 0
    while batch := planner.next_batch():
        sent += len(batch)
        for query in batch:
            parcel = respond(cadastre, query)
            if parcel is not None:
                found.add(parcel.key)
            planner.record(query, parcel)
    return found, sent


def rings(ground: Polygon | MultiPolygon) -> list[shapely.LinearRing]:
    return [ring for part in shapely.get_parts(ground) for ring in part.interiors]


def recall(cadastre: Cadastre, found: set[ParcelKey]) -> float:
    counted = {p.key for p in cadastre.parcels if p.square_metres >= 60}
    return len(counted & found) / len(counted)


@pytest.fixture(scope="module")
def town() -> Cadastre:
    return generate_cadastre("town", 500, seed=5)


@dataclass(frozen=True)
class Scan:
    """A finished scan."""

    planner: Planner
    found: set[ParcelKey]
    sent: int


@pytest.fixture(scope="module")
def scan(town: Cadastre) -> Scan:
    """A scan of the whole town with the defaults."""
    planner = Planner(town.area())
    return Scan(planner, *run(planner, town))


@pytest.mark.parametrize("kind", ["town", "village", "strips", "enclaves", "mixed"])
def test_almost_all_parcels_are_found_with_few_queries(kind: str) -> None:
    cadastre = generate_cadastre(kind, 500, seed=11)
    found, sent = run(Planner(cadastre.area()), cadastre)
    assert recall(cadastre, found) >= 0.98
    assert sent <= 4 * len(cadastre.parcels)


def test_a_grid_needs_more_queries_for_fewer_parcels(town: Cadastre, scan: Scan) -> None:
    gridded, grid_sent = run(GridPlanner(town.area(), 10), town)
    assert scan.sent < 0.75 * grid_sent
    assert recall(town, scan.found) >= recall(town, gridded) - 0.005


def test_better_quality_sends_more_queries_and_misses_less(town: Cadastre) -> None:
    def missed(quality: Quality) -> tuple[float, int]:
        found, sent = run(Planner(town.area(), quality), town)
        return 1 - recall(town, found), sent

    (fast, fast_sent), (thorough, thorough_sent) = missed("fast"), missed("thorough")
    assert fast_sent < thorough_sent
    assert thorough <= fast


def test_thorough_scans_find_small_parcels_along_lanes() -> None:
    village = generate_cadastre("village", 300, seed=4)
    found, sent = run(Planner(village.area(), "thorough"), village)
    assert recall(village, found) >= 0.99
    assert sent <= 4 * len(village.parcels)


def test_missing_numbers_are_searched_where_the_model_expects_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    village = generate_cadastre("old-village", 400, seed=1)
    found, sent = run(Planner(village.area()), village)
    monkeypatch.setattr(f"{Planner.__module__}.FIRST_NUMBER_QUERIES", 0)
    monkeypatch.setattr(f"{Planner.__module__}.QUERIES_PER_NUMBER", 0)
    without, sent_without = run(Planner(village.area()), village)
    assert recall(village, found) > recall(village, without)
    assert sent <= 1.3 * sent_without


def test_numbers_save_points_and_close_holes(town: Cadastre, scan: Scan) -> None:
    found, sent = run(Planner(town.area(), by_number=True), town)
    assert recall(town, found) >= 0.995
    assert sent < 1.1 * scan.sent


def test_the_same_calls_return_the_same_queries(town: Cadastre) -> None:
    first, second = Planner(town.area()), Planner(town.area())
    for _ in range(25):
        batch = first.next_batch()
        assert batch == second.next_batch()
        for query in batch:
            first.record(query, respond(town, query))
            second.record(query, respond(town, query))


def test_responses_may_come_late_and_in_any_order(town: Cadastre) -> None:
    seed = random.randrange(10**6)
    print("seed", seed)
    dice = random.Random(seed)
    planner = Planner(town.area())
    pending: list[Query] = []
    found: set[ParcelKey] = set()
    sent: set[Query] = set()
    while True:
        batch = planner.next_batch()
        assert not sent & set(batch), "a query is sent once"
        sent |= set(batch)
        pending += batch
        if not pending:
            break
        dice.shuffle(pending)
        for _ in range(len(pending) if not batch else min(len(pending), 15)):
            query = pending.pop()
            parcel = respond(town, query)
            planner.record(query, parcel)
            if parcel is not None:
                found.add(parcel.key)
    assert recall(town, found) >= 0.98


def test_a_planner_continues_from_earlier_responses(town: Cadastre, scan: Scan) -> None:
    earlier, responses = Planner(town.area()), []
    for _ in range(20):
        for query in earlier.next_batch():
            responses.append((query, respond(town, query)))
            earlier.record(*responses[-1])
    planner = Planner(town.area())
    for query, parcel in responses:
        planner.record(query, parcel)
    known = {parcel.key for _, parcel in responses if parcel is not None}
    found, sent = run(planner, town)
    assert recall(town, known | found) >= 0.98
    assert sent < scan.sent


def test_wide_empty_surroundings_need_few_queries() -> None:
    town = generate_cadastre("town", 250, seed=5)
    west, south, east, north = town.area().bounds
    width, height = east - west, north - south
    around = shapely.box(west - width, south - height, east + width, north + height)
    found, sent = run(Planner(around), town)
    _, inside = run(Planner(town.area()), town)
    assert recall(town, found) >= 0.97
    # Nine times the area. Open ground costs more since a claim must hold there too.
    assert sent < 7 * inside


@pytest.mark.parametrize("in_town", [True, False])
def test_a_small_or_empty_area_needs_few_queries(town: Cadastre, in_town: bool) -> None:
    lon, lat = town.parcels[40].ground.centroid.coords[0]
    area = shapely.Point(lon if in_town else lon + 1, lat).buffer(0.0003)
    planner = Planner(area)
    found, sent = run(planner, town)
    touched = [p for p in town.parcels if p.ground.intersects(area)] if in_town else []
    assert sent <= 60 + 3 * len(touched)
    assert planner.next_batch() == []
    assert bool(found) == in_town


@pytest.mark.parametrize("metres", [0.1, 2.0])
def test_a_corridor_or_a_spot_is_queried(town: Cadastre, metres: float) -> None:
    lon, lat = town.parcels[40].ground.centroid.coords[0]
    long = 0.001 if metres > 1 else metres / 100_000
    area = shapely.box(lon - long, lat, lon + long, lat + metres / 100_000)
    found, _ = run(Planner(area), town)
    touched = {p.key for p in town.parcels if p.ground.intersection(area).length > 1e-4}
    assert town.parcels[40].key in found
    assert len(touched & found) >= 0.8 * len(touched)


def test_the_estimate_brackets_the_real_count(town: Cadastre, scan: Scan) -> None:
    estimate = scan.planner.estimate()
    assert estimate.low <= len(town.parcels) <= estimate.high + 0.02 * len(town.parcels)
    assert 0.8 < estimate.coverage <= 1.0


def test_unknown_areas_shrink(town: Cadastre, scan: Scan) -> None:
    def size(planner: Planner) -> float:
        return sum(one.geometry.area for one in planner.unknown_areas())

    assert size(scan.planner) < 0.2 * size(Planner(town.area()))


def test_holes_do_not_belong_to_the_parcel_around() -> None:
    cadastre = generate_cadastre("enclaves", 60, seed=2)
    inner = {
        p.key
        for p in cadastre.parcels
        if p.square_metres < 800
        and any(Polygon(r).covers(p.ground) for o in cadastre.parcels for r in rings(o.ground))
    }
    found, _ = run(Planner(cadastre.area(), "thorough"), cadastre)
    assert inner
    assert inner <= found


def test_points_lie_in_the_area(town: Cadastre) -> None:
    area = town.area()
    planner = Planner(area)
    for _ in range(6):
        for query in planner.next_batch():
            assert isinstance(query, Point)
            assert area.buffer(0.0006).covers(shapely.Point(query.lon, query.lat))
            planner.record(query, respond(town, query))
