"""The registry's queries and responses: values, parsing without loss or trust, and outcomes.

One parcel is a GeoJSON Feature. The registry formats the same parcel differently when it is
queried by number: other separators in `alan`, and ı where a query by point returns i. So the key
of a parcel is (mahalleId, adaNo, parselNo), its area a number, and `ozet` is only data.

"No parcel here" is a 404 with a message, a 200 with one, or XML; the daily limit is a 403 with a
message. A 404 with another message, as from a wrong address, does not mean "no parcel". Proxies
return 404 {"error": "Not found"}, and in a batch {"status": "error", "error": 404}.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import shapely
from shapely import Geometry, MultiPolygon
from shapely.errors import ShapelyError
from shapely.geometry import shape

from hasat.errors import BrokenAnswerError
from hasat.fetch import Outcome, Response, Verdict, retry_after
from hasat.messages import msg
from hasat.sources.tkgm.geometry import Outline, Plane, geodesic_area, polygons_of
from hasat.store.quarantine import storable
from hasat.text import lower

ParcelKey = tuple[int, str, str]

# Forests of whole districts are smaller; one wrong corner makes an outline larger.
MAX_SQUARE_METRES = 2e9
# Checking and repairing an outline takes time that grows with its corners.
MAX_CORNERS = 50_000
# A parcel farther from the queried point is not the response to it.
MAX_METRES_AWAY = 100.0
# Keys are columns of PostgreSQL (bigint, and text in an index) and parts of addresses.
_MAHALLE = re.compile(r"[0-9]{1,18}")
_NUMBER = re.compile(r"[^/\x00-\x1f\x7f]{1,60}")
_AREA = re.compile(r"[0-9]+(?:[.,][0-9]+)*")
_GROUPED_AREA = re.compile(r"[0-9]{1,3}(?:[.,][0-9]{3})+")

# The key of a parcel from an endpoint that omits the neighbourhood.
NO_KEY: ParcelKey = (0, "", "")


@dataclass(frozen=True)
class Point:
    """A query for the parcel at a point, in degrees."""

    lat: float
    lon: float


@dataclass(frozen=True)
class ParcelNumber:
    """A query for the parcel with a number."""

    mahalle_id: int
    ada: str
    parsel: str


Query = Point | ParcelNumber


@dataclass(frozen=True)
class Parcel:
    """A parcel as the registry returned it; a passive parcel may have no geometry."""

    key: ParcelKey
    geometry: Outline | None
    area: float | None = field(default=None, compare=False)
    properties: Mapping[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Place:
    """A province, district or neighbourhood, with its boundary where the list has one."""

    id: int
    name: str
    boundary: Outline | None


def format_query(query: Query) -> str:
    """Return the text under which a query is stored; equal queries have equal texts."""
    match query:
        case Point(lat, lon):
            return f"{lat!r},{lon!r}"
        case ParcelNumber(mahalle, ada, parsel):
            return f"{mahalle}/{ada}/{parsel}"


def parse_query(text: str) -> Query:
    """Return the query that `format_query` wrote."""
    if "/" in text:
        mahalle, ada, parsel = text.split("/", 2)
        return ParcelNumber(int(mahalle), ada, parsel)
    lat, lon = text.split(",")
    return Point(float(lat), float(lon))


def is_number(text: str) -> bool:
    """Return whether a text can be the number of a block or parcel."""
    return _NUMBER.fullmatch(text) is not None


def interior_point(geometry: Geometry) -> Point:
    """Return a point inside a geometry, in its middle where it is wide."""
    lon, lat = shapely.get_coordinates(shapely.point_on_surface(geometry))[0].tolist()
    return Point(round(lat, 7), round(lon, 7))


def parse_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a body, its content unchecked."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BrokenAnswerError(msg("The registry's response is not JSON.")) from error
    if not isinstance(content, dict):
        raise BrokenAnswerError(
            msg("The registry's response is a {name}, not an object.", name=type(content).__name__)
        )
    return content


def check_storable(content: Any) -> Any:
    """Return parsed JSON as PostgreSQL stores it; raise BrokenAnswerError if it cannot."""
    try:
        return storable(content)
    except ValueError as error:
        raise BrokenAnswerError(msg("The response contains {error}.", error=error)) from error


def parse_parcel(feature: Mapping[str, Any], *, keyed: bool = True) -> Parcel:
    """Return the parcel of a GeoJSON Feature; without `keyed` it may lack its key."""
    feature = check_storable(feature)
    properties = feature.get("properties")
    if feature.get("type") != "Feature" or not isinstance(properties, dict):
        raise BrokenAnswerError(msg("The registry's response is not a parcel."))
    if "geometry" not in feature:
        raise BrokenAnswerError(msg("The parcel has no member `geometry`."))
    outline = parse_outline(feature["geometry"])
    if outline is None and feature["geometry"] is not None:
        # Only an explicit null means that a parcel has no ground.
        raise BrokenAnswerError(msg("The outline of the parcel encloses no area."))
    size = None if outline is None else geodesic_area(outline)
    if size is not None and not size <= MAX_SQUARE_METRES:
        raise BrokenAnswerError(
            msg(
                "The outline of the parcel encloses {size:,.0f} square kilometres.",
                size=size / 1000000.0,
            )
        )
    text = properties.get("alan")
    area = None if text in (None, "") else parse_square_metres(str(text), size)
    key = _parse_key(properties) if keyed or properties.get("mahalleId") else NO_KEY
    return Parcel(key, outline, area, properties)


def check_location(parcel: Parcel, point: Point) -> None:
    """Raise BrokenAnswerError if a parcel lies far from the queried point."""
    if parcel.geometry is None:
        return
    plane = Plane(point.lon, point.lat)
    away = shapely.distance(plane.to_metres(parcel.geometry), shapely.Point(0.0, 0.0))
    # Also false for NaN.
    if not away <= MAX_METRES_AWAY:
        raise BrokenAnswerError(
            msg("The parcel lies {away:.0f} metres from the queried point.", away=away)
        )


def parse_places(body: bytes) -> list[Place]:
    """Return the places of an administrative list."""
    content = check_storable(parse_object(body))
    features = content.get("features")
    if not isinstance(features, list) or not all(isinstance(one, dict) for one in features):
        raise BrokenAnswerError(msg("The registry's response is not a list of features."))
    return [_parse_place(feature) for feature in features]


def parse_outline(geometry: Any) -> Outline | None:
    """Return the valid polygons of a GeoJSON geometry, with holes, in a canonical order."""
    if geometry is None:
        return None
    match geometry:
        case {"type": "Polygon" | "MultiPolygon" as kind, "coordinates": list(coordinates)}:
            polygons = [coordinates] if kind == "Polygon" else coordinates
        case _:
            raise BrokenAnswerError(
                msg("This is not the outline of a parcel: {geometry!r:.100}.", geometry=geometry)
            )
    if not coordinates:
        return None
    try:
        flat = [[[_parse_corner(one) for one in ring] for ring in polygon] for polygon in polygons]
        if sum(len(ring) for polygon in flat for ring in polygon) > MAX_CORNERS:
            raise ValueError(f"more than {MAX_CORNERS:,} corners")
        drawn = shape({"type": "MultiPolygon", "coordinates": flat})
        found = shapely.make_valid(drawn, method="structure")
    except (ShapelyError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise BrokenAnswerError(
            msg("The outline of a parcel cannot be read: {error!s:.200}.", error=error)
        ) from error
    # Corners that were rounded onto one another leave lines and points next to the polygon.
    grounds = polygons_of(found)
    if not grounds:
        return None
    whole = grounds[0] if len(grounds) == 1 else MultiPolygon(grounds)
    ordered = shapely.orient_polygons(shapely.normalize(whole))
    assert isinstance(ordered, Outline)
    return ordered


def parse_square_metres(text: str, outline_area: float | None = None) -> float | None:
    """Return the area in `1,295.00` (by point), `1.295,00` (by number), `52,52` or `500`.

    "1.234" is ambiguous: the area of the outline decides, and without one a single separator is
    the decimal separator.
    """
    readings = [area for area in _area_readings(re.sub(r"\s", "", text)) if math.isfinite(area)]
    if not readings:
        return None
    if outline_area is None or outline_area <= 0:
        return readings[0]
    return min(readings, key=lambda area: abs(math.log(max(area, 0.01) / outline_area)))


def _area_readings(text: str) -> list[float]:
    """Return every value the text can mean, the likeliest first."""
    if not _AREA.fullmatch(text):
        return []
    separators = re.sub("[0-9]", "", text)
    if not separators:
        return [float(text)]
    readings = []
    decimal = separators[-1]
    if separators.count(decimal) == 1:
        whole, _, decimals = text.rpartition(decimal)
        readings.append(float(f"{re.sub('[.,]', '', whole)}.{decimals}"))
    if len(set(separators)) == 1 and _GROUPED_AREA.fullmatch(text):
        readings.append(float(text.replace(decimal, "")))
    return readings


def _parse_key(properties: Mapping[str, Any]) -> ParcelKey:
    mahalle, ada, parsel = (properties.get(name) for name in ("mahalleId", "adaNo", "parselNo"))
    texts = [str(one).strip() if _is_scalar(one) else "" for one in (mahalle, ada, parsel)]
    if not _MAHALLE.fullmatch(texts[0]):
        raise BrokenAnswerError(
            msg("The parcel has no neighbourhood: {mahalle!r:.100}.", mahalle=mahalle)
        )
    if not all(map(_NUMBER.fullmatch, texts[1:])):
        raise BrokenAnswerError(
            msg(
                "The parcel has no number: ada {ada!r:.100}, parsel {parsel!r:.100}.",
                ada=ada,
                parsel=parsel,
            )
        )
    return int(texts[0]), texts[1], texts[2]


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _parse_corner(position: Any) -> tuple[float, float]:
    """Return longitude and latitude, without the height."""
    lon, lat, *_ = position
    for value, limit in ((lon, 180), (lat, 90)):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{value!r:.50} is not a number of degrees")
        if not abs(value) <= limit:
            raise ValueError(f"{value!r:.50} is beyond {limit} degrees")
    return float(lon), float(lat)


def _parse_place(feature: Mapping[str, Any]) -> Place:
    match feature.get("properties"):
        case {"id": int(number), "text": str(name)} if 0 <= number < 2**63:
            return Place(number, name, parse_outline(feature.get("geometry")))
        case other:
            raise BrokenAnswerError(
                msg("The place has no id or no name: {other!r:.100}.", other=other)
            )


_NOT_FOUND = re.compile(r"bulunamad")
_DAY_OVER = re.compile(
    r"g[uü]nl[uü]k.{0,40}(limit|kota)|limit[a-zçğıiöşü]*\s+a[sş]"
    r"|(daily|per day).{0,40}limit|limit.{0,40}(for the day|per day|daily)"
)
_WRAPPED = re.compile(r"<string[^>]*>(.*?)</string>", re.DOTALL)
_BAD_REQUEST = frozenset({400, 405, 406, 411, 413, 414, 415, 422})


def classify(response: Response) -> Verdict:
    """Return the outcome of a response of the registry, or of an endpoint that forwards it."""
    content = _content(response.body)
    message = parse_message(response.body) or ""
    status, wait = response.status, retry_after(response.headers)
    reason = f"{status}: {message[:200]}" if message else f"status {status}"
    if status == 401:
        return Verdict(Outcome.UNAUTHORISED, reason)
    if status in (200, 403, 429) and is_daily_limit(message):
        return Verdict(Outcome.DAY_EXHAUSTED, reason)
    if status in (403, 429):
        return Verdict(Outcome.MINUTE_LIMITED, reason, wait)
    if status in (408, 425, 499) or status >= 500:
        return Verdict(Outcome.TRANSIENT, reason, wait)
    if status in (200, 404) and is_not_found(message):
        return Verdict(Outcome.EMPTY)
    if status == 200 and (refused := _batch_refusal(content)):
        return Verdict(Outcome.MINUTE_LIMITED, f"every point of the batch: {refused}")
    # A passive parcel can come with 404; its successors are in it.
    if status in (200, 404) and _is_result(content):
        return Verdict(Outcome.OK)
    if status == 204 or (status == 404 and not response.body.strip()):
        return Verdict(Outcome.EMPTY)
    if status == 404 and isinstance(content, dict):
        if content.get("error") == "Not found":
            return Verdict(Outcome.EMPTY)
        return Verdict(Outcome.BAD_REQUEST if message else Outcome.EMPTY, reason)
    if status in _BAD_REQUEST:
        return Verdict(Outcome.BAD_REQUEST, reason)
    return Verdict(Outcome.BROKEN, f"{reason}: this is no response about parcels")


def is_not_found(message: str) -> bool:
    """Return whether a message is the registry's definitive "there is no parcel"."""
    return _NOT_FOUND.search(lower(message)) is not None


