"""Which parcels a request asks for, in the words of OGC API Features."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time
from typing import Any, NamedTuple

import shapely
from shapely.geometry.base import BaseGeometry

from hasat.errors import UsageError
from hasat.messages import msg

FEW = 10
MOST = 10_000

PARAMETERS: tuple[dict[str, Any], ...] = (
    {
        "name": "bbox",
        "in": "query",
        "description": "Only parcels that reach into west,south,east,north (degrees, CRS84); of "
        "six numbers the heights are left out.",
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
        "description": "Only parcels that were last told (`fetchedAt`) at this time, or between "
        "two times: `2026-11-01T00:00:00Z/..`.",
        "schema": {"type": "string"},
    },
    {
        "name": "limit",
        "in": "query",
        "description": "How many at most on one page; the link `next` leads on.",
        "schema": {"type": "integer", "minimum": 1, "maximum": MOST, "default": FEW},
    },
    {
        "name": "after",
        "in": "query",
        "description": "Where a page begins; the link `next` has it.",
        "schema": {"type": "string"},
    },
)


class Box(NamedTuple):
    """A box in degrees; one whose west is beyond its east goes around the back of the earth."""

    west: float
    south: float
    east: float
    north: float

    @property
    def halves(self) -> tuple["Box", "Box"]:
        """Two boxes that do not go around; the same twice if it does not."""
        if self.west <= self.east:
            return self, self
        return Box(self.west, self.south, 180, self.north), Box(-180, *self[1:])

    @property
    def ground(self) -> BaseGeometry:
        return shapely.union_all([half._ground() for half in set(self.halves)])

    def _ground(self) -> BaseGeometry:
        # A box without width is no valid polygon.
        return shapely.MultiPoint([(self.west, self.south), (self.east, self.north)]).envelope


@dataclass(frozen=True)
class Selection:
    """Parcels in a box, told within a time, a page of them in the order of their keys."""

    box: Box | None = None
    since: datetime | None = None
    until: datetime | None = None
    limit: int = FEW
    after: str = ""

    @property
    def everything(self) -> bool:
        return self.box is None and self.since is None and self.until is None


def read_selection(given: Mapping[str, str]) -> Selection:
    """The selection that a query names; the standard wants every fault answered with 400."""
    since, until = _span(given["datetime"]) if "datetime" in given else (None, None)
    after = given.get("after", "")
    if "\0" in after:
        raise UsageError(msg("`after` has a character that no key has."))
    return Selection(_box(given), since, until, _limit(given.get("limit")), after)


def _limit(text: str | None) -> int:
    if text is None:
        return FEW
    if not (text.isascii() and text.isdigit() and int(text[:9])):
        raise UsageError(
            msg("`limit` is {text!r}; it must be a whole number, 1 or more.", text=text)
        )
    return min(int(text[:9]), MOST)


def _box(given: Mapping[str, str]) -> Box | None:
    point = [given[name] for name in ("lon", "lat") if name in given]
    if not point:
        return read_box(given["bbox"]) if "bbox" in given else None
    if len(point) == 1 or "bbox" in given:
        raise UsageError(msg("A point is `lat` and `lon` together, and without `bbox`."))
    return read_box(",".join(point * 2), "`lat` and `lon` are")


def read_box(text: str, what: str = "`bbox` is") -> Box:
    """A box of four numbers, or of six with heights, which are left out."""
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


def _span(text: str) -> tuple[datetime | None, datetime | None]:
    """A moment, or two with a slash between, of which one may be open (`..` or nothing)."""
    first, slash, last = text.partition("/")
    ends = [first, last if slash else first]
    opened = [end in ("", "..") for end in ends]
    if all(opened):
        raise UsageError(msg("`datetime` names no time."), remedy=_TIMES)
    since = None if opened[0] else _moment(ends[0], time.min)
    until = None if opened[1] else _moment(ends[1], time.max)
    if since and until and since > until:
        raise UsageError(msg("`datetime` ends before it begins."), remedy=_TIMES)
    return since, until


_TIMES = msg(
    "Write 2026-11-01T00:00:00Z, 2026-11-01T00:00:00Z/2026-12-01T00:00:00Z, or `..` for open."
)


def _moment(text: str, of_a_day: time) -> datetime:
    # The plus sign of a zone arrives as a space unless it was escaped.
    try:
        moment = datetime.fromisoformat(text.strip().replace(" ", "+"))
        if len(text) == len("2026-11-01"):
            moment = datetime.combine(moment, of_a_day)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise UsageError(msg("{text!r} is not a time.", text=text), remedy=_TIMES) from error
