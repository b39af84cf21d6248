"""A scan of ground that is known in part: first whether it still is so, then the rest.

Every parcel known is asked about once, at a point inside of it; of the points that were empty, a
few. Then the planner is told all of it and goes on where parcels are likeliest to hide. Near ground
that has changed, empty points of the past count for nothing: there it plans as for the first time.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import shapely
from shapely import Geometry, STRtree

from hasat.sources.tkgm.geometry import METRES_PER_DEGREE
from hasat.sources.tkgm.registry.wire import (
    Answer,
    Empty,
    Number,
    Parcel,
    ParcelKey,
    Point,
    Question,
)
from hasat.sources.tkgm.scan.planner import Planner
from hasat.sources.tkgm.scan.scan_request import Forecast

# Of the points that were empty, one in so many is asked about again, and at least so many.
EMPTY_SHARE = 20
EMPTY_LEAST = 20
# Empty points nearer than this to ground that has changed are not believed any longer.
NEAR_METRES = 60.0
# Outlines are rounded to about a metre: what is narrower is no ground of its own.
ROUNDING_METRES = 0.75


@dataclass(frozen=True)
class KnownParcel:
    """A parcel known when a scan begins, and the point at which to ask whether it is still there.

    `fresh` ones are taken as they are.
    """

    parcel: Parcel
    question: Point
    fresh: bool


class Checking:
    """Asks about what is known first, then lets the planner go on from there.

    Like the planner, a pure function of the calls made to it.
    """

    def __init__(
        self,
        planner: Planner,
        parcels: Sequence[KnownParcel],
        empty: Sequence[Question],
        *,
        batch: int = 20,
        by_number: bool = False,
    ) -> None:
        self.planner = planner
        self._batch = batch
        self._by_number = by_number
        self._known = {one.parcel.key: one for one in parcels}
        self._empty = list(empty)
        # What each question should be answered with; nothing where there was no parcel.
        self._expected: dict[Question, list[ParcelKey]] = {}
        for one in parcels:
            if not one.fresh:
                self._expected.setdefault(one.question, []).append(one.parcel.key)
        self._expected |= {one: [] for one in _some(self._empty)}
        self._queue: deque[Question] = deque(self._expected)
        self._told: dict[Question, Answer] = {}
        self._asked_again = False
        self._handed_over = False

    @property
    def checks(self) -> int:
        """How many questions there are about what is known."""
        return len(self._expected)

    @property
    def checking(self) -> bool:
        """True until the planner knows everything that is known."""
        return not self._handed_over

    def next_batch(self) -> list[Question]:
        """The planner's sample, if it takes one; what is known; then what the planner asks."""
        if self._handed_over or self.planner.has_sample:
            return self.planner.next_batch()
        if self.planner.sampling:
            return []
        if not self._queue and len(self._told) == len(self._expected):
            if not self._asked_again:
                self._asked_again = True
                self._ask_again()
            if not self._queue:
                self._hand_over()
                return self.planner.next_batch()
        return [self._queue.popleft() for _ in range(min(self._batch, len(self._queue)))]

    def tell(self, question: Question, answer: Answer) -> None:
        """Takes in an answer."""
        if self._handed_over or question not in self._expected:
            self.planner.tell(question, answer)
        else:
            self._told[question] = answer

    def pass_over(self, question: Question) -> None:
        """Goes on as if what is known were still there, where nobody can say."""
        expected = [] if self._handed_over else self._expected.get(question, [])
        if expected:
            self.tell(question, self._known[expected[0]].parcel)
        else:
            self.tell(question, Empty())

    def forecast(self) -> Forecast | None:
        """What the scan will cost: one question for each thing to look at again, then the rest."""
        if (sampled := self.planner.forecast()) is not None:
            return sampled
        if self.planner.sampling:
            return None
        parcels = float(len(self._known))
        rest = self.planner.audit_of(len(self._known))
        least = len(self._expected) + rest
        return Forecast(parcels, parcels, parcels, least, least + len(self._known))

    def gone(self) -> list[Parcel]:
        """Parcels known before whose ground is now told to be something else.

        One that is merely not met, while everything around it is as before, is not gone.
        """
        met = {one.key for one in self._told.values() if isinstance(one, Parcel)}
        return [
            self._known[key].parcel
            for question, answer in self._told.items()
            if not self._is_as_before(answer)
            for key in self._expected[question]
            if key not in met
        ]

    def _is_as_before(self, answer: Answer) -> bool:
        """Whether an answer is a parcel known before, unchanged."""
        if not isinstance(answer, Parcel):
            return False
        known = self._known.get(answer.key)
        return known is not None and same_ground(known.parcel.geometry, answer.geometry)

    def _ask_again(self) -> None:
        """About parcels that were not met: by number, or where nothing else is told to lie."""
        met = [one for one in self._told.values() if isinstance(one, Parcel)]
        keys = {one.key for one in met}
        tree = STRtree([one.geometry for one in met])
        for one in self._known.values():
            if one.fresh or one.parcel.key in keys:
                continue
            question = self._second(one.parcel, met, tree)
            if question is not None and question not in self._expected:
                self._expected[question] = []
                self._queue.append(question)

    def _second(self, parcel: Parcel, met: Sequence[Parcel], tree: STRtree) -> Question | None:
        if self._by_number:
            return Number(*parcel.key)
        near = tree.query(parcel.geometry)
        rest = shapely.difference(
            parcel.geometry, shapely.union_all([met[index].geometry for index in near.tolist()])
        )
        rest = rest.buffer(-ROUNDING_METRES / METRES_PER_DEGREE)
        return None if rest.is_empty else inside_point(max(_parts(rest), key=shapely.area))

    def _hand_over(self) -> None:
        """Tells the planner what is known, and leaves out what cannot be relied on."""
        self._handed_over = True
        for one in self._known.values():
            if one.fresh:
                self.planner.tell(one.question, one.parcel)
        for question, answer in self._told.items():
            self.planner.tell(question, answer)
        changed = self._changed_ground()
        near = NEAR_METRES / METRES_PER_DEGREE
        points = [q for q in self._empty if isinstance(q, Point) and q not in self._told]
        places = shapely.points(np.array([(one.lon, one.lat) for one in points]).reshape(-1, 2))
        doubtful = set(STRtree(changed).query(places, "dwithin", near)[0].tolist())
        for index, point in enumerate(points):
            if index not in doubtful:
                self.planner.tell(point, Empty())
        for question in self._empty:
            if isinstance(question, Number) and question not in self._told:
                self.planner.tell(question, Empty())

    def _changed_ground(self) -> list[Geometry]:
        """Grounds, old and new, of everything that is not as before."""
        found: list[Geometry] = []
        for question, answer in self._told.items():
            as_before = self._is_as_before(answer)
            if isinstance(answer, Parcel) and not as_before:
                found.append(answer.geometry)
            found += [
                self._known[key].parcel.geometry
                for key in self._expected[question]
                if not (as_before and isinstance(answer, Parcel) and answer.key == key)
            ]
        return found


def inside_point(ground: Geometry) -> Point:
    """A point of the ground, in the middle of it where it is wide."""
    lon, lat = shapely.get_coordinates(shapely.point_on_surface(ground))[0].tolist()
    return Point(round(lat, 7), round(lon, 7))


def same_ground(one: Geometry, other: Geometry) -> bool:
    """Whether two outlines are the same but for where they begin."""
    return bool(shapely.equals(one, other))


def _some(empty: Sequence[Question]) -> list[Question]:
    """An even selection of the points that were empty."""
    points = [one for one in empty if isinstance(one, Point)]
    wanted = max(EMPTY_LEAST, len(points) // EMPTY_SHARE)
    step = max(1, len(points) // wanted) if points else 1
    return list(points[::step])


def _parts(ground: Geometry) -> list[Geometry]:
    found: list[Geometry] = shapely.get_parts(ground).tolist()
    return found
