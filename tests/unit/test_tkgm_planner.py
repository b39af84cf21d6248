"""The scan's planner on generated cadastres: it finds what is there, and replays what it did."""

import random

import pytest

from hasat.sim.cadastre import Cadastre
from hasat.sim.townscape import generate_cadastre
from hasat.sources.tkgm.grid import GridPlanner
from hasat.sources.tkgm.planner import Planner
from hasat.sources.tkgm.questions import Empty, Parcel, Point, Question


def _answer(cadastre: Cadastre, question: Question) -> Parcel | Empty:
    assert isinstance(question, Point)
    found = cadastre.at(question.lat, question.lon)
    return Empty() if found is None else Parcel(found.key, found.outline)


def _scan(cadastre: Cadastre, planner: Planner | GridPlanner) -> tuple[int, set[object]]:
    asked, found = 0, set()
    while questions := planner.next_batch():
        for question in questions:
            answer = _answer(cadastre, question)
            if isinstance(answer, Parcel):
                found.add(answer.key)
            planner.tell(question, answer)
        asked += len(questions)
        assert asked < 50 * len(cadastre.parcels), "the scan does not end"
    return asked, found


@pytest.mark.parametrize("kind", ["town", "village", "strips", "enclaves"])
def test_a_scan_finds_nearly_all_and_asks_less_than_a_grid_that_finds_as_much(kind: str) -> None:
    cadastre = generate_cadastre(kind, 250, seed=7)
    counted = {parcel.key for parcel in cadastre.parcels if parcel.square_metres >= 60}
    asked, found = _scan(cadastre, Planner(cadastre.area(), "standard", by_number=False))
    assert len(counted & found) >= 0.98 * len(counted)
    grid_asked, grid_found = _scan(cadastre, GridPlanner(cadastre.area(), 10.0))
    if len(counted & grid_found) >= len(counted & found):
        assert asked < grid_asked


def test_the_same_answers_in_the_same_order_ask_the_same_questions() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    cadastre = generate_cadastre("town", 120, seed=seed)
    one, other = (Planner(cadastre.area(), "fast", by_number=False) for _ in range(2))
    for _ in range(8):
        questions = one.next_batch()
        assert other.next_batch() == questions
        for question in questions:
            for planner in (one, other):
                planner.tell(question, _answer(cadastre, question))
