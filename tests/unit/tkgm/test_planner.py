"""A scan finds the parcels of an area with few questions, and is the same for the same answers."""

import random
from dataclasses import dataclass

import pytest
import shapely
from shapely import MultiPolygon, Polygon

from hasat.sources.tkgm.registry.wire import (
    Answer,
    Empty,
    Number,
    Parcel,
    ParcelKey,
    Point,
    Question,
)
from hasat.sources.tkgm.scan.planner import GridPlanner, Planner
from hasat.sources.tkgm.scan.scan_request import Quality
from hasat.sources.tkgm.simulator.cadastre import Cadastre
from hasat.sources.tkgm.simulator.townscape import generate_cadastre


def answer_of(cadastre: Cadastre, question: Question) -> Answer:
    if isinstance(question, Number):
        parcel = cadastre.numbered(question.mahalle_id, question.ada, question.parsel)
    else:
        parcel = cadastre.at(question.lat, question.lon)
    return Parcel(parcel.key, parcel.outline) if parcel else Empty()


def run(planner: Planner | GridPlanner, cadastre: Cadastre) -> tuple[set[ParcelKey], int]:
    found: set[ParcelKey] = set()
    asked = 0
    while batch := planner.next_batch():
        asked += len(batch)
        for question in batch:
            answer = answer_of(cadastre, question)
            if isinstance(answer, Parcel):
                found.add(answer.key)
            planner.tell(question, answer)
    return found, asked


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
    """A scan that is over."""

    planner: Planner
    found: set[ParcelKey]
    asked: int


@pytest.fixture(scope="module")
def scan(town: Cadastre) -> Scan:
    """Of the whole town, as it is done unless something else is wished."""
    planner = Planner(town.area())
    return Scan(planner, *run(planner, town))


@pytest.mark.parametrize("kind", ["town", "village", "strips", "enclaves", "mixed"])
def test_almost_all_parcels_are_found_with_few_questions(kind: str) -> None:
    cadastre = generate_cadastre(kind, 500, seed=11)
    found, asked = run(Planner(cadastre.area()), cadastre)
    assert recall(cadastre, found) >= 0.98
    assert asked <= 4 * len(cadastre.parcels)


def test_a_grid_needs_more_questions_for_fewer_parcels(town: Cadastre, scan: Scan) -> None:
    gridded, grid_asked = run(GridPlanner(town.area(), 10), town)
    assert scan.asked < 0.75 * grid_asked
    assert recall(town, scan.found) >= recall(town, gridded) - 0.005


def test_better_quality_asks_more_and_misses_less(town: Cadastre) -> None:
    def missed(quality: Quality) -> tuple[float, int]:
        found, asked = run(Planner(town.area(), quality), town)
        return 1 - recall(town, found), asked

    (fast, fast_asked), (thorough, thorough_asked) = missed("fast"), missed("thorough")
    assert fast_asked < thorough_asked
    assert thorough <= fast


def test_numbers_save_points_and_close_holes(town: Cadastre, scan: Scan) -> None:
    found, asked = run(Planner(town.area(), by_number=True), town)
    assert recall(town, found) >= 0.995
    assert asked < 1.1 * scan.asked


def test_the_same_calls_ask_the_same_questions(town: Cadastre) -> None:
    first, second = Planner(town.area()), Planner(town.area())
    for _ in range(25):
        batch = first.next_batch()
        assert batch == second.next_batch()
        for question in batch:
            first.tell(question, answer_of(town, question))
            second.tell(question, answer_of(town, question))


def test_answers_may_come_late_and_in_any_order(town: Cadastre) -> None:
    seed = random.randrange(10**6)
    print("seed", seed)
    dice = random.Random(seed)
    planner = Planner(town.area())
    waiting: list[Question] = []
    found: set[ParcelKey] = set()
    asked: set[Question] = set()
    while True:
        batch = planner.next_batch()
        assert not asked & set(batch), "a question is asked once"
        asked |= set(batch)
        waiting += batch
        if not waiting:
            break
        dice.shuffle(waiting)
        for _ in range(len(waiting) if not batch else min(len(waiting), 15)):
            question = waiting.pop()
            answer = answer_of(town, question)
            planner.tell(question, answer)
            if isinstance(answer, Parcel):
                found.add(answer.key)
    assert planner.complete
    assert recall(town, found) >= 0.98


