"""Parcels as files for other programs; the name's ending chooses the form."""

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
from shapely.geometry import shape
from shapely.geometry.base import BaseGeometry

from hasat.errors import UsageError
from hasat.messages import msg
from hasat.sources.tkgm.scan.scan_request import Unknown
from hasat.store.home import disk_full, is_short, room_for
from hasat.text import csv_text

_WGS84 = "EPSG:4326"
# TUREF / TM27 ... TM45: zones of three degrees, by their central meridian.
_ZONES = {meridian: f"EPSG:{5253 + number}" for number, meridian in enumerate(range(27, 46, 3))}
_ARROW = {int: pa.int64(), float: pa.float64(), str: pa.string()}
_GDAL_NAMES = ("fid", "ogc_fid", "geom", "geometry")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_EXACT_IN_FLOAT = 2**53
_FIRST = ("mahalleId", "adaNo", "parselNo")


@dataclass(frozen=True)
class Fetched:
    """A published parcel and when it was last told."""

    feature: dict[str, Any]
    at: datetime

    @property
    def geometry(self) -> BaseGeometry | None:
        told = self.feature["geometry"]
        ground = None if told is None else shape(told)
        # Rounding can leave a line of a very narrow parcel, which is no polygon for KML.
        return ground if ground is None or ground.area > 0 else None

    @property
    def properties(self) -> dict[str, Any]:
        return {**self.feature["properties"], "fetchedAt": self.at.isoformat()}


@dataclass(frozen=True)
class Column:
    """One property of all parcels; numbers only if all of them are."""

    name: str
    values: list[Any]

    @cached_property
    def kind(self) -> type:
        told = {type(value) for value in self.values if value is not None}
        if told == {int}:
            # Whole numbers that no file can have as such are texts.
            fits = all(one is None or abs(one) < 2**63 for one in self.values)
            return int if fits else str
        if any(type(one) is int and abs(one) >= _EXACT_IN_FLOAT for one in self.values):
            return str
        return float if told and told <= {int, float} else str

    @cached_property
    def cells(self) -> list[Any]:
        return [None if value is None else self._cell(value) for value in self.values]

    @property
    def missing(self) -> np.ndarray[Any, Any]:
        return np.array([value is None for value in self.values], bool)

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """For GDAL, which is told apart what is missing."""
        if self.kind is str:
            return np.array(self.cells, object)
        filled = [0 if value is None else value for value in self.values]
        return np.array(filled, np.int64 if self.kind is int else np.float64)

    def _cell(self, value: Any) -> Any:
        if self.kind is not str:
            return self.kind(value)
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def export(parcels: Iterable[Fetched], path: Path, *, turkish: bool = False) -> int:
    """Write a file in the form that its ending names, all of it or nothing; how many were written.

    `turkish` is for CSV: semicolons, decimal commas and a byte order mark, as Excel wants them in
    Turkey.
    """
    check_name(path)
    write = _FORMS[path.suffix.lower()]
    found = list(parcels)
    with room_for(path.name, path.parent):
        try:
            _write(write, found, path, turkish=turkish)
        except (DataSourceError, DataLayerError, FeatureError) as error:
            # GDAL does not say why it could not write.
            if is_short(path.parent):
                raise disk_full(path.parent, path.name) from error
            raise
    return len(found)


