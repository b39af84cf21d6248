"""What the parcel registry answers, read without loss and without trust.

One parcel is a GeoJSON Feature. The same parcel is written otherwise when it is asked for by
number: other separators in `alan`, and ı where the point query has i. So a parcel's key is
(mahalleId, adaNo, parselNo), its area a number, and `ozet` nothing but data.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import shapely
from pyproj import Geod
from shapely import MultiPolygon, Polygon
from shapely.errors import ShapelyError
from shapely.geometry import shape

from hasat.errors import BrokenAnswerError
from hasat.messages import msg
from hasat.sources.tkgm.geometry import Plane
from hasat.store.quarantine import storable

ParcelKey = tuple[int, str, str]


@dataclass(frozen=True)
class Point:
    """Which parcel is here? In degrees."""

    lat: float
    lon: float


@dataclass(frozen=True)
class Number:
    """Which parcel carries this number?"""

    mahalle_id: int
    ada: str
    parsel: str


Question = Point | Number


@dataclass(frozen=True)
class Parcel:
    """A parcel as told: its key (mahalleId, adaNo, parselNo), its outline in degrees, the rest."""

    key: ParcelKey
    geometry: Polygon | MultiPolygon
    properties: Mapping[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Empty:
    """The registry said that there is no parcel; never used for a failed request."""


Answer = Parcel | Empty

_FORM = re.compile(r"[0-9]+(?:[.,][0-9]+)*")
_GROUPED = re.compile(r"[0-9]{1,3}(?:[.,][0-9]{3})+")


def read_area(text: str, outline_area: float | None = None) -> float | None:
    """The square metres in a text, or None; the outline's own area settles what can be read twice.

    "1.234" is one square metre and a bit, or over a thousand. Without an outline a single
    separator is taken for the decimal one.
    """
    readings = [area for area in _readings(re.sub(r"\s", "", text)) if math.isfinite(area)]
    if not readings:
        return None
    if outline_area is None or outline_area <= 0:
        return readings[0]
    return min(readings, key=lambda area: abs(math.log(max(area, 0.01) / outline_area)))


def _readings(text: str) -> list[float]:
    """Every way to read it, the likeliest first."""
    if not _FORM.fullmatch(text):
        return []
    separators = re.sub("[0-9]", "", text)
    if not separators:
        return [float(text)]
    readings = []
    decimal = separators[-1]
    if separators.count(decimal) == 1:
        whole, _, decimals = text.rpartition(decimal)
        readings.append(float(f"{re.sub('[.,]', '', whole)}.{decimals}"))
    if len(set(separators)) == 1 and _GROUPED.fullmatch(text):
        readings.append(float(text.replace(decimal, "")))
    return readings


_EARTH = Geod(ellps="GRS80")

Outline = Polygon | MultiPolygon

# Forests of whole districts are smaller; one wrong corner makes an outline larger.
MAX_SQUARE_METRES = 2e9
# Checking and repairing an outline takes time that grows with its corners.
MAX_CORNERS = 50_000
# A parcel farther from the point that was asked about is not the response to it.
MAX_METRES_AWAY = 100.0
# Keys are columns of PostgreSQL (bigint, and text in an index) and parts of addresses.
_MAHALLE = re.compile(r"[0-9]{1,18}")
_NUMBER = re.compile(r"[^/\x00-\x1f\x7f]{1,60}")

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
    return read_feature(parse_object(body), keyed=keyed)


def read_places(body: bytes) -> list[Place]:
    """The places in an administrative list."""
    return [_place(feature) for feature in _features(read_storable(parse_object(body)))]


def geodesic_area(outline: Outline) -> float:
    """Square metres on the ellipsoid."""
    return abs(_EARTH.geometry_area_perimeter(shapely.orient_polygons(outline))[0])


def check_location(parcel: Registered, point: Point) -> None:
    """Raise BrokenAnswerError if a parcel lies elsewhere than at the point that was asked about."""
    if parcel.geometry is None:
        return
    plane = Plane(point.lon, point.lat)
    away = shapely.distance(plane.to_metres(parcel.geometry), shapely.Point(0.0, 0.0))
    # Also false for what is not a number.
    if not away <= MAX_METRES_AWAY:
        raise BrokenAnswerError(
            msg("The parcel lies {away:.0f} metres from the point that was asked about.", away=away)
        )


def read_storable(told: Any) -> Any:
    """Return parsed JSON as PostgreSQL stores it; BrokenAnswerError if it cannot."""
    try:
        return storable(told)
    except ValueError as error:
        raise BrokenAnswerError(msg("The response contains {error}.", error=error)) from error


def parse_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a body; what is in it has not been checked."""
    try:
        told = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BrokenAnswerError(msg("The registry answered something that is not JSON.")) from error
    if not isinstance(told, dict):
        raise BrokenAnswerError(
            msg("The registry answered a {name}, not an object.", name=type(told).__name__)
        )
    return told


