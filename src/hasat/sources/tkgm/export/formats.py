"""Write parcels to files; the extension of the name chooses the format."""

import csv
import json
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pyogrio.raw
import shapely
from pyogrio.errors import DataLayerError, DataSourceError, FeatureError
from pyproj import CRS
from shapely.geometry.base import BaseGeometry

from hasat.errors import UsageError
from hasat.messages import msg
from hasat.sources.tkgm.export.columns import ARROW, FETCHED_AT, Column, columns_of, field_names
from hasat.sources.tkgm.export.crs import WGS84, describe, transform, zone_of
from hasat.sources.tkgm.export.geopackage import add_style
from hasat.sources.tkgm.features import StoredParcel
from hasat.sources.tkgm.geometry import polygons_of
from hasat.sources.tkgm.scan.candidates import UnknownArea
from hasat.store.home import disk_full, explaining_disk_full, is_short
from hasat.text import csv_text

# A time with the zone UTC, for GDAL.
_UTC = 100
_WITH_TIMES = ("GPKG", "FlatGeobuf")


@dataclass(frozen=True)
class ExportOptions:
    """How to write a file.

    `crs` is the coordinate reference system; DXF uses the zone of the parcels if it is not set.
    For CSV, `turkish` means semicolons, decimal commas and a byte order mark, as Excel in Turkey
    expects, and `wkt` adds the outlines.
    """

    crs: str | None = None
    turkish: bool = False
    wkt: bool = False


_PLAIN = ExportOptions()

Writer = Callable[[Sequence[StoredParcel], Path, ExportOptions], None]


def export(parcels: Iterable[StoredParcel], path: Path, options: ExportOptions = _PLAIN) -> int:
    """Write a file in the format of its extension, completely or not at all; return the count."""
    check_extension(path, options)
    found = list(parcels)
    with explaining_disk_full(path.name, path.parent):
        try:
            _write(_WRITERS[path.suffix.lower()], found, path, options)
        except (DataSourceError, DataLayerError, FeatureError) as error:
            # GDAL does not say why it could not write.
            if is_short(path.parent):
                raise disk_full(path.parent, path.name) from error
            raise
    return len(found)


def _write(
    write: Writer, found: Sequence[StoredParcel], path: Path, options: ExportOptions
) -> None:
    with tempfile.TemporaryDirectory(prefix=".hasat-", dir=path.parent) as folder:
        write(found, Path(folder) / path.name, options)
        # A shapefile is several files.
        for part in sorted(Path(folder).iterdir()):
            part.replace(path.parent / part.name)


def check_extension(path: Path, options: ExportOptions = _PLAIN) -> None:
    """Raise UsageError for a file that cannot be written: its format, its folder, its system."""
    extension = path.suffix.lower()
    if extension not in _WRITERS:
        raise UsageError(
            msg("{path} has no extension of a supported format.", path=path.name),
            remedy=msg("Use one of {extensions}.", extensions=_extensions()),
        )
    if not path.parent.is_dir():
        raise UsageError(
            msg("The folder {folder} does not exist.", folder=path.parent),
            remedy=msg("Create it, or choose another one."),
        )
    if options.crs not in (None, WGS84) and extension in _ONLY_DEGREES:
        raise UsageError(
            msg("{extension} files are always in WGS 84.", extension=extension),
            remedy=msg("Choose another format for {crs}, such as .gpkg.", crs=options.crs),
        )


def file_extension(name: str) -> str:
    """Return the extension of the one file of a format: a shapefile is sent as an archive."""
    return "zip" if name == "shp" else name


def export_unknown(
    unknown: Iterable[UnknownArea],
    path: Path,
    at: datetime,
    options: ExportOptions = _PLAIN,
    *,
    alone: bool = False,
) -> Path:
    """Write areas that may still hold parcels next to a file of parcels; return their file.

    A GeoPackage gets a second layer, `unknown`; a.kml gets a neighbour a.unknown.kml. With `alone`
    the areas are written to the file itself.
    """
    found = [StoredParcel(_unknown_feature(one), at) for one in unknown]
    if alone:
        export(found, path, options)
        return path
    if path.suffix.lower() == ".gpkg" and path.is_file():
        _write_with_gdal("GPKG", "unknown")(found, path, options)
        return path
    neighbour = path.with_name(f"{path.stem}.unknown{path.suffix}")
    export(found, neighbour, options)
    return neighbour


