"""Exports: other programs read every format back with the same content."""

import csv
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pyogrio.raw
import pytest
import shapely

from hasat.errors import UsageError
from hasat.sources.tkgm.export import export, export_unknown, without_parcels
from hasat.sources.tkgm.features import StoredParcel, build_feature
from hasat.sources.tkgm.registry.wire import parse_parcel
from hasat.sources.tkgm.scan.candidates import UnknownArea

AT = datetime(2026, 11, 16, 9, 30, tzinfo=UTC)
RING = [[32.80001, 39.9], [32.8011, 39.9], [32.8011, 39.901], [32.80001, 39.901], [32.80001, 39.9]]
HOLE = [[32.8003, 39.9003], [32.8003, 39.9006], [32.8006, 39.9006], [32.8003, 39.9003]]


def parcel(number: int, geometry: Any, **more: Any) -> StoredParcel:
    properties = {
        "mahalleId": 1162,
        "ilId": 28,
        "adaNo": "2705",
        "parselNo": str(number),
        "mahalleAd": "Şirinevler Iğdır",
        "alan": "1.295,50",
        "nitelik": 'Kâgir "Ev"; bahçeli',
    }
    feature = {"type": "Feature", "geometry": geometry, "properties": {**properties, **more}}
    return StoredParcel(build_feature(parse_parcel(feature)), AT)


PARCELS = [
    parcel(1, {"type": "Polygon", "coordinates": [RING, HOLE]}),
    parcel(2, {"type": "MultiPolygon", "coordinates": [[[[x + 0.01, y] for x, y in RING]]]}),
    parcel(3, None, ilId=None, durum="0", alan=""),
]