def read_feature(feature: Mapping[str, Any], *, keyed: bool = True) -> Registered:
    """The parcel in a GeoJSON Feature; who does not need its key takes one without."""
    feature = read_storable(feature)
    properties = feature.get("properties")
    if feature.get("type") != "Feature" or not isinstance(properties, dict):
        raise BrokenAnswerError(msg("The registry's answer is not a parcel."))
    if "geometry" not in feature:
        raise BrokenAnswerError(msg("The parcel has no member `geometry`."))
    outline = read_outline(feature["geometry"])
    if outline is None and feature["geometry"] is not None:
        # Only an explicit null means that a parcel has no ground.
        raise BrokenAnswerError(msg("A parcel's outline encloses no ground."))
    size = None if outline is None else geodesic_area(outline)
    if size is not None and not size <= MAX_SQUARE_METRES:
        raise BrokenAnswerError(
            msg("A parcel's outline encloses {size:,.0f} square kilometres.", size=size / 1000000.0)
        )
    told = properties.get("alan")
    area = None
    if told not in (None, ""):
        area = read_area(str(told), size)
    key = _key(properties) if keyed or properties.get("mahalleId") else NO_KEY
    return Registered(key, outline, area, properties, _successors(properties))


def _key(properties: Mapping[str, Any]) -> ParcelKey:
    mahalle, ada, parsel = (properties.get(name) for name in ("mahalleId", "adaNo", "parselNo"))
    texts = [str(one).strip() if _is_scalar(one) else "" for one in (mahalle, ada, parsel)]
    if not _MAHALLE.fullmatch(texts[0]):
        raise BrokenAnswerError(
            msg("A parcel without a neighbourhood: {mahalle!r:.100}.", mahalle=mahalle)
        )
    if not all(map(_NUMBER.fullmatch, texts[1:])):
        raise BrokenAnswerError(
            msg(
                "A parcel without a number: ada {ada!r:.100}, parsel {parsel!r:.100}.",
                ada=ada,
                parsel=parsel,
            )
        )
    return int(texts[0]), texts[1], texts[2]


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def read_outline(geometry: Any) -> Outline | None:
    """The ground of a GeoJSON geometry: polygons with their holes, valid, always in one order."""
    if geometry is None:
        return None
    match geometry:
        case {"type": "Polygon" | "MultiPolygon" as kind, "coordinates": list(coordinates)}:
            polygons = [coordinates] if kind == "Polygon" else coordinates
        case _:
            raise BrokenAnswerError(
                msg("This is no outline of a parcel: {geometry!r:.100}.", geometry=geometry)
            )
    if not coordinates:
        return None
    try:
        flat = [[[_corner(one) for one in ring] for ring in polygon] for polygon in polygons]
        if sum(len(ring) for polygon in flat for ring in polygon) > MAX_CORNERS:
            raise ValueError(f"more than {MAX_CORNERS:,} corners")
        drawn = shape({"type": "MultiPolygon", "coordinates": flat})
        found = shapely.make_valid(drawn, method="structure")
    except (ShapelyError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise BrokenAnswerError(
            msg("A parcel's outline cannot be read: {error!s:.200}.", error=error)
        ) from error
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


def _corner(position: Any) -> tuple[float, float]:
    """Longitude and latitude; a height is left out."""
    lon, lat, *_ = position
    for value, most in ((lon, 180), (lat, 90)):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{value!r:.50} is not a number of degrees")
        if not abs(value) <= most:
            raise ValueError(f"{value!r:.50} is beyond {most} degrees")
    return float(lon), float(lat)


def _successors(properties: Mapping[str, Any]) -> tuple[Registered, ...]:
    """What a passive parcel became; the registry puts it into a text."""
    told = properties.get("gittigiParselListe")
    if not told:
        return ()
    try:
        collection = json.loads(told) if isinstance(told, str) else told
        return tuple(read_feature(feature) for feature in _features(collection))
    except (ValueError, RecursionError, BrokenAnswerError):
        # The parcel itself was read; the text stays among its properties.
        return ()


def _features(collection: Any) -> list[Mapping[str, Any]]:
    features = collection.get("features") if isinstance(collection, dict) else None
    if not isinstance(features, list) or not all(isinstance(one, dict) for one in features):
        raise BrokenAnswerError(msg("The registry's answer is not a list of features."))
    return features


def _place(feature: Mapping[str, Any]) -> Place:
    match feature.get("properties"):
        case {"id": int(number), "text": str(name)} if 0 <= number < 2**63:
            return Place(number, name, read_outline(feature.get("geometry")))
        case other:
            raise BrokenAnswerError(
                msg("A place without an id or a name: {other!r:.100}.", other=other)
            )