def test_a_scan_goes_on_from_the_answers_of_an_earlier_one(town: Cadastre, scan: Scan) -> None:
    earlier, told = Planner(town.area()), []
    for _ in range(20):
        for question in earlier.next_batch():
            told.append((question, answer_of(town, question)))
            earlier.tell(*told[-1])
    planner = Planner(town.area())
    for question, answer in told:
        planner.tell(question, answer)
    known = {answer.key for _, answer in told if isinstance(answer, Parcel)}
    found, asked = run(planner, town)
    assert recall(town, known | found) >= 0.98
    assert asked < scan.asked


def test_a_question_given_back_may_be_asked_again(town: Cadastre) -> None:
    planner = Planner(town.area())
    for _ in range(5):
        for question in planner.next_batch():
            planner.tell(question, answer_of(town, question))
    batch = planner.next_batch()
    for question in batch:
        planner.forget(question)
    assert set(planner.next_batch()) & set(batch)


def test_wide_empty_ground_around_costs_little() -> None:
    town = generate_cadastre("town", 250, seed=5)
    west, south, east, north = town.area().bounds
    width, height = east - west, north - south
    around = shapely.box(west - width, south - height, east + width, north + height)
    found, asked = run(Planner(around), town)
    _, inside = run(Planner(town.area()), town)
    assert recall(town, found) >= 0.97
    assert asked < 4 * inside


@pytest.mark.parametrize("in_town", [True, False])
def test_a_small_or_empty_area_ends_soon(town: Cadastre, in_town: bool) -> None:
    lon, lat = town.parcels[40].ground.centroid.coords[0]
    area = shapely.Point(lon if in_town else lon + 1, lat).buffer(0.0003)
    planner = Planner(area)
    found, asked = run(planner, town)
    touched = [p for p in town.parcels if p.ground.intersects(area)] if in_town else []
    assert asked <= 60 + 3 * len(touched)
    assert planner.complete
    assert bool(found) == in_town


@pytest.mark.parametrize("metres", [0.1, 2.0])
def test_a_corridor_or_a_spot_is_asked_about(town: Cadastre, metres: float) -> None:
    lon, lat = town.parcels[40].ground.centroid.coords[0]
    long = 0.001 if metres > 1 else metres / 100_000
    area = shapely.box(lon - long, lat, lon + long, lat + metres / 100_000)
    found, _ = run(Planner(area), town)
    touched = {p.key for p in town.parcels if p.ground.intersection(area).length > 1e-4}
    assert town.parcels[40].key in found
    assert len(touched & found) >= 0.8 * len(touched)


def test_the_estimate_brackets_what_there_is(town: Cadastre, scan: Scan) -> None:
    estimate = scan.planner.estimate()
    assert estimate.low <= len(town.parcels) <= estimate.high + 0.02 * len(town.parcels)
    assert 0.8 < estimate.coverage <= 1.0


def test_what_is_left_unknown_shrinks(town: Cadastre, scan: Scan) -> None:
    def ground(planner: Planner) -> float:
        return sum(one.ground.area for one in planner.unknown())

    assert ground(scan.planner) < 0.2 * ground(Planner(town.area()))


def test_holes_are_not_taken_for_ground_of_the_parcel_around() -> None:
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


def test_points_are_asked_where_the_area_is(town: Cadastre) -> None:
    area = town.area()
    planner = Planner(area)
    for _ in range(6):
        for question in planner.next_batch():
            assert isinstance(question, Point)
            assert area.buffer(0.0006).covers(shapely.Point(question.lon, question.lat))
            planner.tell(question, answer_of(town, question))
