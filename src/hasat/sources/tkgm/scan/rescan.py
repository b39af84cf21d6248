"""Plan a scan of an area that is partly known: check what is known, then search the rest.

Every known parcel is queried once, at a point inside it, and a few of the points that were empty.
Then the planner gets all responses and continues where parcels are likeliest. Near ground that has
changed, earlier empty points are ignored, so that it is planned as for the first time.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import shapely
from shapely import Geometry, STRtree

from hasat.sources.tkgm.geometry import METRES_PER_DEGREE, Outline
from hasat.sources.tkgm.registry.wire import (
    Parcel,
    ParcelKey,
    ParcelNumber,
    Point,
    Query,
    interior_point,
)
from hasat.sources.tkgm.scan.planner import Planner
from hasat.sources.tkgm.scan.progress import Forecast

# One in this many empty points is queried again, and at least this many.
EMPTY_SHARE = 20
MIN_EMPTY = 20
# Empty points nearer than this to ground that has changed are ignored.
NEAR_METRES = 60.0
# Outlines are rounded to about a metre; narrower remainders are not ground.
ROUNDING_METRES = 0.75


@dataclass(frozen=True)
class KnownParcel:
    """A parcel known before a scan, and the point at which to check that it still exists.

    `fresh` parcels are not checked.
    """

    key: ParcelKey
    outline: Outline
    point: Point
    fresh: bool


class RescanPlanner:
    """Query what is known first, then let the planner continue.

    Like the planner, a pure function of the calls made to it.
    """

    def __init__(
        self,
        planner: Planner,
        parcels: Sequence[KnownParcel],
        empty: Sequence[Query],
        *,
        batch: int = 20,
        by_number: bool = False,
    ) -> None:
        self.planner = planner
        self._batch = batch
        self._by_number = by_number
        self._known = {one.key: one for one in parcels}
        self._empty = list(empty)
        # The parcels that each query should find; none where the point was empty.
        self._expected: dict[Query, list[ParcelKey]] = {}
        for one in parcels:
            if not one.fresh:
                self._expected.setdefault(one.point, []).append(one.key)
        self._expected |= {one: [] for one in _sample_points(self._empty)}
        self._queue: deque[Query] = deque(self._expected)
        self._responses: dict[Query, Parcel | None] = {}
        self._has_second_queries = False
        self._handed_over = False

    @property
    def checks(self) -> int:
        """The number of queries about what is known."""
        return len(self._expected)

    def next_batch(self) -> list[Query]:
        """Return the planner's sample, if it takes one; then the checks; then its queries."""
        if self._handed_over or self.planner.has_sample:
            return self.planner.next_batch()
        if self.planner.is_sampling:
            return []
        if not self._queue and len(self._responses) == len(self._expected):
            if not self._has_second_queries:
                self._has_second_queries = True
                self._add_second_queries()
            if not self._queue:
                self._hand_over()
                return self.planner.next_batch()
        return [self._queue.popleft() for _ in range(min(self._batch, len(self._queue)))]

    def record(self, query: Query, parcel: Parcel | None) -> None:
        """Record the response to a query."""
        if self._handed_over or query not in self._expected:
            self.planner.record(query, parcel)
        else:
            self._responses[query] = parcel

    def skip(self, query: Query) -> None:
        """Treat a query that cannot be answered as if nothing had changed."""
        expected = [] if self._handed_over else self._expected.get(query, [])
        self.record(query, self._parcel(expected[0]) if expected else None)

    def forecast(self) -> Forecast | None:
        """Forecast the scan: one query per check, then the rest."""
        if (sampled := self.planner.forecast()) is not None:
            return sampled
        if self.planner.is_sampling:
            return None
        parcels = float(len(self._known))
        least = len(self._expected) + self.planner.audit_size(len(self._known))
        return Forecast(parcels, parcels, parcels, least, least, least + len(self._known))

    def gone(self) -> list[KnownParcel]:
        """Return the known parcels whose ground is something else now.

        A parcel that was not found, while everything around it is unchanged, is not gone.
        """
        found = {one.key for one in self._responses.values() if one is not None}
        return [
            self._known[key]
            for query, parcel in self._responses.items()
            if not self._is_unchanged(parcel)
            for key in self._expected[query]
            if key not in found
        ]

    def _parcel(self, key: ParcelKey) -> Parcel:
        return Parcel(key, self._known[key].outline)

    def _is_unchanged(self, parcel: Parcel | None) -> bool:
        """Return whether a response is a known parcel with the same outline."""
        if parcel is None or parcel.geometry is None:
            return False
        known = self._known.get(parcel.key)
        return known is not None and bool(shapely.equals(known.outline, parcel.geometry))

    def _add_second_queries(self) -> None:
        """Query parcels that were not found again: by number, or where no other parcel lies."""
        found = [one for one in self._responses.values() if one is not None]
        keys = {one.key for one in found}
        outlines = [one.geometry for one in found if one.geometry is not None]
        tree = STRtree(outlines)
        for one in self._known.values():
            if one.fresh or one.key in keys:
                continue
            query = self._second_query(one, outlines, tree)
            if query is not None and query not in self._expected:
                self._expected[query] = []
                self._queue.append(query)

    def _second_query(
        self, parcel: KnownParcel, outlines: Sequence[Outline], tree: STRtree
    ) -> Query | None:
        if self._by_number:
            return ParcelNumber(*parcel.key)
        near = [outlines[index] for index in tree.query(parcel.outline).tolist()]
        rest = shapely.difference(parcel.outline, shapely.union_all(near))
        rest = rest.buffer(-ROUNDING_METRES / METRES_PER_DEGREE)
        if rest.is_empty:
            return None
        return interior_point(max(shapely.get_parts(rest).tolist(), key=shapely.area))

    def _hand_over(self) -> None:
        """Record what is known in the planner, except for what is not reliable any more."""
        self._handed_over = True
        for one in self._known.values():
            if one.fresh:
                self.planner.record(one.point, Parcel(one.key, one.outline))
        for query, parcel in self._responses.items():
            self.planner.record(query, parcel)
        changed = self._changed_outlines()
        near = NEAR_METRES / METRES_PER_DEGREE
        points = [q for q in self._empty if isinstance(q, Point) and q not in self._responses]
        places = shapely.points(np.array([(one.lon, one.lat) for one in points]).reshape(-1, 2))
        unreliable = set(STRtree(changed).query(places, "dwithin", near)[0].tolist())
        for index, point in enumerate(points):
            if index not in unreliable:
                self.planner.record(point, None)
        for query in self._empty:
            if isinstance(query, ParcelNumber) and query not in self._responses:
                self.planner.record(query, None)

    def _changed_outlines(self) -> list[Geometry]:
        """Return the outlines, old and new, of everything that has changed."""
        found: list[Geometry] = []
        for query, parcel in self._responses.items():
            unchanged = self._is_unchanged(parcel)
            if parcel is not None and parcel.geometry is not None and not unchanged:
                found.append(parcel.geometry)
            found += [
                self._known[key].outline
                for key in self._expected[query]
                if not (unchanged and parcel is not None and parcel.key == key)
            ]
        return found


def _sample_points(empty: Sequence[Query]) -> list[Query]:
    """Return an even selection of the points that were empty."""
    points = [one for one in empty if isinstance(one, Point)]
    wanted = max(MIN_EMPTY, len(points) // EMPTY_SHARE)
    step = max(1, len(points) // wanted) if points else 1
    return list(points[::step])
