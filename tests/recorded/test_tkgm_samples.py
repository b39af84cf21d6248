"""Recorded responses of the parcel registry are parsed completely."""

import json
from pathlib import Path

import pytest

from hasat.sources.tkgm.geometry import geodesic_area
from hasat.sources.tkgm.registry.outcomes import is_not_found, parse_message
from hasat.sources.tkgm.registry.wire import (
    parse_object,
    parse_outline,
    parse_parcel,
    parse_places,
)

SAMPLES = Path(__file__).parents[2].parent / "shared" / "samples" / "tkgm"
pytestmark = pytest.mark.skipif(
    not SAMPLES.is_dir(), reason="the recorded responses are not in the repository"
)


@pytest.mark.parametrize(
    ("name", "key", "area"),
    [
        ("point_v3_kadikoy_3106-258.json", (147766, "3106", "258"), 816.27),
        ("zemin_v3_ankara_2866-2.json", (1159, "2866", "2"), 1043.0),
    ],
)
def test_a_parcel_by_point(name: str, key: tuple[int, str, str], area: float) -> None:
    body = (SAMPLES / name).read_bytes()
    parcel = parse_parcel(parse_object(body))
    assert parcel.key == key
    assert parcel.area == area
    assert parcel.properties == json.loads(body)["properties"]
    assert parcel.geometry is not None
    # Corners are rounded to about a metre.
    assert geodesic_area(parcel.geometry) == pytest.approx(area, rel=0.1)


def test_a_parcel_by_number_whose_outline_was_cut_off() -> None:
    feature = json.loads((SAMPLES / "adaparsel_v3_ankara_2705-15.partial.json").read_bytes())
    parcel = parse_parcel({**feature, "geometry": None})
    assert parcel.key == (1162, "2705", "15")
    assert parcel.area == 1295


def test_not_found() -> None:
    message = parse_message((SAMPLES / "error_404_point.json").read_bytes())
    assert message is not None
    assert is_not_found(message)


def test_an_administrative_list() -> None:
    [place] = parse_places((SAMPLES / "idariYapi_shape.json").read_bytes())
    assert (place.id, place.name, place.boundary) == (28, "Ankara", None)


def test_the_outlines_of_exported_files() -> None:
    for path in sorted(SAMPLES.glob("webexport_*.json")):
        for feature in json.loads(path.read_bytes())["features"]:
            assert parse_outline(feature["geometry"]) is not None, path.name
