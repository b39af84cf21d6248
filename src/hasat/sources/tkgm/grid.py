"""A grid of points at a fixed step, pruned by every parcel found: the plain way to scan an area."""

import math

import numpy as np
import shapely
from shapely import MultiPolygon, Polygon

from hasat.sources.tkgm.questions import Answer, Parcel, Point, Question

METRES_PER_DEGREE = 111_000.0


class GridPlanner:
    """Asks every grid point of the area that no parcel told so far contains.

    It finds what its points happen to hit: parcels narrower than the step are left to chance.
    """

    def __init__(self, area: Polygon | MultiPolygon, step: float, batch: int = 20) -> None:
        west, south, east, north = area.bounds
        self._batch = batch
        self._lats = np.arange(south, north, step / METRES_PER_DEGREE)
        along = METRES_PER_DEGREE * math.cos(math.radians((south + north) / 2))
        self._lons = np.arange(west, east, step / along)
        self._open = np.zeros((self._lats.size, self._lons.size), dtype=bool)
        self._mark(area, True)
        self._row = 0

    @property
    def remaining(self) -> int:
        """How many points would be asked if no further parcel were found."""
        return int(self._open.sum())

    def next_batch(self) -> list[Question]:
        """The next points from south to north; empty when the grid has been gone through."""
        asked: list[Question] = []
        while self._row < len(self._lats) and len(asked) < self._batch:
            columns = np.flatnonzero(self._open[self._row])[: self._batch - len(asked)]
            self._open[self._row, columns] = False
            lat = float(self._lats[self._row])
            asked += [Point(lat, float(self._lons[column])) for column in columns]
            if len(asked) < self._batch:
                self._row += 1
        return asked

    def tell(self, question: Question, answer: Answer) -> None:
        """Leaves out the grid points that lie in a parcel told."""
        if isinstance(answer, Parcel):
            self._mark(answer.geometry, False)

    def pass_over(self, question: Question) -> None:
        """A point without an answer leaves the others as they are."""

    def _mark(self, geometry: Polygon | MultiPolygon, value: bool) -> None:
        shapely.prepare(geometry)
        west, south, east, north = geometry.bounds
        rows = slice(*np.searchsorted(self._lats, (south, north)))
        columns = slice(*np.searchsorted(self._lons, (west, east)))
        lons, lats = np.meshgrid(self._lons[columns], self._lats[rows])
        if lons.size:
            self._open[rows, columns][shapely.contains_xy(geometry, lons, lats)] = value
