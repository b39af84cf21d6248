"""Parse the query parameters of OGC API Features into a selection of parcels."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time
from typing import Any, NamedTuple

import shapely
from shapely.geometry.base import BaseGeometry

from hasat.errors import UsageError
from hasat.messages import msg
from hasat.sources.tkgm.filters.cql2 import MAX_LENGTH, Condition, parse_filter
from hasat.sources.tkgm.filters.crs import CRS84, SUPPORTED, box_in_degrees, check_uri
from hasat.sources.tkgm.filters.queryables import QUERYABLES

_NUMBER = re.compile(r"[+-]?[0-9]{1,18}(\.[0-9]{1,18})?")
DEFAULT_LIMIT = 10
MAX_LIMIT = 10_000
FILES = ("gpkg", "geojson", "shp", "fgb", "parquet", "csv", "kml", "kmz", "dxf")

_BOX_FORM = msg("Give west,south,east,north in degrees, for example 32.84,39.89,32.86,39.91.")

CRS_PARAMETER: dict[str, Any] = {
    "name": "crs",
    "in": "query",
    "description": "Coordinate reference system of the response, by its URI; in its order of axes.",
    "schema": {"type": "string", "format": "uri", "enum": list(SUPPORTED), "default": CRS84},
}

PARAMETERS: tuple[dict[str, Any], ...] = (
    {
        "name": "bbox",
        "in": "query",
        "description": "Only parcels that intersect west,south,east,north (degrees, CRS84); of "
        "six numbers the heights are ignored.",
        "style": "form",
        "explode": False,
        "schema": {
            "type": "array",
            "items": {"type": "number"},
            "oneOf": [{"minItems": 4, "maxItems": 4}, {"minItems": 6, "maxItems": 6}],
        },
        "example": [32.84, 39.89, 32.86, 39.91],
    },
    {
        "name": "lat",
        "in": "query",
        "description": "With `lon`: only the parcel at this point.",
        "schema": {"type": "number", "minimum": -90, "maximum": 90},
    },
    {
        "name": "lon",
        "in": "query",
        "description": "With `lat`: only the parcel at this point.",
        "schema": {"type": "number", "minimum": -180, "maximum": 180},
    },
    {
        "name": "datetime",
        "in": "query",
        "description": "Only parcels last fetched (`fetchedAt`) at a time or in an interval: "
        "`2026-11-01T00:00:00Z/..`.",
        "schema": {"type": "string"},
    },
    {
        "name": "limit",
        "in": "query",
        "description": "Page size; the link `next` leads to the next page.",
        "schema": {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
    },
    {
        "name": "after",
        "in": "query",
        "description": "Start of the page, as given in the link `next`.",
        "schema": {"type": "string"},
    },
    CRS_PARAMETER,
    {
        "name": "bbox-crs",
        "in": "query",
        "description": "Coordinate reference system of `bbox`, by its URI.",
        "schema": {"type": "string", "format": "uri", "enum": list(SUPPORTED), "default": CRS84},
    },
    {
        "name": "filter",
        "in": "query",
        "description": "A condition in CQL2 text, such as `adaNo = '101' AND alan > 500`; "
        "`/collections/parcels/queryables` lists the properties.",
        "schema": {"type": "string", "maxLength": MAX_LENGTH},
    },
    {
        "name": "filter-lang",
        "in": "query",
        "description": "Language of `filter`.",
        "schema": {"type": "string", "enum": ["cql2-text"], "default": "cql2-text"},
    },
    {
        "name": "filter-crs",
        "in": "query",
        "description": "Accepted because clients send it; filters have no coordinates.",
        "schema": {"type": "string", "format": "uri", "enum": list(SUPPORTED)},
    },
    {
        "name": "f",
        "in": "query",
        "description": "`json` for a page, or a format for a file with the whole selection.",
        "schema": {"type": "string", "enum": ["json", *FILES], "default": "json"},
    },
    *(
        {
            "name": one.name,
            "in": "query",
            "description": f"Only parcels with this value: {one.title}.",
            "schema": one.schema(),
        }
        for one in QUERYABLES.values()
        if one.kind != "timestamp"
    ),
)


class Box(NamedTuple):
    """A box in degrees; one whose west is beyond its east crosses the antimeridian."""

    west: float
    south: float
    east: float
    north: float

    @property
    def halves(self) -> tuple["Box", "Box"]:
        """The parts on both sides of the antimeridian; the box twice if it does not cross."""
        if self.west <= self.east:
            return self, self
        return Box(self.west, self.south, 180, self.north), Box(-180, *self[1:])

    @property
    def polygon(self) -> BaseGeometry:
        return shapely.union_all([half._envelope() for half in set(self.halves)])

    def _envelope(self) -> BaseGeometry:
        # A box without width is not a valid polygon.
        return shapely.MultiPoint([(self.west, self.south), (self.east, self.north)]).envelope


@dataclass(frozen=True)
class Selection:
    """A page of the parcels in a box that were fetched within a period, in the order of keys."""

    box: Box | None = None
    since: datetime | None = None
    until: datetime | None = None
    limit: int = DEFAULT_LIMIT
    after: str = ""
    condition: Condition | None = None
    crs: str = CRS84
    file: str | None = None
    """The format of a file with the whole selection, instead of a page."""

    @property
    def everything(self) -> bool:
        return all(one is None for one in (self.box, self.since, self.until, self.condition))


def parse_selection(given: Mapping[str, str]) -> Selection:
    """Return the selection of a query; the standard wants 400 for every invalid parameter."""
    since, until = _parse_interval(given["datetime"]) if "datetime" in given else (None, None)
    after = given.get("after", "")
    if "\0" in after:
        raise UsageError(msg("`after` contains a character that no key has."))
    return Selection(
        _box(given),
        since,
        until,
        _limit(given.get("limit")),
        after,
        _condition(given),
        check_uri(given.get("crs", CRS84), "crs"),
        _file(given),
    )


def _condition(given: Mapping[str, str]) -> Condition | None:
    """Return the filter and the values of properties as one condition."""
    if given.get("filter-lang", "cql2-text") != "cql2-text":
        raise UsageError(msg("`filter-lang` must be cql2-text."))
    check_uri(given.get("filter-crs", CRS84), "filter-crs")
    parts = [f"({given['filter']})"] if given.get("filter", "").strip() else []
    for name, queryable in QUERYABLES.items():
        if name in given and queryable.kind != "timestamp":
            text = given[name]
            if queryable.kind == "string":
                text = "'" + text.replace("'", "''") + "'"
            elif not _NUMBER.fullmatch(text):
                raise UsageError(
                    msg("`{name}` is {text!r}; it must be a number.", name=name, text=text)
                )
            parts.append(f"{name} = {text}")
    return parse_filter(" AND ".join(parts)) if parts else None


def _file(given: Mapping[str, str]) -> str | None:
    text = given.get("f", "json")
    if text == "json":
        return None
    if text not in FILES:
        raise UsageError(
            msg("`f` is {text!r}.", text=text),
            remedy=msg("Use one of {formats}.", formats=", ".join(("json", *FILES))),
        )
    if paging := [name for name in ("limit", "after") if name in given]:
        raise UsageError(
            msg("A file has the whole selection, without `{name}`.", name=paging[0]),
            remedy=msg("Remove it."),
        )
    return text


def _limit(text: str | None) -> int:
    if text is None:
        return DEFAULT_LIMIT
    if not (text.isascii() and text.isdigit() and int(text[:9])):
        raise UsageError(
            msg("`limit` is {text!r}; it must be a whole number, 1 or more.", text=text)
        )
    return min(int(text[:9]), MAX_LIMIT)


def _box(given: Mapping[str, str]) -> Box | None:
    point = [given[name] for name in ("lon", "lat") if name in given]
    if not point:
        uri = check_uri(given.get("bbox-crs", CRS84), "bbox-crs")
        if "bbox" not in given:
            return None
        if uri == CRS84:
            return parse_box(given["bbox"])
        return Box(*box_in_degrees(_four_numbers(given["bbox"]), uri))
    if len(point) == 1 or "bbox" in given:
        raise UsageError(msg("A point is `lat` and `lon` together, and without `bbox`."))
    return parse_box(",".join(point * 2), "`lat` and `lon` are")


def _four_numbers(text: str) -> list[float]:
    """Return the sides of a box in a system that may have metres."""
    try:
        sides = [float(side) for side in text.split(",")]
    except ValueError:
        sides = []
    if len(sides) == 6:
        sides = [*sides[:2], *sides[3:5]]
    if len(sides) != 4 or not all(map(math.isfinite, sides)):
        raise UsageError(msg("`bbox` is {text!r}; it must be four numbers.", text=text))
    return sides


def parse_box(text: str, what: str = "`bbox` is") -> Box:
    """Return the box of four numbers, or of six with heights, which are ignored."""
    try:
        sides = [float(side) for side in text.split(",")]
    except ValueError:
        sides = []
    if len(sides) == 6:
        sides = [*sides[:2], *sides[3:5]]
    if len(sides) != 4:
        raise UsageError(
            msg("{what} incomplete or not numbers: {text!r}.", what=what, text=text),
            remedy=_BOX_FORM,
        )
    if all(map(math.isfinite, sides)):
        west, south, east, north = sides
        if -90 <= south <= north <= 90 and all(-180 <= side <= 180 for side in (west, east)):
            return Box(west, south, east, north)
    raise UsageError(
        msg("{what} not on the earth: {text!r}.", what=what, text=text), remedy=_BOX_FORM
    )


def _parse_interval(text: str) -> tuple[datetime | None, datetime | None]:
    """Return the bounds of a moment, or of an interval of which one side may be open."""
    first, slash, last = text.partition("/")
    ends = [first, last if slash else first]
    opened = [end in ("", "..") for end in ends]
    if all(opened):
        raise UsageError(msg("`datetime` names no time."), remedy=_TIMES)
    since = None if opened[0] else _parse_time(ends[0], time.min)
    until = None if opened[1] else _parse_time(ends[1], time.max)
    if since and until and since > until:
        raise UsageError(msg("`datetime` ends before it begins."), remedy=_TIMES)
    return since, until


_TIMES = msg(
    "Write 2026-11-01T00:00:00Z, 2026-11-01T00:00:00Z/2026-12-01T00:00:00Z, or `..` for open."
)


def _parse_time(text: str, default: time) -> datetime:
    # The plus sign of a zone arrives as a space unless it was escaped.
    try:
        moment = datetime.fromisoformat(text.strip().replace(" ", "+"))
        if len(text) == len("2026-11-01"):
            moment = datetime.combine(moment, default)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise UsageError(msg("{text!r} is not a time.", text=text), remedy=_TIMES) from error
