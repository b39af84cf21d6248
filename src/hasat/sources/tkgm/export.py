"""Write parcels to files; the extension of the name chooses the format."""

import csv
import json
import re
import tempfile
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pyogrio.raw
import shapely
from pyogrio.errors import DataLayerError, DataSourceError, FeatureError
from pyproj import Transformer
from shapely.geometry.base import BaseGeometry

from hasat.errors import UsageError
from hasat.messages import msg
from hasat.sources.tkgm.features import StoredParcel
from hasat.sources.tkgm.geometry import polygons_of
from hasat.sources.tkgm.scan.candidates import UnknownArea
from hasat.store.home import disk_full, explaining_disk_full, is_short
from hasat.text import csv_text

_WGS84 = "EPSG:4326"
# TUREF / TM27 ... TM45: zones of three degrees, by their central meridian.
_ZONES = {meridian: f"EPSG:{5253 + number}" for number, meridian in enumerate(range(27, 46, 3))}
_ARROW = {int: pa.int64(), float: pa.float64(), str: pa.string()}
_GDAL_NAMES = ("fid", "ogc_fid", "geom", "geometry")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_EXACT_IN_FLOAT = 2**53
_KEY_COLUMNS = ("mahalleId", "adaNo", "parselNo")


@dataclass(frozen=True)
class Column:
    """One property of all parcels; numeric only if all values are."""

    name: str
    values: list[Any]

    @cached_property
    def kind(self) -> type:
        types = {type(value) for value in self.values if value is not None}
        if types == {int}:
            # Integers too large for every format are written as text.
            fits = all(one is None or abs(one) < 2**63 for one in self.values)
            return int if fits else str
        if any(type(one) is int and abs(one) >= _EXACT_IN_FLOAT for one in self.values):
            return str
        return float if types and types <= {int, float} else str

    @cached_property
    def cells(self) -> list[Any]:
        return [None if value is None else self._cell(value) for value in self.values]

    @property
    def missing(self) -> np.ndarray[Any, Any]:
        return np.array([value is None for value in self.values], bool)

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The values for GDAL, with zeros where `missing` is set."""
        if self.kind is str:
            return np.array(self.cells, object)
        filled = [0 if value is None else value for value in self.values]
        return np.array(filled, np.int64 if self.kind is int else np.float64)

    def _cell(self, value: Any) -> Any:
        if self.kind is not str:
            return self.kind(value)
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def export(parcels: Iterable[StoredParcel], path: Path, *, turkish: bool = False) -> int:
    """Write a file in the format of its extension, completely or not at all; return the count.

    `turkish` is for CSV: semicolons, decimal commas and a byte order mark, as Excel in Turkey
    expects.
    """
    check_extension(path)
    write = _WRITERS[path.suffix.lower()]
    found = list(parcels)
    with explaining_disk_full(path.name, path.parent):
        try:
            _write(write, found, path, turkish=turkish)
        except (DataSourceError, DataLayerError, FeatureError) as error:
            # GDAL does not say why it could not write.
            if is_short(path.parent):
                raise disk_full(path.parent, path.name) from error
            raise
    return len(found)


def _write(
    write: Callable[[Sequence[StoredParcel], Path], None],
    found: Sequence[StoredParcel],
    path: Path,
    *,
    turkish: bool,
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".hasat-", dir=path.parent) as folder:
        made = Path(folder) / path.name
        if write is _write_csv:
            _write_csv(found, made, turkish=turkish)
        else:
            write(found, made)
        # A shapefile is several files.
        for part in sorted(Path(folder).iterdir()):
            part.replace(path.parent / part.name)


def check_extension(path: Path) -> None:
    """Raise UsageError for a name whose extension is no supported format."""
    if path.suffix.lower() not in _WRITERS:
        raise UsageError(
            msg("{path} has no extension of a supported format.", path=path.name),
            remedy=msg("Use one of {extensions}.", extensions=_extensions()),
        )


def export_unknown(
    unknown: Iterable[UnknownArea], path: Path, at: datetime, *, alone: bool = False
) -> Path:
    """Write areas that may still hold parcels next to a file of parcels; return their file.

    A GeoPackage gets a second layer, `unknown`; a.kml gets a neighbour a.unknown.kml. With `alone`
    the areas are written to the file itself.
    """
    found = [StoredParcel(_unknown_feature(one), at) for one in unknown]
    if alone:
        export(found, path)
        return path
    if path.suffix.lower() == ".gpkg" and path.is_file():
        _write_with_gdal("GPKG", "unknown")(found, path)
        return path
    neighbour = path.with_name(f"{path.stem}.unknown{path.suffix}")
    export(found, neighbour)
    return neighbour


def without_parcels(
    unknown: Iterable[UnknownArea], parcels: Sequence[BaseGeometry], area: BaseGeometry
) -> list[UnknownArea]:
    """Return the parts of unknown areas that lie in the area and in no parcel."""
    tree = shapely.STRtree(parcels)
    found = []
    for one in unknown:
        near = [parcels[index] for index in tree.query(one.geometry).tolist()]
        rest = one.geometry.intersection(area).difference(shapely.union_all(near))
        if parts := polygons_of(rest):
            found.append(UnknownArea(shapely.MultiPolygon(parts), one.chance))
    return found


def _unknown_feature(one: UnknownArea) -> dict[str, Any]:
    outline = json.loads(shapely.to_geojson(shapely.set_precision(one.geometry, 1e-7)))
    return {"type": "Feature", "geometry": outline, "properties": {"chance": round(one.chance, 4)}}


def _extensions() -> str:
    *others, last = sorted(_WRITERS)
    return f"{', '.join(others)} or {last}"


def _write_geojson(parcels: Sequence[StoredParcel], path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write('{"type":"FeatureCollection","features":[\n')
        for number, one in enumerate(parcels):
            file.write(",\n" if number else "")
            json.dump(one.dated(), file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n]}\n")


def _write_with_gdal(
    driver: str, layer: str = "parcels"
) -> Callable[[Sequence[StoredParcel], Path], None]:
    def write(parcels: Sequence[StoredParcel], path: Path) -> None:
        columns = _columns(parcels)
        if driver == "LIBKML":
            columns = [Column("Name", [_label(one) for one in parcels]), *columns]
        with warnings.catch_warnings():
            # A shapefile limits names to ten characters and texts to 254.
            warnings.filterwarnings("ignore", "Normalized/laundered field name")
            warnings.filterwarnings("ignore", "Value .* has been truncated to 254 characters")
            pyogrio.raw.write(
                path,
                _wkb([one.geometry for one in parcels]),
                field_data=[column.array for column in columns],
                field_mask=[column.missing for column in columns],
                fields=_field_names(columns),
                geometry_type="MultiPolygon",
                crs=_WGS84,
                driver=driver,
                layer=layer,
                **_options(driver, parcels),
            )

    return write


def _field_names(columns: Sequence[Column]) -> list[str]:
    """Return names that are distinct for GDAL, which ignores case and reserves some."""
    taken, names = set(_GDAL_NAMES), []
    for column in columns:
        name = plain = _CONTROL.sub(" ", column.name)
        number = 1
        while name.casefold() in taken:
            number += 1
            name = f"{plain}_{number}"
        taken.add(name.casefold())
        names.append(name)
    return names


def _options(driver: str, parcels: Sequence[StoredParcel]) -> dict[str, str]:
    if driver == "ESRI Shapefile":
        return {"encoding": "UTF-8"}
    # The spatial index cannot hold passive parcels, which have no geometry.
    if driver == "FlatGeobuf" and any(one.geometry is None for one in parcels):
        return {"SPATIAL_INDEX": "NO"}
    return {}


def _write_dxf(parcels: Sequence[StoredParcel], path: Path) -> None:
    """Write outlines and labels in metres, in the zone of the median parcel."""
    geometries = [one.geometry for one in parcels]
    present = [geometry for geometry in geometries if geometry is not None]
    zone = _zone(
        float(np.median([geometry.centroid.x for geometry in present])) if present else 33.0
    )
    flat = Transformer.from_crs(_WGS84, zone, always_xy=True)

    def metres(geometry: BaseGeometry) -> BaseGeometry:
        return shapely.transform(
            geometry, lambda xy: np.column_stack(flat.transform(xy[:, 0], xy[:, 1]))
        )

    shapes: list[BaseGeometry | None] = []
    layers, texts = [], []
    for one, geometry in zip(parcels, geometries, strict=True):
        if geometry is None:
            continue
        outline = metres(geometry)
        for ring in shapely.get_rings(shapely.get_parts(outline)).tolist():
            shapes.append(shapely.LineString(ring.coords))
            layers.append("PARSEL")
            texts.append("")
        shapes.append(outline.representative_point())
        layers.append("PARSEL_NO")
        texts.append(f'LABEL(f:"Arial",t:"{_label(one)}",s:2g,p:5)')
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


def _zone(lon: float) -> str:
    """Return the zone of a longitude; outside Turkey, a zone of the same kind."""
    meridian = 3 * round(lon / 3)
    other = f"+proj=tmerc +lat_0=0 +lon_0={meridian} +k=1 +x_0=500000 +y_0=0 +ellps=GRS80 +units=m"
    return _ZONES.get(meridian, other)


def _write_parquet(parcels: Sequence[StoredParcel], path: Path) -> None:
    """Write GeoParquet 1.1."""
    columns = _columns(parcels)
    geometries = [one.geometry for one in parcels]
    wkb = pa.array(
        [None if one is None else shapely.to_wkb(one) for one in geometries], pa.binary()
    )
    present = [geometry for geometry in geometries if geometry is not None]
    about = {
        "encoding": "WKB",
        "geometry_types": sorted({geometry.geom_type for geometry in present}),
        "bbox": shapely.total_bounds(present).tolist() if present else [0, 0, 0, 0],
    }
    geo = {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": about}}
    arrays = [pa.array(column.cells, _ARROW[column.kind]) for column in columns]
    table = pa.table([*arrays, wkb], names=[*(column.name for column in columns), "geometry"])
    table = table.replace_schema_metadata({"geo": json.dumps(geo)})
    pyarrow.parquet.write_table(table, path, compression="zstd")


def _write_csv(parcels: Sequence[StoredParcel], path: Path, *, turkish: bool = False) -> None:
    columns = _columns(parcels)
    with path.open("w", encoding="utf-8-sig" if turkish else "utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=";" if turkish else ",")
        writer.writerow([*(csv_text(column.name) for column in columns), "lat", "lon"])
        for number, one in enumerate(parcels):
            point = None if one.geometry is None else one.geometry.representative_point()
            place = (None, None) if point is None else (round(point.y, 6), round(point.x, 6))
            row = [column.cells[number] for column in columns]
            writer.writerow([_csv_cell(value, turkish=turkish) for value in (*row, *place)])


def _csv_cell(value: Any, *, turkish: bool) -> Any:
    if isinstance(value, str):
        return csv_text(value)
    if isinstance(value, float) and turkish:
        return repr(value).replace(".", ",")
    return value


def _columns(parcels: Sequence[StoredParcel]) -> list[Column]:
    """Return every property that any parcel has, the key first."""
    rows = [one.properties for one in parcels]
    names: dict[str, None] = {}
    for row in rows:
        names |= dict.fromkeys(row)
    names = dict.fromkeys(name for name in _KEY_COLUMNS if name in names or not rows) | names
    return [Column(name, [row.get(name) for row in rows]) for name in names]


def _label(one: StoredParcel) -> str:
    properties = one.properties
    if "chance" in properties:
        return f"{properties['chance']:.0%}"
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


_WRITERS: dict[str, Callable[[Sequence[StoredParcel], Path], None]] = {
    ".geojson": _write_geojson,
    ".json": _write_geojson,
    ".gpkg": _write_with_gdal("GPKG"),
    ".fgb": _write_with_gdal("FlatGeobuf"),
    ".shp": _write_with_gdal("ESRI Shapefile"),
    ".kml": _write_with_gdal("LIBKML"),
    ".kmz": _write_with_gdal("LIBKML"),
    ".dxf": _write_dxf,
    ".parquet": _write_parquet,
    ".csv": _write_csv,
}
