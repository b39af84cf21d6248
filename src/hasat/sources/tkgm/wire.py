"""What the parcel registry answers, read without loss and without trust.

One parcel is a GeoJSON Feature. The same parcel is written otherwise when it is asked for by
number: other separators in `alan`, and ı where the point query has i. So a parcel's key is
(mahalleId, adaNo, parselNo), its area a number, and `ozet` nothing but data.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import shapely
from pyproj import Geod
from shapely import MultiPolygon, Polygon
from shapely.errors import ShapelyError
from shapely.geometry import shape

from hasat.errors import BrokenAnswerError
from hasat.sources.tkgm.numerals import read_area
from hasat.sources.tkgm.questions import ParcelKey

_EARTH = Geod(ellps="GRS80")

Outline = Polygon | MultiPolygon

# Of a parcel told by an endpoint that leaves the neighbourhood out.
NO_KEY: ParcelKey = (0, "", "")


@dataclass(frozen=True)
class Registered:
    """A parcel as the registry tells it; a passive one may have successors instead of ground."""

    key: ParcelKey
    geometry: Outline | None
    area: float | None
    properties: Mapping[str, Any]
    successors: tuple["Registered", ...] = ()

    @property
    def is_passive(self) -> bool:
        return self.properties.get("durum") == "0" or self.geometry is None


@dataclass(frozen=True)
class Place:
    """A province, district or neighbourhood, with its boundary where the list has one."""

    id: int
    name: str
    boundary: Outline | None


def read_parcel(body: bytes, *, keyed: bool = True) -> Registered:
    """The parcel in an answer."""
    return read_feature(_object(body), keyed=keyed)


def read_places(body: bytes) -> list[Place]:
    """The places in an administrative list."""
    return [_place(feature) for feature in _features(_object(body))]


def geodesic_area(outline: Outline) -> float:
    """Square metres on the ellipsoid."""
    return abs(_EARTH.geometry_area_perimeter(shapely.orient_polygons(outline))[0])


def _object(body: bytes) -> dict[str, Any]:
    try:
        told = json.loads(body)
    except ValueError as error:
        raise BrokenAnswerError("The registry answered something that is not JSON.") from error
    if not isinstance(told, dict):
        raise BrokenAnswerError(f"The registry answered a {type(told).__name__}, not an object.")
    return told


def read_feature(feature: Mapping[str, Any], *, keyed: bool = True) -> Registered:
    """The parcel in a GeoJSON Feature; who does not need its key takes one without."""
    properties = feature.get("properties")
    if feature.get("type") != "Feature" or not isinstance(properties, dict):
        raise BrokenAnswerError("The registry's answer is not a parcel.")
    outline = read_outline(feature.get("geometry"))
    told = properties.get("alan")
    area = None
    if told not in (None, ""):
        area = read_area(str(told), None if outline is None else geodesic_area(outline))
    key = _key(properties) if keyed or properties.get("mahalleId") else NO_KEY
    return Registered(key, outline, area, properties, _successors(properties))


def _key(properties: Mapping[str, Any]) -> ParcelKey:
    mahalle, ada, parsel = (properties.get(name) for name in ("mahalleId", "adaNo", "parselNo"))
    try:
        key = (int(str(mahalle)), str(ada).strip(), str(parsel).strip())
    except ValueError:
        raise BrokenAnswerError(f"A parcel without a neighbourhood: {mahalle!r}.") from None
    if ada is None or parsel is None or not all(key[1:]):
        raise BrokenAnswerError(f"A parcel without a number: ada {ada!r}, parsel {parsel!r}.")
    return key


def read_outline(geometry: Any) -> Outline | None:
    """The ground of a GeoJSON geometry: polygons with their holes, valid, always in one order."""
    if geometry is None or not geometry.get("coordinates"):
        return None
    try:
        found = shapely.make_valid(shape(geometry), method="structure")
    except (ShapelyError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise BrokenAnswerError(f"A parcel's outline cannot be read: {error}.") from error
    # Corners that were rounded onto one another leave lines and points beside the polygon.
    grounds = [
        part
        for part in shapely.get_parts(shapely.get_parts(found)).tolist()
        if isinstance(part, Polygon) and not part.is_empty
    ]
    if not grounds:
        return None
    whole = grounds[0] if len(grounds) == 1 else MultiPolygon(grounds)
    ordered = shapely.orient_polygons(shapely.normalize(whole))
    assert isinstance(ordered, Polygon | MultiPolygon)
    return ordered


def _successors(properties: Mapping[str, Any]) -> tuple[Registered, ...]:
    """What a passive parcel became; the registry puts it into a text."""
    told = properties.get("gittigiParselListe")
    if not told:
        return ()
    try:
        collection = json.loads(told) if isinstance(told, str) else told
        return tuple(read_feature(feature) for feature in _features(collection))
    except (ValueError, BrokenAnswerError):
        # The parcel itself was read; the text stays among its properties.
        return ()


def _features(collection: Any) -> list[Mapping[str, Any]]:
    features = collection.get("features") if isinstance(collection, dict) else None
    if not isinstance(features, list) or not all(isinstance(one, dict) for one in features):
        raise BrokenAnswerError("The registry's answer is not a list of features.")
    return features


def _place(feature: Mapping[str, Any]) -> Place:
    match feature.get("properties"):
        case {"id": int(number), "text": str(name)}:
            return Place(number, name, read_outline(feature.get("geometry")))
        case other:
            raise BrokenAnswerError(f"A place without an id or a name: {other!r}.")
