"""Exports: other programs read every format back with the same content."""

import csv
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow.parquet
import pyogrio.raw
import pytest
import shapely

from hasat.errors import UsageError
from hasat.sources.tkgm.export import (
    ExportOptions,
    check_crs,
    export,
    export_unknown,
    without_parcels,
)
from hasat.sources.tkgm.features import StoredParcel, build_feature, unify_names
from hasat.sources.tkgm.geometry import geodesic_area
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


def read(path: Path) -> Any:
    """Read a file with GDAL; a GeoPackage has a second table, for the style."""
    return pyogrio.raw.read(path, layer="parcels" if path.suffix == ".gpkg" else None)


@pytest.mark.parametrize("extension", ["gpkg", "fgb", "shp", "kml", "kmz", "geojson"])
def test_gdal_reads_back_what_was_written(tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"Şehir {extension}.{extension}"
    assert export(PARCELS, path) == 3
    about, _, geometries, columns = read(path)
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
    about, _, _, columns = read(path)
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


@pytest.mark.parametrize("extension", ["gpkg", "fgb"])
def test_the_time_of_the_response_is_a_time(tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"parcels.{extension}"
    export(PARCELS, path)
    about, _, _, columns = read(path)
    at = dict(zip(about["fields"], columns, strict=True))["fetchedAt"]
    assert at.dtype.kind == "M"
    assert str(at[0]).startswith("2026-11-16T09:30:00")
    types = dict(zip(about["fields"], about["ogr_types"], strict=True))
    assert types["fetchedAt"] == "OFTDateTime"


def test_the_time_of_the_response_is_a_time_in_geoparquet(tmp_path: Path) -> None:
    path = tmp_path / "parcels.parquet"
    export(PARCELS, path)
    assert pyarrow.parquet.read_table(path).column("fetchedAt")[0].as_py() == AT


# Both parts become lines or worse when corners are rounded: one vanishes, one crosses itself.
COLLAPSED = [[32.8, 39.9], [32.80001, 39.9], [32.80001, 39.9], [32.8, 39.9]]
BOW_TIE = [[32.8, 39.9], [32.801, 39.901], [32.801, 39.9], [32.8, 39.901], [32.8, 39.9]]


@pytest.mark.parametrize(
    "extension", ["geojson", "gpkg", "fgb", "shp", "kml", "kmz", "dxf", "parquet", "csv"]
)
def test_outlines_damaged_by_rounding_are_repaired(tmp_path: Path, extension: str) -> None:
    damaged = [{"type": "MultiPolygon", "coordinates": [[RING], [COLLAPSED]]}]
    damaged.append({"type": "Polygon", "coordinates": [BOW_TIE]})
    damaged.append({"type": "Polygon", "coordinates": [COLLAPSED]})
    whole = parcel(1, None)
    assert whole.feature is not None
    parcels = [StoredParcel({**whole.feature, "geometry": one}, AT) for one in damaged]
    path = tmp_path / f"parcels.{extension}"
    assert export(parcels, path) == 3
    if extension in ("dxf", "parquet", "csv"):
        return
    _, _, geometries, _ = read(path)
    first, second, third = (one and shapely.from_wkb(one) for one in geometries)
    assert all(one.is_valid and one.area > 0 for one in (first, second))
    assert first.equals(shapely.Polygon(RING))
    assert third is None


@pytest.mark.parametrize("extension", ["gpkg", "fgb", "shp", "parquet"])
def test_another_coordinate_reference_system(tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"parcels.{extension}"
    export(PARCELS, path, ExportOptions(crs=check_crs("5255")))
    if extension == "parquet":
        table = pyarrow.parquet.read_table(path)
        about = json.loads(table.schema.metadata[b"geo"])["columns"]["geometry"]
        assert about["crs"]["id"] == {"authority": "EPSG", "code": 5255}
        outline = shapely.from_wkb(table.column("geometry")[0].as_py())
    else:
        about, _, geometries, _ = read(path)
        assert "5255" in about["crs"]
        outline = shapely.from_wkb(geometries[0])
    assert PARCELS[0].geometry is not None
    assert outline.area == pytest.approx(geodesic_area(PARCELS[0].geometry), rel=0.001)
    assert 480_000 < outline.bounds[0] < 500_000


@pytest.mark.parametrize("text", ["", "mars", "EPSG:1", "EPSG:5773", "0"])
def test_what_is_no_coordinate_reference_system(text: str) -> None:
    with pytest.raises(UsageError, match="coordinate reference system"):
        check_crs(text)


def test_formats_that_are_always_in_degrees(tmp_path: Path) -> None:
    for name in ("p.kml", "p.geojson"):
        with pytest.raises(UsageError, match="WGS 84"):
            export(PARCELS, tmp_path / name, ExportOptions(crs="EPSG:5255"))


def test_a_folder_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "p.gpkg"
    with pytest.raises(UsageError, match="does not exist"):
        export(PARCELS, path)
    assert not path.parent.exists()


def test_csv_with_outlines(tmp_path: Path) -> None:
    path = tmp_path / "parcels.csv"
    export(PARCELS, path, ExportOptions(wkt=True, turkish=True))
    rows = list(csv.DictReader(path.read_text("utf-8-sig").splitlines(), delimiter=";"))
    outline = shapely.from_wkt(rows[0]["wkt"])
    assert outline.equals(shapely.Polygon(RING, [HOLE]))
    assert rows[2]["wkt"] == ""


def test_a_geopackage_has_a_style_with_labels_for_qgis(tmp_path: Path) -> None:
    path = tmp_path / "parcels.gpkg"
    export(PARCELS, path)
    export_unknown(UNKNOWN, path, AT)
    about, _, _, columns = pyogrio.raw.read(path, layer="layer_styles", read_geometry=False)
    styles = dict(zip(about["fields"], columns, strict=True))
    assert styles["f_table_name"].tolist() == ["parcels", "unknown"]
    assert styles["f_geometry_column"].tolist() == ["geom", "geom"]
    assert all(styles["useAsDefault"])
    for qml in styles["styleQML"]:
        root = ElementTree.fromstring(qml)  # noqa: S314 - our own
        symbols = {one.get("name") for one in root.iterfind("renderer-v2/symbols/symbol")}
        used = {one.get("symbol") for one in root.iterfind(".//rule[@filter]")}
        assert used <= symbols
        assert root.get("labelsEnabled") == "1"
        assert root.find("labeling/settings/text-style") is not None
    assert '"adaNo"' in ElementTree.fromstring(styles["styleQML"][0]).find(  # noqa: S314
        "labeling/settings/text-style"
    ).get("fieldName")


def test_a_place_has_one_spelling(tmp_path: Path) -> None:
    plain = parcel(8, None, mahalleAd="Sirinevler Igdir")
    other = parcel(9, None, mahalleId=7, mahalleAd="Sirinevler Igdir")
    names = [one.properties["mahalleAd"] for one in unify_names([plain, PARCELS[0], other])]
    assert names == ["Şirinevler Iğdır", "Şirinevler Iğdır", "Sirinevler Igdir"]


def test_dxf_is_in_metres_of_the_right_zone(tmp_path: Path) -> None:
    path = tmp_path / "parcels.dxf"
    export(PARCELS, path)
    _, _, geometries, _ = pyogrio.raw.read(path)
    west, south, east, north = shapely.total_bounds(shapely.from_wkb(geometries)).tolist()
    # Zone 33: half a million metres east is the 33rd meridian.
    assert 480_000 < west < east < 500_000
    assert 4_400_000 < south < north < 4_430_000
    content = path.read_text(errors="replace")
    assert "2705/1" in content
    assert content.startswith("999\nTUREF / TM33 (EPSG:5255)\n")
    # Also as a text of the drawing, in which GDAL protects spaces.
    assert "TUREF / TM33 (EPSG:5255)" in content.replace("\\~", " ")[100:]
    assert "KOORDINAT_SISTEMI" in content


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
    export(PARCELS, path, ExportOptions(turkish=True))
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
    assert [str(name) for name, _ in pyogrio.list_layers(path)] == [
        "parcels",
        "unknown",
        "layer_styles",
    ]
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
        export(parcels, tmp_path / "p.csv", ExportOptions(turkish=turkish))
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
