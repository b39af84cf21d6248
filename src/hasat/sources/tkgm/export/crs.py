"""Coordinate reference systems of exports: any by its code, and the Turkish zone of a longitude."""

from collections.abc import Sequence

import numpy as np
import shapely
from pyproj import CRS, Transformer
from pyproj.exceptions import CRSError
from shapely.geometry.base import BaseGeometry

from hasat.errors import UsageError
from hasat.messages import msg

WGS84 = "EPSG:4326"
# TUREF / TM27 ... TM45: zones of three degrees, by their central meridian.
_ZONES = {meridian: f"EPSG:{5253 + number}" for number, meridian in enumerate(range(27, 46, 3))}
_DEFAULT_LONGITUDE = 33.0


def check_crs(text: str) -> str:
    """Return a coordinate reference system as GDAL names it; raise UsageError for none."""
    name = f"EPSG:{text}" if text.isdecimal() else text
    try:
        crs = CRS.from_user_input(name)
    except CRSError:
        crs = None
    if crs is None or not (crs.is_projected or crs.is_geographic):
        raise UsageError(
            msg("{text!r} is not a coordinate reference system for maps.", text=text),
            remedy=msg("Give an EPSG code, such as EPSG:5255 for TUREF / TM33."),
        )
    return str(name)


def zone_of(geometries: Sequence[BaseGeometry | None]) -> str:
    """Return the Turkish zone of the median outline; outside Turkey, a zone of the same kind."""
    longitudes = [one.centroid.x for one in geometries if one is not None]
    lon = float(np.median(longitudes)) if longitudes else _DEFAULT_LONGITUDE
    meridian = 3 * round(lon / 3)
    other = f"+proj=tmerc +lat_0=0 +lon_0={meridian} +k=1 +x_0=500000 +y_0=0 +ellps=GRS80 +units=m"
    return _ZONES.get(meridian, other)


def describe(crs: str) -> str:
    """Return the name of a coordinate reference system and its code, such as TUREF / TM33."""
    known = CRS.from_user_input(crs)
    code = f" ({crs})" if crs.startswith("EPSG:") else ""
    return f"{crs if known.name == 'unknown' else known.name}{code}"


def transform(geometries: Sequence[BaseGeometry | None], crs: str) -> Sequence[BaseGeometry | None]:
    """Return outlines in another system; raise UsageError where they are outside of its area."""
    if crs == WGS84:
        return geometries
    there = Transformer.from_crs(WGS84, crs, always_xy=True)
    moved = shapely.transform(
        np.array(geometries, object), lambda xy: np.column_stack(there.transform(*xy.T))
    ).tolist()
    present = [one for one in moved if one is not None]
    if not np.isfinite(shapely.get_coordinates(present)).all():
        raise UsageError(
            msg("{crs} does not cover all of these parcels.", crs=describe(crs)),
            remedy=msg("Choose the system of the area, such as EPSG:5255 around 33° east."),
        )
    found: list[BaseGeometry | None] = moved
    return found
