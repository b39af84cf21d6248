"""A simulated cadastre responds as the real one: rounded outlines, nothing in roads, numbers."""

import json
from pathlib import Path

import numpy as np
import pytest
import shapely

from hasat.sources.tkgm.simulator.cadastre import read_cadastre
from hasat.sources.tkgm.simulator.kinds import KINDS, generate_cadastre


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_same_seed_yields_the_same_cadastre(kind: str) -> None:
    first, second = (generate_cadastre(kind, 150, seed=3) for _ in range(2))
    assert [p.key for p in first.parcels] == [p.key for p in second.parcels]
    assert all(
        a.ground.equals(b.ground) for a, b in zip(first.parcels, second.parcels, strict=True)
    )


def test_a_point_yields_its_parcel_and_a_road_nothing() -> None:
    cadastre = generate_cadastre("town", 200, seed=4)
    parcel = cadastre.parcels[17]
    inside = parcel.ground.representative_point()
    assert cadastre.at(inside.y, inside.x) is parcel
    gaps = cadastre.area().difference(shapely.union_all([p.ground for p in cadastre.parcels]))
    road = max(shapely.get_parts(gaps), key=lambda part: part.area).representative_point()
    assert cadastre.at(road.y, road.x) is None


def test_outlines_are_rounded_to_five_decimals() -> None:
    cadastre = generate_cadastre("village", 100, seed=4)
    xy = shapely.get_coordinates([p.outline for p in cadastre.parcels])
    assert np.array_equal(xy, np.round(xy, 5))


def test_numbers_are_unique_and_found() -> None:
    cadastre = generate_cadastre("mixed", 400, seed=9)
    keys = [p.key for p in cadastre.parcels]
    assert len(set(keys)) == len(keys)
    assert all(cadastre.numbered(*p.key) is p for p in cadastre.parcels)
    assert cadastre.numbered(1, "1", "1") is None


def test_the_smaller_of_overlapping_parcels_keeps_the_overlap(tmp_path: Path) -> None:
    large, small = (
        shapely.box(32.0, 39.0, 32.002, 39.002),
        shapely.box(32.001, 39.001, 32.0012, 39.0012),
    )
    features = [
        {"type": "Feature", "properties": {}, "geometry": json.loads(shapely.to_geojson(shape))}
        for shape in (large, small)
    ]
    file = tmp_path / "two.geojson"
    file.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    cadastre = read_cadastre(file)
    inner = cadastre.at(39.0011, 32.0011)
    outer = cadastre.at(39.0001, 32.0001)
    assert inner is not None
    assert outer is not None
    assert inner.square_metres < outer.square_metres
    assert isinstance(outer.outline, shapely.Polygon)
    assert len(outer.outline.interiors) == 1
