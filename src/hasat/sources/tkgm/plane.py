"""A flat frame in metres around a place, so that distances and areas need no geodesy."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray
from shapely import Geometry

METRES_PER_DEGREE = 111_195.0


@dataclass(frozen=True)
class Plane:
    """Metres east and north of a point; exact enough for a few tens of kilometres."""

    lon: float
    lat: float

    @classmethod
    def around(cls, geometries: Iterable[Geometry]) -> "Plane":
        west, south, east, north = shapely.total_bounds(list(geometries)).tolist()
        return cls((west + east) / 2, (south + north) / 2)

    @property
    def scale(self) -> NDArray[np.float64]:
        """Metres per degree, east and north."""
        along = METRES_PER_DEGREE * math.cos(math.radians(self.lat))
        return np.array([along, METRES_PER_DEGREE])

    def to_metres(self, geometry: Any) -> Any:
        return shapely.transform(geometry, lambda xy: (xy - [self.lon, self.lat]) * self.scale)

    def to_degrees(self, geometry: Any) -> Any:
        return shapely.transform(geometry, lambda xy: xy / self.scale + [self.lon, self.lat])
