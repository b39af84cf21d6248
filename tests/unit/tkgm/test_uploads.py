"""Uploaded areas: the formats, and files that must not be opened."""

import io
import json
import sqlite3
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
import shapely
from shapely.geometry import mapping

from hasat.errors import UsageError
from hasat.sources.tkgm.areas.uploads import read_upload
from hasat.sources.tkgm.export import export
from hasat.sources.tkgm.features import StoredParcel

AREA = shapely.box(32.85, 39.9, 32.86, 39.91).difference(
    shapely.box(32.853, 39.903, 32.856, 39.906)
)
KML = """<?xml version="1.0"?><kml xmlns="http://www.opengis.net/kml/2.2"><Document><Placemark>
<Polygon><outerBoundaryIs><LinearRing><coordinates>{outer}</coordinates></LinearRing></outerBoundaryIs>
<innerBoundaryIs><LinearRing><coordinates>{inner}</coordinates></LinearRing></innerBoundaryIs>
</Polygon></Placemark></Document></kml>"""


def _kml() -> bytes:
    rings = [
        " ".join(f"{x},{y},0" for x, y in ring.coords) for ring in (AREA.exterior, *AREA.interiors)
    ]
    return KML.format(outer=rings[0], inner=rings[1]).encode()


def _exported(folder: Path, name: str) -> bytes:
    feature = {"type": "Feature", "geometry": mapping(AREA), "properties": {"adaNo": "1"}}
    export([StoredParcel(feature, datetime(2026, 11, 2, tzinfo=UTC))], folder / name)
    return (folder / name).read_bytes()


def _zipped(name: str, content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, content)
    return file.getvalue()


def test_every_format_gives_the_same_area(tmp_path: Path) -> None:
    feature = {"type": "Feature", "properties": {}, "geometry": mapping(AREA)}
    files = {
        "a.geojson": json.dumps({"type": "FeatureCollection", "features": [feature]}).encode(),
        "b.json": b"\xef\xbb\xbf" + json.dumps(mapping(AREA)).encode(),
        "c.kml": _kml(),
        "d.kmz": _zipped("doc.kml", _kml()),
        "e.gpkg": _exported(tmp_path, "e.gpkg"),
        "f.zip": _exported(tmp_path, "f.zip"),
    }
    for name, content in files.items():
        assert read_upload(name, content).symmetric_difference(AREA).area < 1e-12, name


def test_a_file_that_refers_to_other_files_is_not_opened(tmp_path: Path) -> None:
    secret = tmp_path / "secret.geojson"
    secret.write_text(json.dumps(mapping(AREA)))
    vrt = f"""<OGRVRTDataSource><OGRVRTLayer name="secret"><SrcDataSource>{secret}</SrcDataSource>
        </OGRVRTLayer></OGRVRTDataSource>""".encode()
    for name, content in {
        "a.kml": vrt,
        "a.geojson": vrt,
        "a.kmz": _zipped("doc.kml", vrt),
        "a.zip": _zipped("area.shp", vrt),
        "a.gpkg": vrt,
    }.items():
        with pytest.raises(UsageError):
            read_upload(name, content)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{"type": "Point", "coordinates": [32, 39]}',
        b"<kml><Polygon><outerBoundaryIs><coordinates>1,2 x,y</coordinates></outerBoundaryIs>"
        b"</Polygon></kml>",
        b"<kml><Polygon/></kml>",
        b"<kml",
        b"PK\x03\x04damaged",
        b"SQLite format 3\0" + b"\1" * 200,
        bytes(range(256)),
    ],
)
def test_damaged_files_are_one_clear_error(content: bytes) -> None:
    with pytest.raises(UsageError) as caught:
        read_upload("area.file", content)
    assert len(str(caught.value)) < 300


def test_a_database_without_layers_is_an_error(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "x.gpkg") as file:
        file.execute("CREATE TABLE x (y)")
    with pytest.raises(UsageError):
        read_upload("x.gpkg", (tmp_path / "x.gpkg").read_bytes())