def is_daily_limit(message: str) -> bool:
    """Return whether a message means that the daily limit of this address is reached."""
    return _DAY_OVER.search(lower(message)) is not None


def parse_message(body: bytes) -> str | None:
    """Return the message of a response: JSON `Message`, a JSON string, XML, or plain text."""
    return _message(_content(body), body) or None


def _content(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _batch_refusal(content: Any) -> int | None:
    """Return the status with which the registry refused every point of a proxy's batch."""
    results = content.get("results") if isinstance(content, dict) else None
    if not isinstance(results, list) or not results:
        return None
    errors = [one.get("error") if isinstance(one, dict) else None for one in results]
    return next((status for status in (403, 429) if all(one == status for one in errors)), None)


def _is_result(content: Any) -> bool:
    if not isinstance(content, dict):
        return isinstance(content, list)
    kinds = ("Feature", "FeatureCollection")
    return content.get("type") in kinds or isinstance(content.get("results"), list)


def _message(content: Any, body: bytes) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        for name in ("Message", "message", "error"):
            if isinstance(content.get(name), str):
                return str(content[name])
        return ""
    text = body[:4000].decode("utf-8", "replace")
    if wrapped := _WRAPPED.search(text):
        return wrapped[1].strip()
    return "" if "<" in text else text.strip()
