"""Missing numbers of a block are known, and lead to where their parcels lie."""

import random

import numpy as np
import shapely

from hasat.sources.tkgm.scan.numbering import Numbering, Run

BLOCK = (7, "101")
TILE = (0, 0)


def lot(number: int) -> shapely.Polygon:
    """Return a lot of ten metres in a row of lots, in the order of numbers."""
    return shapely.box(10 * number, 0, 10 * number + 10, 20)


def numbering(*numbers: int, by_number: bool = False) -> Numbering:
    found = Numbering(by_number)
    for number in numbers:
        found.add((*BLOCK, str(number)), lot(number), [TILE])
    return found


def test_runs_are_the_gaps_below_the_last_number() -> None:
    assert numbering(2, 3, 7).runs() == [Run(BLOCK, 0, 2), Run(BLOCK, 3, 7)]
    assert numbering(1, 2, 3).runs() == []
    assert numbering(1, 500).runs() == []


def test_the_order_of_parcels_does_not_matter() -> None:
    seed = random.randrange(10**6)
    print("seed", seed)
    dice = random.Random(seed)
    numbers = sorted(dice.sample(range(1, 60), 35))
    shuffled = dice.sample(numbers, len(numbers))
    missing = [n for run in numbering(*shuffled).runs() for n in run.numbers]
    assert missing == [n for n in range(1, numbers[-1]) if n not in numbers]


def test_a_gap_between_the_neighbours_of_a_missing_number_has_the_strongest_hint() -> None:
    found = numbering(1, 2, 3, 5, 6)
    places = np.array([[45.0, 10.0], [25.0, 25.0], [45.0, 60.0]])
    hints = found.hints(TILE, places, [3.0, 3.0, 3.0], 10.0)
    assert hints.runs[0] == Run(BLOCK, 3, 5)
    assert hints.both[0] > hints.both[1]
    assert hints.one[0] > max(hints.one[1], hints.one[2])
    assert hints.runs[2] is None


def test_empty_points_and_found_parcels_end_a_hint() -> None:
    found = numbering(1, 2, 4, 5)
    place = np.array([[35.0, 10.0]])
    assert found.hints(TILE, place, [3.0], 10.0).empty[0] == 0
    found.missed(Run(BLOCK, 2, 4))
    assert found.hints(TILE, place, [3.0], 10.0).empty[0] == 1
    assert found.add((*BLOCK, "3"), lot(3), [TILE]) == {TILE}
    assert found.hints(TILE, place, [3.0], 10.0).runs == [None]


def test_grounds_of_settled_parcels_are_dropped() -> None:
    found = numbering(*range(1, 10))
    assert [n for n in range(1, 10) if found.ground_of(BLOCK, n) is not None] == [9]


def test_numbers_without_digits_are_ignored() -> None:
    found = Numbering()
    assert found.add((7, "101", "12/A"), lot(1), [TILE]) == set()
    assert found.runs() == []
    assert found.count == 0