def without_parcels(
    unknown: Iterable[UnknownArea], parcels: Sequence[BaseGeometry], area: BaseGeometry
) -> list[UnknownArea]:
    """Return the parts of unknown areas that lie in the area and in no parcel."""
    tree = shapely.STRtree(parcels)
    found = []
    for one in unknown:
        if one.numbers is not None:
            found.append(one)
            continue
        near = [parcels[index] for index in tree.query(one.geometry).tolist()]
        rest = one.geometry.intersection(area).difference(shapely.union_all(near))
        if parts := polygons_of(rest):
            found.append(UnknownArea(shapely.MultiPolygon(parts), one.chance))
    return found


def _unknown_feature(one: UnknownArea) -> dict[str, Any]:
    outline = json.loads(shapely.to_geojson(shapely.set_precision(one.geometry, 1e-7)))
    chance = None if one.chance is None else round(one.chance, 4)
    properties = {"chance": chance, "numbers": one.numbers}
    return {"type": "Feature", "geometry": outline, "properties": properties}


def _extensions() -> str:
    *others, last = sorted(_WRITERS)
    return f"{', '.join(others)} or {last}"


def _write_geojson(parcels: Sequence[StoredParcel], path: Path, _options: ExportOptions) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write('{"type":"FeatureCollection","features":[\n')
        for number, one in enumerate(parcels):
            file.write(",\n" if number else "")
            json.dump(one.dated(), file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n]}\n")


def _write_with_gdal(driver: str, layer: str = "parcels") -> Writer:
    def write(parcels: Sequence[StoredParcel], path: Path, options: ExportOptions) -> None:
        columns = columns_of(parcels)
        if driver not in _WITH_TIMES:
            columns = [one.as_text() if one.kind is datetime else one for one in columns]
        if driver == "LIBKML":
            columns = [Column("Name", [_label(one) for one in parcels]), *columns]
        names = field_names(columns)
        crs = options.crs or WGS84
        offsets = {
            name: np.full(len(parcels), _UTC)
            for name, column in zip(names, columns, strict=True)
            if column.kind is datetime
        }
        with warnings.catch_warnings():
            # A shapefile limits names to ten characters and texts to 254.
            warnings.filterwarnings("ignore", "Normalized/laundered field name")
            warnings.filterwarnings("ignore", "Value .* has been truncated to 254 characters")
            pyogrio.raw.write(
                path,
                _wkb(transform([one.geometry for one in parcels], crs)),
                field_data=[column.array for column in columns],
                field_mask=[column.missing for column in columns],
                fields=names,
                geometry_type="MultiPolygon",
                crs=crs,
                driver=driver,
                layer=layer,
                gdal_tz_offsets=offsets,
                **_driver_options(driver, parcels),
            )
        if driver == "GPKG":
            add_style(path, layer)

    return write


def _driver_options(driver: str, parcels: Sequence[StoredParcel]) -> dict[str, str]:
    if driver == "ESRI Shapefile":
        return {"encoding": "UTF-8"}
    # The spatial index cannot hold passive parcels, which have no geometry.
    if driver == "FlatGeobuf" and any(one.geometry is None for one in parcels):
        return {"SPATIAL_INDEX": "NO"}
    return {}


def _write_zip(parcels: Sequence[StoredParcel], path: Path, options: ExportOptions) -> None:
    """Write a shapefile, whose several files are one archive."""
    with tempfile.TemporaryDirectory(prefix=".hasat-", dir=path.parent) as folder:
        _write_with_gdal("ESRI Shapefile")(parcels, Path(folder) / f"{path.stem}.shp", options)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for part in sorted(Path(folder).iterdir()):
                archive.write(part, part.name)


def _write_dxf(parcels: Sequence[StoredParcel], path: Path, options: ExportOptions) -> None:
    """Write outlines and labels in metres, and the name of their zone next to them."""
    present = [one for one in parcels if one.geometry is not None]
    zone = options.crs or zone_of([one.geometry for one in present])
    outlines = transform([one.geometry for one in present], zone)
    shapes: list[BaseGeometry | None] = []
    layers, texts = [], []

    def add(geometry: BaseGeometry, layer: str, label: str = "") -> None:
        shapes.append(geometry)
        layers.append(layer)
        texts.append(label)

    for one, outline in zip(present, outlines, strict=True):
        assert outline is not None
        for ring in shapely.get_rings(shapely.get_parts(outline)).tolist():
            add(shapely.LineString(ring.coords), "PARSEL")
        label = f'LABEL(f:"Arial",t:"{_label(one)}",s:2g,p:5)'
        add(outline.representative_point(), "PARSEL_NO", label)
    if present:
        west, south, *_ = shapely.total_bounds(np.array(outlines, object)).tolist()
        label = f'LABEL(f:"Arial",t:"{describe(zone)}",s:5g,p:7)'
        add(shapely.Point(west, south), "KOORDINAT_SISTEMI", label)
    pyogrio.raw.write(
        path,
        _wkb(shapes),
        field_data=[np.array(layers, object), np.array(texts, object)],
        fields=["Layer", "OGR_STYLE"],
        geometry_type="Unknown",
        crs=zone,
        driver="DXF",
        layer="entities",
    )
    # A comment, which every program skips.
    content = path.read_bytes()
    path.write_bytes(f"999\n{describe(zone)}\n".encode("ascii", "replace") + content)


