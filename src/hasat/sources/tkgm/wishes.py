"""What is to be scanned, and how."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Literal

import shapely
from shapely import MultiPolygon, Polygon

from hasat.sources.tkgm.aims import Quality


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
