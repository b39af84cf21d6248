"""Areas are read from files, boxes, GeoJSON and drawn corners."""

import json
from pathlib import Path

import numpy as np
import pyogrio.raw
import pytest
import shapely
from pyproj import Transformer
from shapely import MultiPolygon, Polygon

from hasat.errors import UsageError
from hasat.sources.tkgm.geometry import (
    check_in_turkey,
    check_size,
    parse_area,
    parse_drawn_area,
    read_area,
)
from hasat.sources.tkgm.registry.lookup import check_number

SQUARE = shapely.box(32.80, 39.90, 32.81, 39.91)
OTHER = shapely.box(32.85, 39.90, 32.86, 39.91)


def write(path: Path, *shapes: shapely.Geometry, crs: str = "EPSG:4326") -> Path:
    wkb = np.array([shapely.to_wkb(one) for one in shapes], object)
    kind = "Polygon" if all(isinstance(one, Polygon) for one in shapes) else "Unknown"
    names = np.array(["çalışma"] * len(shapes), object)
    pyogrio.raw.write(
        path,
        wkb,
        field_data=[names],
        fields=["name"],
        geometry_type=kind,
        crs=crs,
        driver="LIBKML" if path.suffix == ".kml" else None,
    )
    return path


@pytest.mark.parametrize("extension", ["geojson", "kml", "gpkg", "fgb", "shp"])
def test_an_area_in_any_file(tmp_path: Path, extension: str) -> None:
    path = write(tmp_path / f"Çalışma alanı.{extension}", SQUARE)
    assert shapely.equals_exact(
        read_area(str(path)).envelope, SQUARE, tolerance=1e-9, normalize=True
    )


def test_several_polygons_are_one_area(tmp_path: Path) -> None:
    area = read_area(str(write(tmp_path / "two.gpkg", SQUARE, OTHER)))
    assert isinstance(area, MultiPolygon)
    assert area.area == pytest.approx(SQUARE.area + OTHER.area)


def test_metres_become_degrees(tmp_path: Path) -> None:
    flat = Transformer.from_crs("EPSG:4326", "EPSG:5255", always_xy=True)
    metres = shapely.box(*flat.transform_bounds(*SQUARE.bounds))
    area = read_area(str(write(tmp_path / "metres.gpkg", metres, crs="EPSG:5255")))
    assert area.bounds == pytest.approx(SQUARE.bounds, abs=1e-3)


def test_a_box() -> None:
    assert read_area("32.80,39.90,32.81,39.91").equals(SQUARE)
    assert read_area(" 32.80, 39.90 ,32.81,39.91").equals(SQUARE)


