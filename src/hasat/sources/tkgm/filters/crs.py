"""Coordinate reference systems of OGC API Features, Part 2, with the axes of each in its order."""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import shapely
from pyproj import CRS, Transformer
from shapely.geometry.base import BaseGeometry

from hasat.errors import UsageError
from hasat.http.routes import dumps
from hasat.messages import msg

CRS84 = "http://www.opengis.net/def/crs/OGC/1.3/CRS84"
_EPSG = "http://www.opengis.net/def/crs/EPSG/0/"
# WGS 84, Web Mercator, TUREF / TM27 to TM45 and ED50 / TM27 to TM45.
_CODES = (4326, 3857, *range(5253, 5260), *range(2319, 2326))
SUPPORTED = (CRS84, *(f"{_EPSG}{code}" for code in _CODES))


def check_uri(text: str, parameter: str) -> str:
    """Return a supported system; raise UsageError for another one."""
    if text not in SUPPORTED:
        raise UsageError(
            msg(
                "`{parameter}` is {text!r}, which is not supported.", parameter=parameter, text=text
            ),
            remedy=msg("The collection lists the supported ones, such as {one}.", one=SUPPORTED[5]),
        )
    return text


def name_of(uri: str) -> str:
    """Return the name that programs know a system by, such as EPSG:5255."""
    return "EPSG:4326" if uri == CRS84 else f"EPSG:{uri.removeprefix(_EPSG)}"


@lru_cache
def _transformer(uri: str, *, back: bool = False) -> Transformer:
    ours, theirs = CRS("OGC:CRS84"), CRS(name_of(uri))
    return Transformer.from_crs(theirs, ours) if back else Transformer.from_crs(ours, theirs)


def box_in_degrees(sides: Sequence[float], uri: str) -> list[float]:
    """Return a box of another system as west, south, east, north."""
    first, second, third, fourth = sides
    bounds = _transformer(uri, back=True).transform_bounds(first, second, third, fourth)
    if not all(map(np.isfinite, bounds)):
        raise UsageError(msg("`bbox` is outside of the area of {crs}.", crs=uri))
    return [float(side) for side in bounds]


def feature_in(feature: str, uri: str) -> str:
    """Return a GeoJSON feature with its coordinates in another system."""
    if uri == CRS84:
        return feature
    content: dict[str, Any] = json.loads(feature)
    if content.get("geometry") is not None:
        outline = _moved(shapely.from_geojson(json.dumps(content["geometry"])), uri)
        content["geometry"] = json.loads(shapely.to_geojson(outline))
        content["bbox"] = [float(side) for side in outline.bounds]
    return dumps(content)


def _moved(outline: BaseGeometry, uri: str) -> BaseGeometry:
    decimals = 7 if CRS(name_of(uri)).is_geographic else 3
    there = _transformer(uri)
    return shapely.transform(
        outline, lambda xy: np.column_stack(there.transform(*xy.T)).round(decimals)
    )