def _write_parquet(parcels: Sequence[StoredParcel], path: Path, options: ExportOptions) -> None:
    """Write GeoParquet 1.1."""
    columns = columns_of(parcels)
    geometries = transform([one.geometry for one in parcels], options.crs or WGS84)
    wkb = pa.array(
        [None if one is None else shapely.to_wkb(one) for one in geometries], pa.binary()
    )
    present = [geometry for geometry in geometries if geometry is not None]
    about: dict[str, Any] = {
        "encoding": "WKB",
        "geometry_types": sorted({geometry.geom_type for geometry in present}),
        "bbox": shapely.total_bounds(present).tolist() if present else [0, 0, 0, 0],
    }
    # Without a system, GeoParquet means longitude and latitude of WGS 84.
    if options.crs not in (None, WGS84):
        about["crs"] = CRS.from_user_input(options.crs).to_json_dict()
    geo = {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": about}}
    arrays = [pa.array(column.cells, ARROW[column.kind]) for column in columns]
    table = pa.table([*arrays, wkb], names=[*(column.name for column in columns), "geometry"])
    table = table.replace_schema_metadata({"geo": json.dumps(geo)})
    pyarrow.parquet.write_table(table, path, compression="zstd")


def _write_csv(parcels: Sequence[StoredParcel], path: Path, options: ExportOptions) -> None:
    columns = [one.as_text() if one.name == FETCHED_AT else one for one in columns_of(parcels)]
    geometries = [one.geometry for one in parcels]
    outlines = transform(geometries, options.crs or WGS84) if options.wkt else ()
    turkish = options.turkish
    with path.open("w", encoding="utf-8-sig" if turkish else "utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=";" if turkish else ",")
        extra = ("lat", "lon", "wkt") if options.wkt else ("lat", "lon")
        writer.writerow([*(csv_text(column.name) for column in columns), *extra])
        for number, geometry in enumerate(geometries):
            point = None if geometry is None else geometry.representative_point()
            place = [None, None] if point is None else [round(point.y, 6), round(point.x, 6)]
            row = [column.cells[number] for column in columns]
            cells = [_csv_cell(value, turkish=turkish) for value in (*row, *place)]
            if options.wkt:
                outline = outlines[number]
                cells.append(None if outline is None else shapely.to_wkt(outline, 7))
            writer.writerow(cells)


def _csv_cell(value: Any, *, turkish: bool) -> Any:
    if isinstance(value, str):
        return csv_text(value)
    if isinstance(value, float) and turkish:
        return repr(value).replace(".", ",")
    return value


def _label(one: StoredParcel) -> str:
    properties = one.properties
    if "chance" in properties:
        chance = properties["chance"]
        return str(properties.get("numbers") or "") if chance is None else f"{chance:.0%}"
    return f"{properties.get('adaNo')}/{properties.get('parselNo')}"


def _wkb(geometries: Sequence[BaseGeometry | None]) -> np.ndarray[Any, Any]:
    """Return polygons as multi-polygons, because a layer has one geometry type."""
    alike = [
        shapely.MultiPolygon([one]) if isinstance(one, shapely.Polygon) else one
        for one in geometries
    ]
    found = np.empty(len(alike), object)
    found[:] = [None if one is None else shapely.to_wkb(one) for one in alike]
    return found


_ONLY_DEGREES = (".geojson", ".json", ".kml", ".kmz")
_WRITERS: dict[str, Writer] = {
    ".geojson": _write_geojson,
    ".json": _write_geojson,
    ".gpkg": _write_with_gdal("GPKG"),
    ".fgb": _write_with_gdal("FlatGeobuf"),
    ".shp": _write_with_gdal("ESRI Shapefile"),
    ".zip": _write_zip,
    ".kml": _write_with_gdal("LIBKML"),
    ".kmz": _write_with_gdal("LIBKML"),
    ".dxf": _write_dxf,
    ".parquet": _write_parquet,
    ".csv": _write_csv,
}
