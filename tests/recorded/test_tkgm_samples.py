"""Recorded responses of the parcel registry are parsed completely."""

import json
from pathlib import Path

import pytest

from hasat.sources.tkgm.geometry import geodesic_area
from hasat.sources.tkgm.registry.wire import (
    is_not_found,
    parse_message,
    parse_object,
    parse_outline,
    parse_parcel,
    parse_places,
)
from support.samples import REASON, SHARED, sample_folders, sample_id

SAMPLES = SHARED / "tkgm"
needs_real_responses = pytest.mark.skipif(not SAMPLES.is_dir(), reason=REASON)
FOLDERS = sample_folders("tkgm")


def _samples(pattern: str) -> list[Path]:
    return [path for folder in FOLDERS for path in sorted(folder.glob(pattern))]


@pytest.mark.parametrize(
    "path", _samples("point_*.json") + _samples("number_*.json"), ids=sample_id
)
def test_a_parcel_has_its_published_properties(path: Path) -> None:
    body = path.read_bytes()
    parcel = parse_parcel(parse_object(body))
    assert parcel.properties == json.loads(body)["properties"]
    assert parcel.geometry is not None
    assert parcel.area is not None
    # Corners are rounded to about a metre.
    assert geodesic_area(parcel.geometry) == pytest.approx(parcel.area, rel=0.1)


@pytest.mark.parametrize("path", _samples("places_*.json"), ids=sample_id)
def test_a_list_of_places_has_ids_names_and_boundaries(path: Path) -> None:
    published = json.loads(path.read_bytes())["features"]
    places = parse_places(path.read_bytes())
    assert [(place.id, place.name) for place in places] == [
        (one["properties"]["id"], one["properties"]["text"]) for one in published
    ]
    assert all(place.boundary is not None for place in places)


@needs_real_responses
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


@needs_real_responses
def test_a_parcel_by_number_whose_outline_was_cut_off() -> None:
    feature = json.loads((SAMPLES / "adaparsel_v3_ankara_2705-15.partial.json").read_bytes())
    parcel = parse_parcel({**feature, "geometry": None})
    assert parcel.key == (1162, "2705", "15")
    assert parcel.area == 1295


@pytest.mark.parametrize(
    "path", _samples("not_found_*.json") + _samples("error_404_*.json"), ids=sample_id
)
def test_not_found(path: Path) -> None:
    message = parse_message(path.read_bytes())
    assert message is not None
    assert is_not_found(message)


@needs_real_responses
def test_an_administrative_list() -> None:
    [place] = parse_places((SAMPLES / "idariYapi_shape.json").read_bytes())
    assert (place.id, place.name, place.boundary) == (28, "Ankara", None)


@needs_real_responses
def test_the_outlines_of_exported_files() -> None:
    for path in sorted(SAMPLES.glob("webexport_*.json")):
        for feature in json.loads(path.read_bytes())["features"]:
            assert parse_outline(feature["geometry"]) is not None, path.name
