"""Parse the query parameters of OGC API Features into a selection of parcels."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time
from typing import Any, NamedTuple

import shapely
from shapely.geometry.base import BaseGeometry

from hasat.errors import UsageError
from hasat.messages import msg

DEFAULT_LIMIT = 10
MAX_LIMIT = 10_000

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

    @property
    def everything(self) -> bool:
        return self.box is None and self.since is None and self.until is None


def parse_selection(given: Mapping[str, str]) -> Selection:
    """Return the selection of a query; the standard wants 400 for every invalid parameter."""
    since, until = _parse_interval(given["datetime"]) if "datetime" in given else (None, None)
    after = given.get("after", "")
    if "\0" in after:
        raise UsageError(msg("`after` contains a character that no key has."))
    return Selection(_box(given), since, until, _limit(given.get("limit")), after)


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
        return parse_box(given["bbox"]) if "bbox" in given else None
    if len(point) == 1 or "bbox" in given:
        raise UsageError(msg("A point is `lat` and `lon` together, and without `bbox`."))
    return parse_box(",".join(point * 2), "`lat` and `lon` are")


def parse_box(text: str, what: str = "`bbox` is") -> Box:
    """Return the box of four numbers, or of six with heights, which are ignored."""
    try:
        sides = [float(side) for side in text.split(",")]
    except ValueError:
        sides = []
    if len(sides) == 6:
        sides = [*sides[:2], *sides[3:5]]
    if len(sides) == 4 and all(map(math.isfinite, sides)):
        west, south, east, north = sides
        if -90 <= south <= north <= 90 and all(-180 <= side <= 180 for side in (west, east)):
            return Box(west, south, east, north)
    raise UsageError(
        msg("{what} not on the earth: {text!r}.", what=what, text=text),
        remedy=msg("Give west,south,east,north in degrees, for example 32.84,39.89,32.86,39.91."),
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