@pytest.mark.parametrize("extension", ["gpkg", "fgb", "shp", "kml", "kmz", "geojson"])
def test_gdal_reads_back_what_was_written(tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"Şehir {extension}.{extension}"
    assert export(PARCELS, path) == 3
    about, _, geometries, columns = pyogrio.raw.read(path)
    fields = dict(zip(about["fields"], columns, strict=True))
    found = {
        number: None if wkb is None else shapely.from_wkb(wkb)
        for number, wkb in zip(fields["parselNo"], geometries, strict=True)
    }
    assert found.keys() == {"1", "2", "3"}
    assert "fetchedAt" in fields
    one = found["1"]
    assert one is not None
    assert sum(len(shapely.get_parts(part).tolist()[0].interiors) for part in [one]) == 1
    assert set(fields["mahalleAd"]) == {"Şirinevler Iğdır"}


def test_areas_and_missing_values_keep_their_types(tmp_path: Path) -> None:
    path = tmp_path / "parcels.gpkg"
    export(PARCELS, path)
    about, _, _, columns = pyogrio.raw.read(path)
    fields = dict(zip(about["fields"], columns, strict=True))
    assert fields["alan"].tolist()[:2] == [1295.5, 1295.5]
    assert set(fields["mahalleId"].tolist()) == {1162}


def test_geoparquet_names_its_geometry(tmp_path: Path) -> None:
    path = tmp_path / "parcels.parquet"
    export(PARCELS, path)
    table = pyarrow.parquet.read_table(path)
    geo = json.loads(table.schema.metadata[b"geo"])
    assert geo["primary_column"] == "geometry"
    assert geo["columns"]["geometry"]["geometry_types"] == ["Polygon"]
    rows = table.to_pylist()
    assert [row["ilId"] for row in rows] == [28, 28, None]
    assert rows[2]["geometry"] is None
    assert shapely.from_wkb(rows[0]["geometry"]).bounds == pytest.approx(
        (32.80001, 39.9, 32.8011, 39.901)
    )


def test_dxf_is_in_metres_of_the_right_zone(tmp_path: Path) -> None:
    path = tmp_path / "parcels.dxf"
    export(PARCELS, path)
    _, _, geometries, _ = pyogrio.raw.read(path)
    west, south, east, north = shapely.total_bounds(shapely.from_wkb(geometries)).tolist()
    # Zone 33: half a million metres east is the 33rd meridian.
    assert 480_000 < west < east < 500_000
    assert 4_400_000 < south < north < 4_430_000
    assert "2705/1" in path.read_text(errors="replace")


def test_dxf_of_parcels_far_from_turkey_is_in_metres_too(tmp_path: Path) -> None:
    path = tmp_path / "parcels.dxf"
    ground = shapely.box(-76.7, 37.27, -76.699, 37.271)
    export([parcel(1, json.loads(shapely.to_geojson(ground)))], path)
    _, _, geometries, _ = pyogrio.raw.read(path)
    west, south, east, north = shapely.total_bounds(shapely.from_wkb(geometries)).tolist()
    assert 80 < east - west < 95
    assert 105 < north - south < 115


def test_csv_for_turkish_excel(tmp_path: Path) -> None:
    path = tmp_path / "parcels.csv"
    export(PARCELS, path, turkish=True)
    data = path.read_bytes()
    assert data.startswith(b"\xef\xbb\xbf")
    rows = list(csv.DictReader(data.decode("utf-8-sig").splitlines(), delimiter=";"))
    assert rows[0]["alan"] == "1295,5"
    assert rows[0]["nitelik"] == 'Kâgir "Ev"; bahçeli'
    assert rows[0]["lat"].startswith("39,90")
    assert (rows[2]["alan"], rows[2]["lat"], rows[2]["ilId"]) == ("", "", "")


def test_plain_csv(tmp_path: Path) -> None:
    path = tmp_path / "parcels.csv"
    export(PARCELS, path)
    rows = list(csv.DictReader(path.read_text("utf-8").splitlines()))
    assert rows[0]["alan"] == "1295.5"
    assert list(rows[0])[:3] == ["mahalleId", "adaNo", "parselNo"]


@pytest.mark.parametrize(
    "extension", ["geojson", "gpkg", "csv", "parquet", "dxf", "kml", "shp", "fgb"]
)
def test_no_parcels_at_all(tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"none.{extension}"
    assert export([], path) == 0
    assert path.exists()


def test_a_failed_export_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "parcels.geojson"
    export(PARCELS, path)
    before = path.read_bytes()

    def broken() -> Any:
        yield PARCELS[0]
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        export(broken(), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_an_unknown_extension_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="extension") as caught:
        export(PARCELS, tmp_path / "parcels.xyz")
    assert ".gpkg" in str(caught.value)


def test_the_better_spelling_stays_whichever_query_came_last() -> None:
    outline = {"type": "Polygon", "coordinates": [RING]}
    by_number = parcel(1, outline, mahalleAd="Remzi Oğuz Arık", pafta="I29").feature
    properties = {
        "mahalleId": 1162,
        "adaNo": "2705",
        "parselNo": "1",
        "mahalleAd": "Remzi Oğuz Arik",
    }
    by_point = {"type": "Feature", "geometry": outline, "properties": properties}
    assert build_feature(parse_parcel(by_point), by_number) == by_number
    renamed = {**by_point, "properties": {**properties, "mahalleAd": "Yeni"}}
    published = build_feature(parse_parcel(renamed), by_number)
    assert published["properties"]["mahalleAd"] == "Yeni"


UNKNOWN = [UnknownArea(shapely.box(32.802, 39.9, 32.803, 39.901), 0.25)]


def test_unknown_areas_are_a_layer_of_a_geopackage(tmp_path: Path) -> None:
    path = tmp_path / "parsel.gpkg"
    export(PARCELS, path)
    assert export_unknown(UNKNOWN, path, AT) == path
    assert [str(name) for name, _ in pyogrio.list_layers(path)] == ["parcels", "unknown"]
    about, _, geometries, columns = pyogrio.raw.read(path, layer="unknown")
    fields = dict(zip(about["fields"], columns, strict=True))
    assert fields["chance"].tolist() == [0.25]
    assert shapely.from_wkb(geometries[0]).equals(UNKNOWN[0].geometry)


@pytest.mark.parametrize(
    "extension", ["geojson", "fgb", "shp", "kml", "kmz", "dxf", "parquet", "csv"]
)
def test_unknown_areas_are_a_second_file_of_other_formats(tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"parsel.{extension}"
    for unknown in (UNKNOWN, []):
        written = export_unknown(unknown, path, AT)
        assert written == tmp_path / f"parsel.unknown.{extension}"
        assert written.is_file()
    assert not path.exists()


def test_unknown_areas_are_clipped_to_the_area_without_parcels() -> None:
    area = shapely.box(32.8, 39.9, 32.81, 39.91)
    parcel = shapely.box(32.8, 39.9, 32.805, 39.91)
    wide = UnknownArea(shapely.box(32.79, 39.89, 32.807, 39.92), 0.5)
    [left] = without_parcels([wide], [parcel], area)
    assert left.chance == 0.5
    assert left.geometry.equals(shapely.box(32.805, 39.9, 32.807, 39.91))
    assert without_parcels([UnknownArea(parcel, 0.5)], [parcel], area) == []


def test_a_csv_file_has_no_formulas(tmp_path: Path) -> None:
    evil = '=HYPERLINK("http://evil")'
    south = [[x, -y] for x, y in RING]
    parcels = [
        parcel(1, {"type": "Polygon", "coordinates": [south]}, nitelik=evil, egim=-4.5),
        parcel(2, {"type": "Polygon", "coordinates": [south]}, nitelik=" @SUM(A1)", egim=-3),
    ]
    for turkish in (False, True):
        export(parcels, tmp_path / "p.csv", turkish=turkish)
        with (tmp_path / "p.csv").open(encoding="utf-8-sig", newline="") as file:
            first, second = csv.DictReader(file, delimiter=";" if turkish else ",")
        assert (first["nitelik"], second["nitelik"]) == (f"'{evil}", "' @SUM(A1)")
        # Numbers stay numbers.
        assert first["egim"] == ("-4,5" if turkish else "-4.5")
        assert float(first["lat"].replace(",", ".")) < 0


@pytest.mark.parametrize(
    "extension", ["geojson", "gpkg", "fgb", "shp", "kml", "dxf", "parquet", "csv"]
)
def test_odd_names_and_values_are_written(tmp_path: Path, extension: str) -> None:
    ring = [[32.8, 39.9], [32.800001, 39.9], [32.800001, 39.91], [32.8, 39.91], [32.8, 39.9]]
    odd = {
        "A": 1,
        "a": 2,
        "fid": "x",
        "": 3,
        "a\nb": 4,
        "big": 10**400,
        "q": '"\\\x01',
        "n": 10**19,
    }
    parcels = [
        parcel(1, {"type": "Polygon", "coordinates": [ring]}, **odd),
        parcel(2, {"type": "Polygon", "coordinates": [RING]}, big=2.5, n=1.5),
    ]
    assert export(parcels, tmp_path / f"p.{extension}") == 2
