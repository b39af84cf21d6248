"""Geometry of parcels and areas: a plane in metres, areas from files or text, polygon helpers."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray
from pyproj import Geod, Transformer
from shapely import Geometry, MultiPolygon, Polygon, box, from_wkb
from shapely.errors import ShapelyError
from shapely.geometry import shape

from hasat.errors import UsageError
from hasat.messages import msg

Outline = Polygon | MultiPolygon

METRES_PER_DEGREE = 111_195.0
# The default of tkgm.max_area_km2.
MAX_AREA_KM2 = 2_000.0
# The median and the quartiles of registered parcels all over the country, in square metres.
TYPICAL_M2, SMALL_M2, LARGE_M2 = 919.0, 318.0, 4_770.0
_MAX_DRAWN_CORNERS = 500
# The share of an area that a repair of its outline may change.
_MAX_REPAIR = 0.01
_MAX_GRID_POINTS = 20_000_000
# West, south, east and north of Turkey, with some sea around it.
TURKEY = (25.5, 35.7, 45.0, 42.3)
_WGS84 = "EPSG:4326"
_ELLIPSOID = Geod(ellps="GRS80")


@dataclass(frozen=True)
class Plane:
    """Metres east and north of a point; accurate enough for a few tens of kilometres."""

    lon: float
    lat: float

    @classmethod
    def around(cls, geometries: Iterable[Geometry]) -> "Plane":
        """Return the plane centred on the bounding box of the geometries."""
        west, south, east, north = shapely.total_bounds(list(geometries)).tolist()
        return cls((west + east) / 2, (south + north) / 2)

    @property
    def scale(self) -> NDArray[np.float64]:
        """Metres per degree, east and north."""
        along = METRES_PER_DEGREE * math.cos(math.radians(self.lat))
        return np.array([along, METRES_PER_DEGREE])

    def to_metres(self, geometry: Any) -> Any:
        return shapely.transform(geometry, lambda xy: (xy - [self.lon, self.lat]) * self.scale)

    def to_degrees(self, geometry: Any) -> Any:
        return shapely.transform(geometry, lambda xy: xy / self.scale + [self.lon, self.lat])


def geodesic_area(outline: Outline) -> float:
    """Return the square metres of an outline on the ellipsoid."""
    return abs(_ELLIPSOID.geometry_area_perimeter(shapely.orient_polygons(outline))[0])


def polygons_of(geometry: Geometry) -> list[Polygon]:
    """Return the polygons of a geometry without the points and lines that set operations leave."""
    parts = shapely.get_parts(shapely.get_parts(geometry)).tolist()
    return [part for part in parts if isinstance(part, Polygon) and not part.is_empty]


def check_in_turkey(geometry: Geometry) -> None:
    """Raise UsageError for a place outside Turkey, of which the registry has no parcel."""
    country = box(*TURKEY)
    if country.intersects(geometry):
        return
    west, south, east, north = shapely.bounds(geometry).tolist()
    # Not `transform`, which makes an area whose corners run the other way round.
    if country.intersects(box(south, west, north, east)):
        raise UsageError(
            msg(
                "{place} is outside Turkey: latitude and longitude seem to be swapped.",
                place=_place(geometry),
            ),
            remedy=msg(
                "Swapped, it is {place}. An area is west,south,east,north; a point is LAT LON.",
                place=_place(box(south, west, north, east), like=geometry),
            ),
        )
    raise UsageError(
        msg("{place} is outside Turkey.", place=_place(geometry)),
        remedy=msg("Turkey lies between longitudes 25.5 and 45 and latitudes 35.7 and 42.3."),
    )


def check_size(area: Outline, max_km2: float) -> None:
    """Raise UsageError for an area that is too large to be scanned without confirmation."""
    if (km2 := geodesic_area(area) / 1e6) > max_km2:
        raise UsageError(
            msg(
                "The area has {km2:,.0f} km², more than the {largest_km2:,.0f} km² of "
                "tkgm.max_area_km2. With parcels of usual sizes it holds {least:,.0f} to "
                "{most:,.0f} of them, and each takes at least one request.",
                km2=km2,
                largest_km2=max_km2,
                least=_rounded(km2 * 1e6 / LARGE_M2),
                most=_rounded(km2 * 1e6 / SMALL_M2),
            ),
            remedy=msg("Scan a smaller area, or confirm with yes (--yes)."),
        )


def check_grid(area: Outline, step: float) -> None:
    """Raise UsageError for a grid with more points than fit into memory."""
    west, south, east, north = area.bounds
    points = geodesic_area(box(west, south, east, north)) / step**2
    if points > _MAX_GRID_POINTS:
        raise UsageError(
            msg(
                "A grid of {step:g} m has {points:,.0f} points in this area, more than {most:,}.",
                step=step,
                points=points,
                most=_MAX_GRID_POINTS,
            ),
            remedy=msg("Choose a larger --step, a smaller area, or --method coverage."),
        )


def _rounded(count: float) -> float:
    """Return a rough number with two digits."""
    return float(f"{count:.1e}")


def _place(geometry: Geometry, like: Geometry | None = None) -> str:
    """Return a point as lat, lon and anything else as west,south,east,north."""
    west, south, east, north = shapely.bounds(geometry).tolist()
    if isinstance(like or geometry, shapely.Point):
        return f"{south:g}, {west:g}"
    return f"{west:g},{south:g},{east:g},{north:g}"


def read_area(text: str, *, name: str | None = None) -> Outline:
    """Return the area in a file (GeoJSON, KML, GeoPackage, ...) or of west,south,east,north.

    Errors call the file `name`.
    """
    path = Path(text)
    if path.is_file():
        return _read_file(path, name or text)
    area = _parse_box(text)
    if area is None:
        raise UsageError(
            msg("{text!r} is neither a file nor a box.", text=text),
            remedy=msg("Name a GeoJSON, KML or GeoPackage file, or give west,south,east,north."),
        )
    return area


def parse_area(value: Any) -> Outline:
    """Return the area of a request: west,south,east,north or GeoJSON, never a file."""
    if isinstance(value, str) and (area := _parse_box(value)) is not None:
        return area
    try:
        shapes = _geojson_geometries(json.loads(value) if isinstance(value, str) else value)
        return merge_polygons(_repaired([shape(one) for one in shapes], "The area"), "The area")
    except (
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        RecursionError,
        ShapelyError,
    ) as error:
        raise UsageError(
            msg("The area is neither a box nor GeoJSON: {error}.", error=error),
            remedy=msg("Give west,south,east,north in degrees, or a GeoJSON polygon."),
        ) from error


def parse_drawn_area(text: str, max_km2: float = MAX_AREA_KM2) -> Polygon:
    """Return the area that a form field holds: a box, or corners separated by spaces.

    `west,south,east,north` or `lon,lat lon,lat lon,lat ...`
    """
    try:
        corners = [tuple(map(float, one.split(","))) for one in text.split()]
        if not all(math.isfinite(side) for corner in corners for side in corner):
            raise ValueError("not finite")
        if len(corners) == 1 and len(corners[0]) == 4:
            area = shapely.box(*corners[0])
        elif 3 <= len(corners) <= _MAX_DRAWN_CORNERS and {len(one) for one in corners} == {2}:
            area = Polygon(corners)
        else:
            raise ValueError("neither a box nor corners")
        west, south, east, north = area.bounds
        if not (-180 <= west < east <= 180 and -85 <= south < north <= 85 and area.is_valid):
            raise ValueError("not an area")
    except (ValueError, TypeError, ShapelyError) as error:
        raise UsageError(
            msg("{text!r} is not an area.", text=text[:80]),
            remedy=msg(
                "Give west,south,east,north in degrees, for example "
                "32.84,39.89,32.86,39.91, or at least three corners lon,lat separated by "
                "spaces, whose edges do not cross."
            ),
        ) from error
    check_in_turkey(area)
    check_size(area, max_km2)
    return area


def _geojson_geometries(document: Any) -> list[Any]:
    match document:
        case {"type": "FeatureCollection", "features": list(features)}:
            return [one["geometry"] for one in features if one.get("geometry")]
        case {"type": "Feature", "geometry": dict(geometry)}:
            return [geometry]
        case {"type": str(), "coordinates": list()}:
            return [document]
        case _:
            raise ValueError("it has no geometry")


def _parse_box(text: str) -> Polygon | None:
    try:
        west, south, east, north = map(float, text.split(","))
    except ValueError:
        return None
    if not _is_on_earth(west, south, east, north):
        raise UsageError(
            msg("The box {text} is empty or not on the earth.", text=text),
            remedy=msg(
                "Give west,south,east,north in degrees, for example 32.84,39.89,32.86,39.91."
            ),
        )
    return box(west, south, east, north)


def _is_on_earth(west: float, south: float, east: float, north: float) -> bool:
    return -180 <= west < east <= 180 and -90 <= south < north <= 90


def _read_file(path: Path, name: str) -> Outline:
    """Return the union of all polygons in a file, in degrees."""
    # GDAL takes 50 MB of memory, which only this function needs.
    import pyogrio
    from pyogrio._err import CPLE_BaseError
    from pyogrio.errors import CRSError, DataLayerError, DataSourceError, FeatureError

    unreadable = (CPLE_BaseError, CRSError, DataLayerError, DataSourceError, FeatureError)
    try:
        found = [
            geometry
            for layer, _ in pyogrio.list_layers(path)
            for geometry in _read_layer(path, str(layer))
        ]
        return merge_polygons(_repaired(found, name), name)
    except ShapelyError as error:
        raise UsageError(
            msg("{path} has an outline that is damaged: {error}.", path=name, error=error),
            remedy=msg("Draw the area again, or repair its geometry in QGIS."),
        ) from error
    except unreadable as error:
        raise UsageError(
            msg(
                "{path} cannot be read as an area: {partition}.",
                path=name,
                partition=_reason(error).replace(str(path), name),
            ),
            remedy=msg("Use a GeoJSON, KML or GeoPackage file."),
        ) from error


def _repaired(geometries: Sequence[Geometry], name: str) -> list[Geometry]:
    """Return valid geometries; raise UsageError for a polygon whose edges cross.

    Repairing a spike or a repeated corner changes nothing; a crossing may mean another area.
    """
    parts = shapely.get_parts(np.array(geometries, object)).tolist()
    repaired: list[Geometry] = shapely.make_valid(parts).tolist()
    for part, valid in zip(parts, repaired, strict=True):
        meant, drawn = float(shapely.area(valid)), float(shapely.area(part))
        if isinstance(part, Polygon) and abs(meant - drawn) > _MAX_REPAIR * meant:
            raise UsageError(
                msg(
                    "{name} has edges that cross each other, at {place}.",
                    name=name,
                    place=shapely.is_valid_reason(part).partition("[")[2].rstrip("]"),
                ),
                remedy=msg("Draw the area again, or repair its geometry in QGIS."),
            )
    return repaired


def _reason(error: Exception) -> str:
    """Return what GDAL says, without the statement that failed."""
    return str(error).partition(";")[0].rpartition(" failed: ")[2].rstrip(".")


def merge_polygons(geometries: list[Any], name: str) -> Outline:
    """Return the union of the polygons of an area; raise UsageError if it is not on the earth."""
    polygons = polygons_of(shapely.union_all(geometries))
    if not polygons:
        raise UsageError(
            msg("{name} has no polygon, only points or lines, or nothing.", name=name),
            remedy=msg("Draw a polygon and save it again."),
        )
    west, south, east, north = shapely.total_bounds(polygons).tolist()
    if not _is_on_earth(west, south, east, north):
        raise UsageError(
            msg(
                "{name} is not on the earth: {west}, {south} to {east}, {north}.",
                name=name,
                west=west,
                south=south,
                east=east,
                north=north,
            ),
            remedy=msg("Save it with its coordinate system, or in degrees (WGS 84)."),
        )
    return polygons[0] if len(polygons) == 1 else MultiPolygon(polygons)


def _read_layer(path: Path, layer: str) -> list[Any]:
    import pyogrio.raw

    about, _, shapes, _ = pyogrio.raw.read(path, layer=layer, columns=[], force_2d=True)
    degrees = Transformer.from_crs(about["crs"] or _WGS84, _WGS84, always_xy=True)

    def to_degrees(xy: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.column_stack(degrees.transform(xy[:, 0], xy[:, 1]))

    present: list[Any] = [] if shapes is None else [one for one in shapes if one is not None]
    found: list[Any] = shapely.transform(from_wkb(present), to_degrees).tolist()
    return found
