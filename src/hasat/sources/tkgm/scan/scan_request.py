"""What a scan aims at, and what it says about itself: values."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Literal

import shapely
from shapely import MultiPolygon, Polygon

Quality = Literal["fast", "standard", "thorough"]


@dataclass(frozen=True)
class Aim:
    """What a quality means: the share of parcels that may be missed, and the smallest gap."""

    missing: float
    smallest_gap: int
    usual_cost: float
    """Questions a parcel, as bench/scan.py counts them on surveyed cadastres."""


AIMS: dict[str, Aim] = {
    "fast": Aim(missing=0.015, smallest_gap=3, usual_cost=1.5),
    "standard": Aim(missing=0.002, smallest_gap=2, usual_cost=1.8),
    "thorough": Aim(missing=0.0002, smallest_gap=2, usual_cost=3.0),
}
# Ground without parcels is mostly road up to this share; the rest is open and takes so many
# questions a tile.
ROADS = 0.3
OPEN_COST = 0.25
# The cost a parcel differs from one cadastre to the next by so much.
COST_SPREAD = 1.4


@dataclass(frozen=True)
class Forecast:
    """What a scan will find and cost, from a small random sample; the bounds are those of a 95 %
    interval."""

    parcels: float
    low: float
    high: float
    questions: int
    most_questions: int


@dataclass(frozen=True)
class Estimate:
    """How far a scan is: parcels found and expected in all (with the bounds of a 95 % interval),
    the share of ground known, and roughly how many questions are left."""

    found: int
    expected: float
    low: float
    high: float
    coverage: float
    questions_left: int


@dataclass(frozen=True)
class Unknown:
    """Ground in degrees where a parcel may still hide, and how likely one does."""

    ground: Polygon | MultiPolygon
    chance: float


@dataclass(frozen=True)
class Wish:
    """The area, the way to find its parcels, and how many questions that may take."""

    area: Polygon | MultiPolygon
    quality: Quality = "standard"
    method: Literal["coverage", "grid"] = "coverage"
    step: float = 20.0
    max_questions: int | None = None

    @property
    def how(self) -> dict[str, Any]:
        if self.method == "grid":
            return {"method": "grid", "step": self.step}
        return {"method": "coverage", "quality": self.quality}

    @property
    def mark(self) -> bytes:
        """The same for the same area asked for in the same way."""
        ground = shapely.to_wkb(shapely.normalize(shapely.set_precision(self.area, 1e-7)))
        return hashlib.sha256(ground + json.dumps(self.how).encode()).digest()