def _write(
    write: Callable[[Sequence[Fetched], Path], None],
    found: Sequence[Fetched],
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


def check_name(path: Path) -> None:
    """Refuses a name whose ending names no form."""
    if path.suffix.lower() not in _FORMS:
        raise UsageError(
            msg("{path} has no ending that names a form.", path=path.name),
            remedy=msg("Use one of {endings}.", endings=_endings()),
        )


def export_unknown(
    unknown: Iterable[Unknown], path: Path, at: datetime, *, alone: bool = False
) -> Path:
    """Write where parcels may still hide to go with the parcels of a file; returns where that is.

    A GeoPackage takes it as a second layer, `unknown`; beside a.kml comes a.unknown.kml. `alone`
    it goes into the file itself.
    """
    found = [Fetched(_unknown_feature(one), at) for one in unknown]
    if alone:
        export(found, path)
        return path
    if path.suffix.lower() == ".gpkg" and path.is_file():
        _write_with_gdal("GPKG", "unknown")(found, path)
        return path
    beside = path.with_name(f"{path.stem}.unknown{path.suffix}")
    export(found, beside)
    return beside


def without_parcels(
    unknown: Iterable[Unknown], parcels: Sequence[BaseGeometry], area: BaseGeometry
) -> list[Unknown]:
    """The unknown ground that lies in the area and in no parcel."""
    tree = shapely.STRtree(parcels)
    found = []
    for one in unknown:
        near = [parcels[index] for index in tree.query(one.ground).tolist()]
        ground = one.ground.intersection(area).difference(shapely.union_all(near))
        # Set operations leave lines and points where outlines touch.
        parts = [
            part
            for part in shapely.get_parts(ground).tolist()
            if isinstance(part, shapely.Polygon) and not part.is_empty
        ]
        if parts:
            found.append(Unknown(shapely.MultiPolygon(parts), one.chance))
    return found


def _unknown_feature(one: Unknown) -> dict[str, Any]:
    ground = json.loads(shapely.to_geojson(shapely.set_precision(one.ground, 1e-7)))
    return {"type": "Feature", "geometry": ground, "properties": {"chance": round(one.chance, 4)}}


def _endings() -> str:
    *others, last = sorted(_FORMS)
    return f"{', '.join(others)} or {last}"


def _write_geojson(parcels: Sequence[Fetched], path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write('{"type":"FeatureCollection","features":[\n')
        for number, one in enumerate(parcels):
            feature = {**one.feature, "properties": one.properties}
            file.write(",\n" if number else "")
            json.dump(feature, file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n]}\n")


def _write_with_gdal(
    driver: str, layer: str = "parcels"
) -> Callable[[Sequence[Fetched], Path], None]:
    def write(parcels: Sequence[Fetched], path: Path) -> None:
        columns = _columns(parcels)
        if driver == "LIBKML":
            columns = [Column("Name", [_label(one) for one in parcels]), *columns]
        with warnings.catch_warnings():
            # A shapefile's names have ten letters, its texts 254; nothing can be done about it.
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
    """Return names that GDAL tells apart: it ignores case, and has names of its own."""
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


def _options(driver: str, parcels: Sequence[Fetched]) -> dict[str, str]:
    if driver == "ESRI Shapefile":
        return {"encoding": "UTF-8"}
    # Passive parcels have no ground, which an index cannot hold.
    if driver == "FlatGeobuf" and any(one.geometry is None for one in parcels):
        return {"SPATIAL_INDEX": "NO"}
    return {}


def _write_dxf(parcels: Sequence[Fetched], path: Path) -> None:
    """Outlines and labels in metres, in the zone in which most of the parcels lie."""
    geometries = [one.geometry for one in parcels]
    lie = [geometry for geometry in geometries if geometry is not None]
    zone = _zone(float(np.median([geometry.centroid.x for geometry in lie])) if lie else 33.0)
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
        ground = metres(geometry)
        for ring in shapely.get_rings(shapely.get_parts(ground)).tolist():
            shapes.append(shapely.LineString(ring.coords))
            layers.append("PARSEL")
            texts.append("")
        shapes.append(ground.representative_point())
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
    """The zone of a longitude; elsewhere on earth, one made in the same way."""
    meridian = 3 * round(lon / 3)
    made = f"+proj=tmerc +lat_0=0 +lon_0={meridian} +k=1 +x_0=500000 +y_0=0 +ellps=GRS80 +units=m"
    return _ZONES.get(meridian, made)


def _write_parquet(parcels: Sequence[Fetched], path: Path) -> None:
    """GeoParquet 1.1."""
    columns = _columns(parcels)
    geometries = [one.geometry for one in parcels]
    wkb = pa.array(
        [None if one is None else shapely.to_wkb(one) for one in geometries], pa.binary()
    )
    lie = [geometry for geometry in geometries if geometry is not None]
    about = {
        "encoding": "WKB",
        "geometry_types": sorted({geometry.geom_type for geometry in lie}),
        "bbox": shapely.total_bounds(lie).tolist() if lie else [0, 0, 0, 0],
    }
    geo = {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": about}}
    arrays = [pa.array(column.cells, _ARROW[column.kind]) for column in columns]
    table = pa.table([*arrays, wkb], names=[*(column.name for column in columns), "geometry"])
    table = table.replace_schema_metadata({"geo": json.dumps(geo)})
    pyarrow.parquet.write_table(table, path, compression="zstd")


def _write_csv(parcels: Sequence[Fetched], path: Path, *, turkish: bool = False) -> None:
    columns = _columns(parcels)
    with path.open("w", encoding="utf-8-sig" if turkish else "utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=";" if turkish else ",")
        writer.writerow([*(csv_text(column.name) for column in columns), "lat", "lon"])
        for number, one in enumerate(parcels):
            point = None if one.geometry is None else one.geometry.representative_point()
            place = (None, None) if point is None else (round(point.y, 6), round(point.x, 6))
            row = [column.cells[number] for column in columns]
            writer.writerow([_spelled(value, turkish=turkish) for value in (*row, *place)])


def _spelled(value: Any, *, turkish: bool) -> Any:
    if isinstance(value, str):
        return csv_text(value)
    if isinstance(value, float) and turkish:
        return repr(value).replace(".", ",")
    return value


def _columns(parcels: Sequence[Fetched]) -> list[Column]:
    """Every property that any parcel has; the key first."""
    rows = [one.properties for one in parcels]
    names: dict[str, None] = {}
    for row in rows:
        names |= dict.fromkeys(row)
    names = dict.fromkeys(name for name in _FIRST if name in names or not rows) | names
    return [Column(name, [row.get(name) for row in rows]) for name in names]


def _label(one: Fetched) -> str:
    told = one.feature["properties"]
    if "chance" in told:
        return f"{told['chance']:.0%}"
    return f"{told.get('adaNo')}/{told.get('parselNo')}"


def _wkb(geometries: Sequence[BaseGeometry | None]) -> np.ndarray[Any, Any]:
    """Polygons as multi-polygons, so that a layer has one kind."""
    alike = [
        shapely.MultiPolygon([one]) if isinstance(one, shapely.Polygon) else one
        for one in geometries
    ]
    found = np.empty(len(alike), object)
    found[:] = [None if one is None else shapely.to_wkb(one) for one in alike]
    return found


_FORMS: dict[str, Callable[[Sequence[Fetched], Path], None]] = {
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
