"""A scan of known ground asks once about each parcel, and plans anew only where things changed."""

import shapely

from hasat.sources.tkgm.registry.wire import Answer, Empty, Number, Parcel, ParcelKey, Question
from hasat.sources.tkgm.scan.planner import Planner
from hasat.sources.tkgm.scan.rescan import Checking, KnownParcel, inside_point
from hasat.sources.tkgm.simulator.cadastre import Cadastre, CadastreParcel
from hasat.sources.tkgm.simulator.townscape import generate_cadastre

TOWN = generate_cadastre("town", 60, seed=7)


def answer_of(cadastre: Cadastre, question: Question) -> Answer:
    if isinstance(question, Number):
        found = cadastre.numbered(question.mahalle_id, question.ada, question.parsel)
    else:
        found = cadastre.at(question.lat, question.lon)
    return Parcel(found.key, found.outline) if found else Empty()


def first_scan(cadastre: Cadastre) -> tuple[list[KnownParcel], list[Question], list[float]]:
    """What a scan leaves behind: parcels with the point that told each, empty points, weights."""
    planner = Planner(cadastre.area())
    known: dict[ParcelKey, KnownParcel] = {}
    empty: list[Question] = []
    while batch := planner.next_batch():
        for question in batch:
            answer = answer_of(cadastre, question)
            planner.tell(question, answer)
            if not isinstance(answer, Parcel):
                empty.append(question)
            elif answer.key not in known:
                assert not isinstance(question, Number)
                known[answer.key] = KnownParcel(answer, question, fresh=False)
    return list(known.values()), empty, planner.weights


KNOWN, EMPTY, WEIGHTS = first_scan(TOWN)


def scan_again(
    cadastre: Cadastre, known: list[KnownParcel], *, by_number: bool = False
) -> tuple[Checking, list[Question], set[ParcelKey]]:
    planner = Planner(TOWN.area(), by_number=by_number, learnt=WEIGHTS)
    checking = Checking(planner, known, EMPTY, by_number=by_number)
    asked: list[Question] = []
    found: set[ParcelKey] = {one.parcel.key for one in known if one.fresh}
    while batch := checking.next_batch():
        asked += batch
        for question in batch:
            answer = answer_of(cadastre, question)
            checking.tell(question, answer)
            if isinstance(answer, Parcel):
                found.add(answer.key)
    return checking, asked, found


def without(*gone: CadastreParcel, new: tuple[CadastreParcel, ...] = ()) -> Cadastre:
    return Cadastre([one for one in TOWN.parcels if one not in gone] + list(new))


def test_nothing_changed() -> None:
    checking, asked, found = scan_again(TOWN, KNOWN)
    assert found == {one.parcel.key for one in KNOWN}
    assert checking.gone() == []
    assert len(asked) <= len(KNOWN) + 20 + 40
    assert len(asked) == len(set(asked))


def test_what_was_just_told_is_not_asked_again() -> None:
    fresh = [KnownParcel(one.parcel, one.question, fresh=True) for one in KNOWN]
    checking, asked, found = scan_again(TOWN, fresh)
    assert found >= {one.parcel.key for one in KNOWN}
    assert len(asked) <= 20 + 40
    assert checking.gone() == []


def test_some_parcels_known_and_no_scan_before() -> None:
    some = [KnownParcel(one.parcel, one.question, fresh=True) for one in KNOWN[::2]]
    checking = Checking(Planner(TOWN.area()), some, [])
    assert checking.forecast() is None
    found = {one.parcel.key for one in some}
    while batch := checking.next_batch():
        for question in batch:
            answer = answer_of(TOWN, question)
            checking.tell(question, answer)
            if isinstance(answer, Parcel):
                found.add(answer.key)
    assert checking.forecast() is not None
    assert len(found) >= len(KNOWN) - 1
    assert checking.gone() == []


def test_a_parcel_that_is_gone_is_told_and_its_ground_is_looked_at() -> None:
    gone = next(one for one in TOWN.parcels if one.square_metres > 300)
    for by_number in (False, True):
        checking, _, _ = scan_again(without(gone), KNOWN, by_number=by_number)
        assert [one.key for one in checking.gone()] == [gone.key]


def test_a_parcel_that_was_divided_is_found_in_both_parts() -> None:
    old = max(TOWN.parcels, key=lambda one: one.square_metres)
    west, south, east, north = old.ground.bounds
    halves = [
        old.ground.intersection(shapely.box(west, south, (west + east) / 2, north)),
        old.ground.intersection(shapely.box((west + east) / 2, south, east, north)),
    ]
    new = tuple(
        CadastreParcel(old.mahalle_id, old.ada, str(900 + number), half, half, 500.0)
        for number, half in enumerate(halves)
    )
    checking, asked, found = scan_again(without(old, new=new), KNOWN)
    assert {one.key for one in new} <= found
    assert [one.key for one in checking.gone()] == [old.key]
    assert len(asked) <= len(KNOWN) + 20 + 100


def test_a_parcel_that_lost_ground_is_not_gone() -> None:
    old = max(TOWN.parcels, key=lambda one: one.square_metres)
    question = next(one.question for one in KNOWN if one.parcel.key == old.key)
    lost = shapely.Point(question.lon, question.lat).buffer(0.00003)
    rest = old.ground.difference(lost)
    new = (
        CadastreParcel(old.mahalle_id, old.ada, old.parsel, rest, rest, 500.0),
        CadastreParcel(old.mahalle_id, old.ada, "900", lost, lost, 30.0),
    )
    checking, _, found = scan_again(without(old, new=new), KNOWN)
    assert old.key in found
    assert checking.gone() == []


def test_a_parcel_hidden_by_its_neighbours_rounding_is_not_gone() -> None:
    neighbour = KNOWN[0]
    sliver = Parcel((1, "1", "1"), shapely.Point(inside(neighbour)).buffer(0.000005))
    known = [*KNOWN, KnownParcel(sliver, inside_point(sliver.geometry), fresh=False)]
    checking, _, _ = scan_again(TOWN, known)
    assert checking.gone() == []


def inside(known: KnownParcel) -> tuple[float, float]:
    return (known.question.lon, known.question.lat)
