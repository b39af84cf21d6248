"""The area of a scan, from a file or from four numbers."""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyogrio
import pyogrio.raw
import shapely
from numpy.typing import NDArray
from pyogrio.errors import DataSourceError
from pyproj import Transformer
from shapely import Geometry, MultiPolygon, Polygon, box, from_wkb
from shapely.errors import ShapelyError
from shapely.geometry import shape

from hasat.errors import UsageError
from hasat.messages import msg

METRES_PER_DEGREE = 111_195.0


@dataclass(frozen=True)
class Plane:
    """Metres east and north of a point; exact enough for a few tens of kilometres."""

    lon: float
    lat: float

    @classmethod
    def around(cls, geometries: Iterable[Geometry]) -> "Plane":
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


Area = Polygon | MultiPolygon

_WGS84 = "EPSG:4326"


def read_area(text: str) -> Area:
    """The area named by a file (GeoJSON, KML, GeoPackage, ...) or by west,south,east,north."""
    path = Path(text)
    if path.is_file():
        return _from_file(path)
    area = _box(text)
    if area is None:
        raise UsageError(
            msg("{text!r} is neither a file nor a box.", text=text),
            remedy=msg("Name a GeoJSON, KML or GeoPackage file, or give west,south,east,north."),
        )
    return area


def area_of(told: Any) -> Area:
    """The area that a request describes: west,south,east,north or GeoJSON, never a file."""
    if isinstance(told, str) and (area := _box(told)) is not None:
        return area
    try:
        shapes = _geojson_shapes(json.loads(told) if isinstance(told, str) else told)
        return _whole([shapely.make_valid(shape(one)) for one in shapes], "The area")
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


def _geojson_shapes(told: Any) -> list[Any]:
    match told:
        case {"type": "FeatureCollection", "features": list(features)}:
            return [one["geometry"] for one in features if one.get("geometry")]
        case {"type": "Feature", "geometry": dict(geometry)}:
            return [geometry]
        case {"type": str(), "coordinates": list()}:
            return [told]
        case _:
            raise ValueError("it has no geometry")


def _box(text: str) -> Area | None:
    corners = _numbers(text)
    if corners is None:
        return None
    west, south, east, north = corners
    if not (-180 <= west < east <= 180 and -90 <= south < north <= 90):
        raise UsageError(
            msg("The box {text} is empty or not on the earth.", text=text),
            remedy=msg(
                "Give west,south,east,north in degrees, for example 32.84,39.89,32.86,39.91."
            ),
        )
    return box(west, south, east, north)


def _numbers(text: str) -> tuple[float, float, float, float] | None:
    try:
        west, south, east, north = map(float, text.split(","))
    except ValueError:
        return None
    return west, south, east, north


def _from_file(path: Path) -> Area:
    """Everything in the file that is an area, in degrees."""
    try:
        found = [
            ground
            for layer, _ in pyogrio.list_layers(path)
            for ground in _grounds(path, str(layer))
        ]
    except DataSourceError as error:
        raise UsageError(
            msg(
                "{path} cannot be read as an area: {partition}.",
                path=path,
                partition=str(error).partition(";")[0].rstrip("."),
            ),
            remedy=msg("Use a GeoJSON, KML or GeoPackage file."),
        ) from error
    return _whole(found, str(path))


def _whole(found: list[Any], name: str) -> Area:
    whole = shapely.union_all(found)
    grounds = [part for part in shapely.get_parts(whole).tolist() if isinstance(part, Polygon)]
    if not grounds:
        raise UsageError(
            msg("{name} has no area in it, only points or lines, or nothing.", name=name),
            remedy=msg("Draw a polygon and save it again."),
        )
    west, south, east, north = shapely.total_bounds(grounds).tolist()
    if not (-180 <= west < east <= 180 and -90 <= south < north <= 90):
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
    return grounds[0] if len(grounds) == 1 else MultiPolygon(grounds)


def _grounds(path: Path, layer: str) -> list[Any]:
    about, _, shapes, _ = pyogrio.raw.read(path, layer=layer, columns=[], force_2d=True)
    degrees = Transformer.from_crs(about["crs"] or _WGS84, _WGS84, always_xy=True)

    def to_degrees(xy: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.column_stack(degrees.transform(xy[:, 0], xy[:, 1]))

    told: list[Any] = [] if shapes is None else [one for one in shapes if one is not None]
    found: list[Any] = shapely.make_valid(shapely.transform(from_wkb(told), to_degrees)).tolist()
    return found
