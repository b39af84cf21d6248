"""A request to scan an area, and the quality levels it can choose from."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Literal

import shapely
from shapely import MultiPolygon, Polygon

Quality = Literal["fast", "standard", "thorough"]


@dataclass(frozen=True)
class QualityLevel:
    """The share of parcels that a scan may miss, and the radius of the smallest gap it considers.

    `queries_per_parcel` is what bench/scan.py measures on surveyed cadastres.
    """

    missing: float
    smallest_gap: int
    queries_per_parcel: float


QUALITY_LEVELS: dict[str, QualityLevel] = {
    "fast": QualityLevel(missing=0.015, smallest_gap=3, queries_per_parcel=1.5),
    "standard": QualityLevel(missing=0.002, smallest_gap=2, queries_per_parcel=1.8),
    "thorough": QualityLevel(missing=0.0002, smallest_gap=2, queries_per_parcel=3.0),
}


@dataclass(frozen=True)
class ScanRequest:
    """The area to scan, the method to find its parcels, and the limit on queries."""

    area: Polygon | MultiPolygon
    quality: Quality = "standard"
    method: Literal["coverage", "grid"] = "coverage"
    step: float = 20.0
    max_queries: int | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The method and its parameters, as they are stored."""
        if self.method == "grid":
            return {"method": "grid", "step": self.step}
        return {"method": "coverage", "quality": self.quality}

    @property
    def fingerprint(self) -> bytes:
        """A digest that is equal for equal areas with equal options."""
        area = shapely.to_wkb(shapely.normalize(shapely.set_precision(self.area, 1e-7)))
        return hashlib.sha256(area + json.dumps(self.options).encode()).digest()
