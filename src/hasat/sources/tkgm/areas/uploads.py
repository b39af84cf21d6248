"""Read the area in an uploaded file: GeoJSON, KML, KMZ, GeoPackage or a zipped shapefile.

GDAL recognises formats by content, and some refer to other files or addresses. So an upload is
opened with GDAL only after its own content shows that it is a GeoPackage or a shapefile.
"""

import io
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree

import shapely
from shapely.errors import ShapelyError

from hasat.errors import UsageError
from hasat.messages import msg
from hasat.sources.tkgm.geometry import Outline, merge_polygons, parse_area, read_area
from hasat.sources.tkgm.registry.markup import local_name, read_polygons

MAX_FILE_BYTES = 20_000_000
MAX_CORNERS = 50_000
_SQLITE = b"SQLite format 3\0"
_SHAPEFILE = b"\x00\x00\x27\x0a"
_PARTS_OF_SHAPEFILE = (".shp", ".shx", ".dbf", ".prj", ".cpg")
_FORMATS = msg("Upload a GeoJSON, KML, KMZ or GeoPackage file, or a shapefile as .zip.")


def read_upload(name: str, content: bytes) -> Outline:
    """Return the union of the polygons in a file, in degrees."""
    area = _read(name, content)
    if (count := int(shapely.get_num_coordinates(area))) > MAX_CORNERS:
        raise UsageError(
            msg(
                "The area has {count:,} corners, more than {most:,}.", count=count, most=MAX_CORNERS
            ),
            remedy=msg("Simplify it and upload it again."),
        )
    return area


def _read(name: str, content: bytes) -> Outline:
    start = content[:512].lstrip(b"\xef\xbb\xbf \t\r\n")
    if not start:
        raise UsageError(msg("The file {name} is empty.", name=name), remedy=_FORMATS)
    if start.startswith((b"{", b"[")):
        return parse_area(content.decode("utf-8-sig", "replace"))
    if start.startswith(b"<"):
        return merge_polygons(list(_kml_polygons(name, content)), name)
    if content.startswith(_SQLITE):
        return _read_with_gdal({"area.gpkg": content}, name)
    if content.startswith(b"PK"):
        return _read_zip(name, content)
    raise UsageError(msg("{name} is not a file with an area.", name=name), remedy=_FORMATS)


def _read_zip(name: str, content: bytes) -> Outline:
    """Return the area of a KMZ file or of a zipped shapefile."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = [one for one in archive.infolist() if not one.is_dir()]
            if sum(one.file_size for one in members) > 10 * MAX_FILE_BYTES:
                raise UsageError(msg("{name} is too large when it is unpacked.", name=name))
            for one in members:
                if one.filename.lower().endswith(".kml"):
                    return merge_polygons(list(_kml_polygons(name, archive.read(one))), name)
            parts = {
                f"area{suffix}": archive.read(one)
                for one in members
                if (suffix := PurePosixPath(one.filename).suffix.lower()) in _PARTS_OF_SHAPEFILE
            }
    except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError) as error:
        raise UsageError(msg("{name} cannot be unpacked.", name=name), remedy=_FORMATS) from error
    if not parts.get("area.shp", b"").startswith(_SHAPEFILE):
        raise UsageError(msg("{name} is not a file with an area.", name=name), remedy=_FORMATS)
    return _read_with_gdal(parts, name)


def _read_with_gdal(parts: dict[str, bytes], name: str) -> Outline:
    with tempfile.TemporaryDirectory() as folder:
        for file_name, content in parts.items():
            (Path(folder) / file_name).write_bytes(content)
        with warnings.catch_warnings():
            # What GDAL finds odd in a file; what it cannot read is an error.
            warnings.simplefilter("ignore", RuntimeWarning)
            return read_area(str(Path(folder) / min(parts, key=_order)), name=name)


def _order(file_name: str) -> int:
    return 0 if file_name.endswith((".shp", ".gpkg")) else 1


def _kml_polygons(name: str, content: bytes) -> Iterator[shapely.Geometry]:
    """Yield the polygons of a KML document, with their holes."""
    try:
        root = ElementTree.fromstring(content)  # noqa: S314 - expat limits the growth of entities
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise UsageError(
            msg("{name} is not valid XML: {error}.", name=name, error=error), remedy=_FORMATS
        ) from error
    if local_name(root) != "kml":
        raise UsageError(msg("{name} is XML, but not KML.", name=name), remedy=_FORMATS)
    try:
        yield from read_polygons(root)
    except (ShapelyError, ValueError) as error:
        raise UsageError(
            msg("{name} has a polygon that cannot be read.", name=name), remedy=_FORMATS
        ) from error