@pytest.mark.parametrize(
    "text", ["", "nowhere.geojson", "1,2,3", "32.81,39.90,32.80,39.91", "1,2,3,95", "a,b,c,d"]
)
def test_an_invalid_area_is_rejected_with_a_remedy(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_area(text)
    assert caught.value.remedy


def test_points_are_no_area(tmp_path: Path) -> None:
    path = write(tmp_path / "points.geojson", shapely.Point(32.8, 39.9))
    with pytest.raises(UsageError, match="no polygon"):
        read_area(str(path))


BOW_TIE = [[32.80, 39.89], [32.81, 39.90], [32.81, 39.89], [32.80, 39.90], [32.80, 39.89]]
SPIKE = [[32.80, 39.89], [32.81, 39.89], [32.81, 39.90], [32.81, 39.91], [32.81, 39.90],
         [32.80, 39.90], [32.80, 39.89]]  # fmt: skip


def test_edges_that_cross_are_an_error_and_a_spike_is_repaired(tmp_path: Path) -> None:
    for corners, repaired in ((BOW_TIE, False), (SPIKE, True)):
        text = json.dumps({"type": "Polygon", "coordinates": [corners]})
        path = tmp_path / "area.geojson"
        path.write_text(text)
        for read, given in ((parse_area, text), (read_area, str(path))):
            if repaired:
                assert read(given).is_valid
            else:
                with pytest.raises(UsageError, match=r"cross each other, at 32\.805 39\.895"):
                    read(given)


@pytest.mark.filterwarnings("ignore:Non closed ring")
def test_corners_that_are_no_numbers(tmp_path: Path) -> None:
    path = tmp_path / "area.geojson"
    path.write_text(
        '{"type":"Polygon","coordinates":[[[NaN,39.9],[32.8,39.9],[32.8,39.91],[NaN,39.9]]]}'
    )
    with pytest.raises(UsageError, match="damaged"):
        read_area(str(path))
    with pytest.raises(UsageError, match="neither a box nor GeoJSON"):
        parse_area(path.read_text())


def test_a_broken_file(tmp_path: Path) -> None:
    path = tmp_path / "area.geojson"
    path.write_text(json.dumps({"type": "Feature"})[:-3])
    with pytest.raises(UsageError, match="cannot be read"):
        read_area(str(path))


def test_an_area_in_a_request() -> None:
    geometry = json.loads(shapely.to_geojson(SQUARE))
    feature = {"type": "Feature", "geometry": geometry, "properties": {}}
    for form in (
        "32.80,39.90,32.81,39.91",
        geometry,
        feature,
        {"type": "FeatureCollection", "features": [feature]},
        json.dumps(geometry),
    ):
        assert parse_area(form).equals(SQUARE)


def test_a_request_cannot_name_a_file(tmp_path: Path) -> None:
    path = write(tmp_path / "alan.geojson", SQUARE)
    point = {"type": "Point", "coordinates": [1, 2]}
    for form in (str(path), "", "1,2", 7, [], {"type": "Polygon", "coordinates": "x"}, point):
        with pytest.raises(UsageError):
            parse_area(form)


def test_a_drawn_area_is_a_box_or_corners() -> None:
    assert parse_drawn_area("32.84,39.89,32.86,39.91").bounds == (32.84, 39.89, 32.86, 39.91)
    assert parse_drawn_area("32.84,39.89 32.86,39.89 32.86,39.91").area == pytest.approx(0.0002)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Ankara",
        "1,2,3",
        "32.86,39.89,32.84",
        "32.84,39.89 32.86,39.91",
        "0,0 1,1 0,1 1,0",
        "1,1 1,1 1,1",
        "nan,39,33,40",
        "32,39,inf,40",
        "0,0,40,40",
        " ".join(["1,1"] * 600),
    ],
)
def test_an_invalid_drawn_area_is_rejected(text: str) -> None:
    with pytest.raises(UsageError):
        parse_drawn_area(text)


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (shapely.box(39.89, 32.84, 39.91, 32.86), "32.84,39.89,32.86,39.91"),
        (shapely.Point(39.9, 32.85), "32.85, 39.9 is outside Turkey: latitude and longitude"),
        (shapely.box(2.3, 48.8, 2.4, 48.9), "2.3,48.8,2.4,48.9 is outside Turkey."),
        (shapely.Point(0, 0), "0, 0 is outside Turkey."),
    ],
)
def test_a_place_outside_turkey_is_rejected(place: shapely.Geometry, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_in_turkey(place)
    assert said in f"{caught.value} {caught.value.remedy}"


def test_places_in_turkey_are_accepted() -> None:
    for place in (SQUARE, shapely.Point(44.79, 39.65), shapely.Point(25.67, 40.2)):
        check_in_turkey(place)


def test_an_area_above_the_limit_needs_confirmation() -> None:
    check_size(SQUARE, 1.0)
    with pytest.raises(UsageError, match="--yes"):
        check_size(SQUARE, 0.5)


def test_a_file_that_refers_to_what_is_no_map_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no map")
    file = tmp_path / "area.kml"
    file.write_text(
        f'<OGRVRTDataSource><OGRVRTLayer name="notes"><SrcDataSource>{tmp_path}/notes.txt'
        "</SrcDataSource></OGRVRTLayer></OGRVRTDataSource>"
    )
    with pytest.raises(UsageError):
        read_area(str(file))


@pytest.mark.parametrize(
    "number", [("x", "1", "1"), ("1", "a/b", "1"), ("1", "1", ""), ("9" * 20, "1", "1")]
)
def test_a_number_that_no_parcel_has_is_refused_before_a_request(
    number: tuple[str, str, str],
) -> None:
    with pytest.raises(UsageError):
        check_number(*number)
    assert check_number("1162", 2705, " 15 ").parsel == "15"
