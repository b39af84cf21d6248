"""Parse a page of the official service: GML, as it is sent by default, or GeoJSON."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import shapely
from shapely.errors import ShapelyError

from hasat.errors import BrokenAnswerError
from hasat.messages import msg
from hasat.sources.tkgm.geometry import polygons_of
from hasat.sources.tkgm.registry.markup import local_name, read_polygons
from hasat.sources.tkgm.registry.wire import Parcel, parse_parcel

# The names of the other upstream for what both have; the rest keeps its own names.
_NAMES = {
    "tapumahalleref": "mahalleId",
    "adano": "adaNo",
    "parselno": "parselNo",
    "tapualan": "alan",
    "tapucinsaciklama": "nitelik",
    "kmdurum": "zeminKmdurum",
    "durum": "durum",
    "tapukimlikno": "tapuKimlikNo",
    "tapuzeminref": "zeminId",
    "sistemguncellemetarihi": "sistemGuncellemeTarihi",
    "kadastroalan": "kadastroAlan",
}
_GEOMETRY = ("geom", "geometry", "the_geom")


@dataclass(frozen=True)
class FeaturePage:
    """The parcels of one page, how many features it had, and why some cannot be read."""

    parcels: tuple[Parcel, ...]
    features: int
    unreadable: tuple[tuple[str, bytes], ...]


def parse_page(body: bytes) -> FeaturePage:
    """Return the parcels of a page; raise BrokenAnswerError if it is none."""
    parcels: list[Parcel] = []
    unreadable: list[tuple[str, bytes]] = []
    count = 0
    for properties, geometry, content in _features(body):
        count += 1
        try:
            parcels.append(_parcel(properties, geometry))
        except BrokenAnswerError as error:
            unreadable.append((error.message, content))
    return FeaturePage(tuple(parcels), count, tuple(unreadable))


def exception_text(body: bytes) -> str | None:
    """Return the text of an exception report; None if the body is none."""
    start = body[:4000].decode("utf-8", "replace")
    if "ExceptionReport" not in start:
        return None
    try:
        root = ElementTree.fromstring(body)  # noqa: S314 - expat limits the growth of entities
    except ElementTree.ParseError:
        return "an exception report"
    texts = (one.text for one in root.iter() if local_name(one).startswith("ServiceException"))
    more = (one.text for one in root.iter() if local_name(one) == "ExceptionText")
    return " ".join(" ".join(text for text in (*texts, *more) if text).split()) or "an exception"


_Feature = tuple[Mapping[str, Any], Any, bytes]


def _features(body: bytes) -> Iterator[_Feature]:
    if body.lstrip()[:1] == b"{":
        yield from _json_features(body)
    else:
        yield from _gml_features(body)


def _json_features(body: bytes) -> Iterator[_Feature]:
    try:
        features = json.loads(body)["features"]
        pairs = [(one.get("properties") or {}, one.get("geometry"), one) for one in features]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise BrokenAnswerError(
            msg("The response of the service is not a feature collection.")
        ) from (error)
    for properties, geometry, one in pairs:
        yield properties, geometry, json.dumps(one).encode()


def _gml_features(body: bytes) -> Iterator[_Feature]:
    try:
        root = ElementTree.fromstring(body)  # noqa: S314 - expat limits the growth of entities
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise BrokenAnswerError(msg("The response of the service is not XML.")) from error
    if local_name(root) != "FeatureCollection":
        raise BrokenAnswerError(msg("The response of the service is not a feature collection."))
    for member in root:
        if local_name(member) in ("featureMember", "featureMembers", "member"):
            for feature in member:
                properties = {local_name(one): one.text for one in feature if len(one) == 0}
                yield properties, _gml_geometry(feature), ElementTree.tostring(feature)


def _gml_geometry(feature: ElementTree.Element) -> Any:
    """Return the outline as GeoJSON; a text if it cannot be read, which no parcel has."""
    places = [one for one in feature if local_name(one) in _GEOMETRY and len(one)]
    if not places:
        return None
    try:
        grounds = [
            part for one in read_polygons(places[0]) for part in polygons_of(one) if part.area > 0
        ]
    except (ShapelyError, ValueError):
        return "unreadable"
    return json.loads(shapely.to_geojson(shapely.MultiPolygon(grounds)))


def _parcel(properties: Mapping[str, Any], geometry: Any) -> Parcel:
    named = {_NAMES.get(name.lower(), name): value for name, value in properties.items()}
    named = {name: value for name, value in named.items() if value not in (None, "")}
    if str(named.get("mahalleId", "")).isdecimal():
        named["mahalleId"] = int(named["mahalleId"])
    for name in ("adaNo", "parselNo"):
        if name in named:
            named[name] = str(named[name])
    return parse_parcel({"type": "Feature", "geometry": geometry, "properties": named})
