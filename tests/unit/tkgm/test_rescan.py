"""A rescan checks each known parcel once, and searches again only where something changed."""

from dataclasses import replace

import shapely

from hasat.sources.tkgm.geometry import Outline
from hasat.sources.tkgm.registry.wire import Parcel, ParcelKey, ParcelNumber, Query, interior_point
from hasat.sources.tkgm.scan.planner import Planner
from hasat.sources.tkgm.scan.rescan import KnownParcel, RescanPlanner
from hasat.sources.tkgm.simulator.cadastre import Cadastre, CadastreParcel
from hasat.sources.tkgm.simulator.kinds import generate_cadastre

TOWN = generate_cadastre("town", 60, seed=7)


def respond(cadastre: Cadastre, query: Query) -> Parcel | None:
    if isinstance(query, ParcelNumber):
        found = cadastre.numbered(query.mahalle_id, query.ada, query.parsel)
    else:
        found = cadastre.at(query.lat, query.lon)
    return Parcel(found.key, found.outline) if found else None


def outline(parcel: Parcel) -> Outline:
    assert parcel.geometry is not None
    return parcel.geometry


def first_scan(cadastre: Cadastre) -> tuple[list[KnownParcel], list[Query], list[float]]:
    """Return the result of a scan: parcels and the point that found each, empty points, weights."""
    planner = Planner(cadastre.area())
    known: dict[ParcelKey, KnownParcel] = {}
    empty: list[Query] = []
    while batch := planner.next_batch():
        for query in batch:
            parcel = respond(cadastre, query)
            planner.record(query, parcel)
            if parcel is None:
                empty.append(query)
            elif parcel.key not in known:
                assert not isinstance(query, ParcelNumber)
                known[parcel.key] = KnownParcel(parcel.key, outline(parcel), query, fresh=False)
    return list(known.values()), empty, planner.weights


KNOWN, EMPTY, WEIGHTS = first_scan(TOWN)


def scan_again(
    cadastre: Cadastre, known: list[KnownParcel], *, by_number: bool = False
) -> tuple[RescanPlanner, list[Query], set[ParcelKey]]:
    planner = Planner(TOWN.area(), by_number=by_number, weights=WEIGHTS)
    rescan = RescanPlanner(planner, known, EMPTY, by_number=by_number)
    sent: list[Query] = []
    found: set[ParcelKey] = {one.key for one in known if one.fresh}
    while batch := rescan.next_batch():
        sent += batch
        for query in batch:
            parcel = respond(cadastre, query)
            rescan.record(query, parcel)
            if parcel is not None:
                found.add(parcel.key)
    return rescan, sent, found


def without(*gone: CadastreParcel, new: tuple[CadastreParcel, ...] = ()) -> Cadastre:
    return Cadastre([one for one in TOWN.parcels if one not in gone] + list(new))


def test_nothing_changed() -> None:
    rescan, sent, found = scan_again(TOWN, KNOWN)
    assert found == {one.key for one in KNOWN}
    assert rescan.gone() == []
    assert len(sent) <= len(KNOWN) + 20 + 40
    assert len(sent) == len(set(sent))


def test_fresh_parcels_are_not_checked() -> None:
    fresh = [replace(one, fresh=True) for one in KNOWN]
    rescan, sent, found = scan_again(TOWN, fresh)
    assert found >= {one.key for one in KNOWN}
    assert len(sent) <= 20 + 40
    assert rescan.gone() == []


def test_known_parcels_without_an_earlier_scan() -> None:
    some = [replace(one, fresh=True) for one in KNOWN[::2]]
    rescan = RescanPlanner(Planner(TOWN.area()), some, [])
    assert rescan.forecast() is None
    found = {one.key for one in some}
    while batch := rescan.next_batch():
        for query in batch:
            parcel = respond(TOWN, query)
            rescan.record(query, parcel)
            if parcel is not None:
                found.add(parcel.key)
    assert rescan.forecast() is not None
    assert len(found) >= len(KNOWN) - 1
    assert rescan.gone() == []


def test_a_parcel_that_is_gone_is_reported() -> None:
    gone = next(one for one in TOWN.parcels if one.square_metres > 300)
    for by_number in (False, True):
        rescan, _, _ = scan_again(without(gone), KNOWN, by_number=by_number)
        assert [one.key for one in rescan.gone()] == [gone.key]


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
    rescan, sent, found = scan_again(without(old, new=new), KNOWN)
    assert {one.key for one in new} <= found
    assert [one.key for one in rescan.gone()] == [old.key]
    assert len(sent) <= len(KNOWN) + 20 + 100


def test_a_parcel_that_lost_ground_is_not_gone() -> None:
    old = max(TOWN.parcels, key=lambda one: one.square_metres)
    point = next(one.point for one in KNOWN if one.key == old.key)
    lost = shapely.Point(point.lon, point.lat).buffer(0.00003)
    rest = old.ground.difference(lost)
    new = (
        CadastreParcel(old.mahalle_id, old.ada, old.parsel, rest, rest, 500.0),
        CadastreParcel(old.mahalle_id, old.ada, "900", lost, lost, 30.0),
    )
    rescan, _, found = scan_again(without(old, new=new), KNOWN)
    assert old.key in found
    assert rescan.gone() == []


def test_a_parcel_hidden_by_its_neighbours_rounding_is_not_gone() -> None:
    neighbour = KNOWN[0]
    sliver = shapely.Point(neighbour.point.lon, neighbour.point.lat).buffer(0.000005)
    known = [*KNOWN, KnownParcel((1, "1", "1"), sliver, interior_point(sliver), fresh=False)]
    rescan, _, _ = scan_again(TOWN, known)
    assert rescan.gone() == []
