"""What a scan asks and what it is told: plain values, shared by the planners."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shapely import MultiPolygon, Polygon

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
