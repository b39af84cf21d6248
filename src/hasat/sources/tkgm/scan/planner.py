"""Plans a scan: which points and numbers to ask so that all parcels of an area are found.

Every gap in the known ground has a chance of holding a parcel. The likeliest gaps are asked about
first, answers move the chances of all the others, and the scan is complete when the gaps that are
left hold, all chances added up, no more parcels than the quality allows to miss.

A planner is a pure function of the calls made to it: the same calls in the same order ask the same
questions. Nothing here reads a clock, a file or a network.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import shapely
from numpy.typing import NDArray
from shapely import MultiPolygon, Polygon

from hasat.sources.tkgm.geometry import Plane
from hasat.sources.tkgm.registry.wire import (
    Answer,
    Empty,
    Number,
    Parcel,
    ParcelKey,
    Point,
    Question,
)
from hasat.sources.tkgm.scan.gaps import OPEN, TILE
from hasat.sources.tkgm.scan.likelihood import Odds, Vector
from hasat.sources.tkgm.scan.numbering import Numbering
from hasat.sources.tkgm.scan.scan_request import (
    AIMS,
    COST_SPREAD,
    OPEN_COST,
    ROADS,
    Estimate,
    Forecast,
    Quality,
    Unknown,
)
from hasat.sources.tkgm.scan.terrain import FIRST_SCALE, Terrain

# The first questions go to random points, one for each so much ground: they tell what the scan will
# cost.
SAMPLE = 60
SAMPLE_SQUARE_METRES = 5000.0
# Parcels below this are found by the way, not looked for.
SMALL_SQUARE_METRES = 60.0
# So many changed tiles are looked at anew in one call: those that matter most, and besides some
# that changed long ago and are not likely to be asked about soon.
LOOKS = 24
CATCH_UP = 6
# A gap likelier than this is as good as any other such; the widest goes first.
LIKELY = 0.6
# Gaps less likely than this are not shown as unknown.
DOUBT = 0.01
# Before a scan counts as complete, random gaps among those left are asked about, this share of
# the parcels found; the model is not believed before so many in a row were rightly left.
AUDIT_SHARE = 0.025
AUDIT_LEAST = 20
# Below so many parcels expected in all that is left, a small area is complete at any quality.
NEGLIGIBLE = 0.1
# Parts of an area nowhere wider than twice this hold no gap that would be asked about: they are
# widened by it.
NARROW_METRES = 3.0


@dataclass(frozen=True)
class _Asked:
    """What is remembered of a question in flight."""

    column: int
    row: int
    spacing: float
    features: Vector | None
    number_class: str | None = None
    sampled: bool = False
    open: bool = False


class Planner:
    """Asks for all parcels of an area in degrees; see the module for how.

    Answers may come in any order and after further calls of `next_batch`. A question that failed
    is asked again by the caller, or given back with `forget`.
    """

    def __init__(
        self,
        area: Polygon | MultiPolygon,
        quality: Quality = "standard",
        batch: int = 20,
        by_number: bool = False,
        learnt: Sequence[float] | None = None,
    ) -> None:
        """`learnt` are the `weights` of an earlier scan of the area; no sample is taken then."""
        self._aim = AIMS[quality]
        self._batch = batch
        self._plane = Plane.around([area])
        self._odds = Odds(learnt)
        self._numbering = Numbering() if by_number else None
        ground = _widened(self._plane.to_metres(area))
        self._terrain = Terrain(ground, self._aim.smallest_gap, self._odds, self._numbering)
        self._coverage, self._shelf = self._terrain.coverage, self._terrain.shelf
        self._known: set[ParcelKey] = set()
        self._counted = 0
        self._pending: dict[Question, _Asked] = {}
        self._sampled: list[float] = []
        self._audited = 0
        self._done = False
        self._sample = self._random_places() if learnt is None else []
        self._sample_size = len(self._sample)

    @property
    def complete(self) -> bool:
        """True when the last call of `next_batch` found nothing to ask and nothing is in flight."""
        return self._done and not self._pending

    @property
    def sampling(self) -> bool:
        """True while the random sample, which comes first, is not answered whole."""
        return len(self._sampled) < self._sample_size

    @property
    def has_sample(self) -> bool:
        """True while places of the sample are still to be asked about."""
        return bool(self._sample)

    @property
    def weights(self) -> list[float]:
        """What the scan has learnt about where parcels hide."""
        return [float(weight) for weight in self._odds.weights]

    def next_batch(self) -> list[Question]:
        """Up to `batch` questions; none when the area is complete as far as is known now.

        While answers are outstanding, none only means that nothing better is left to ask meanwhile.
        """
        if self._sample:
            return self._ask_sample()
        if self._odds.fit():
            self._shelf.weigh(self._odds.weights)
        self._terrain.catch_up(CATCH_UP)
        unseen = self._terrain.stale
        looks = LOOKS
        while True:
            shelf = self._shelf
            chance = shelf.chances[: shelf.top]
            enough = float(chance.sum()) <= max(self._aim.missing * self._counted, NEGLIGIBLE)
            order = self._order(chance)
            tiles = [shelf.tiles[slot] for slot in order.tolist()]
            stale = [tile for tile in tiles[: 2 * self._batch] if tile in unseen]
            if enough or not tiles:
                stale = list(unseen)
            fresh = not self._trusted() if enough else any(t not in unseen for t in tiles)
            if not stale or (looks <= 0 and fresh):
                break
            for tile in list(dict.fromkeys(stale))[: LOOKS // 2]:
                self._terrain.look(tile)
            looks -= LOOKS // 2
        if enough and not self._trusted():
            order, enough = self._random_slots(chance), False
            self._audited += len(order)
        questions = self._choose(order, chance, enough)
        self._done = not questions
        return questions

    def tell(self, question: Question, answer: Answer) -> None:
        """Takes in an answer, whenever and in whatever order it comes."""
        asked = self._pending.pop(question, None) or self._unplanned(question)
        self._done = False
        new = isinstance(answer, Parcel) and answer.key not in self._known
        counts = False
        if isinstance(answer, Parcel) and new:
            counts = self._take_in(answer)
        if isinstance(question, Number):
            if self._numbering is not None and asked.number_class is not None:
                self._numbering.learn(question, asked.number_class, counts)
            return
        if asked.sampled:
            self._sampled.append(self._share_of(answer))
        if asked.features is not None and (new or not isinstance(answer, Parcel)):
            self._odds.learn(asked.features, counts)
            if counts:
                self._audited = 0
        if self._coverage.window(asked.column, asked.row, 1, 1)[0, 0]:
            road = not isinstance(answer, Parcel)
            self._terrain.mark(asked.column, asked.row, road=road, in_the_open=asked.open)

    def pass_over(self, question: Question) -> None:
        """Goes on as if there were nothing, where nobody can say what there is."""
        self.tell(question, Empty())

    def forget(self, question: Question) -> None:
        """Gives a question back that will not be answered; its place may be asked again."""
        if self._pending.pop(question, None) and isinstance(question, Number) and self._numbering:
            self._numbering.reopen(question)

    def estimate(self) -> Estimate:
        """Parcels found and expected, known share of the ground, questions left: rough, but honest
        about how rough."""
        shelf = self._shelf
        alive = shelf.alive[: shelf.top]
        chance = shelf.chances[: shelf.top][alive]
        side = np.minimum(2 * shelf.radii[: shelf.top][alive], TILE) * self._coverage.cell
        fits = np.maximum(1.0, (side / self._terrain.scale) ** 2)
        missing = float((chance * fits).sum())
        spread = 2.0 * math.sqrt(float((chance * (1 - chance) * fits**2).sum()) + missing + 1.0)
        # While most is unknown, gaps tell less than the sample.
        few = missing > len(self._known) / 4 and self._counted < 10 * self._sample_size
        if self._sampled and not self.sampling and few:
            total = np.array(self._sampled)
            expected = max(float(total.mean()), float(len(self._known)))
            spread = 2.0 * float(total.std()) / math.sqrt(len(total)) + 1.0
        else:
            expected = len(self._known) + missing
        left = float((fits * (chance > self._aim.missing)).sum())
        return Estimate(
            found=len(self._known),
            expected=expected,
            low=max(float(len(self._known)), expected - spread),
            high=expected + spread,
            coverage=1.0 - self._coverage.unknown_cells / max(1, self._coverage.area_cells),
            questions_left=round(max(left, expected - len(self._known))),
        )

    def forecast(self) -> Forecast | None:
        """What the sample says about the whole; None without one."""
        if self.sampling or not self._sampled:
            return None
        held = np.array(self._sampled)
        seen = float(len(self._known))
        parcels = max(float(held.mean()), seen)
        spread = 2.0 * float(held.std()) / math.sqrt(len(held))
        # Nothing in n points still leaves room for what covers 3/n of the ground.
        high = max(parcels + spread, 3.0) if held.any() else 3.0 * self._open_share(1.0)
        cost = self._aim.usual_cost
        beside = self._open_share(float((held == 0.0).mean()) - ROADS)
        return Forecast(
            parcels=parcels,
            low=max(parcels - spread, seen),
            high=high,
            questions=round(cost * parcels + beside) + self._sample_size,
            most_questions=round(COST_SPREAD * (cost * high + beside)) + self._sample_size,
        )

    def _open_share(self, share: float) -> float:
        """About how many questions that share of the area takes if it holds no parcel."""
        ground = self._coverage.area_cells / TILE**2
        return max(0.0, share) * ground * OPEN_COST

    def unknown(self) -> list[Unknown]:
        """The gaps that may still hold a parcel, those that touch together, likeliest first."""
        shelf = self._shelf
        slots = np.flatnonzero(shelf.chances[: shelf.top] >= DOUBT)
        if not slots.size:
            return []
        cell = self._coverage.cell
        centres = (shelf.places[slots] + 0.5) * cell + [self._coverage.west, self._coverage.south]
        # Where ground is simply open, all of the tile is meant.
        is_open = shelf.radii[slots] >= OPEN
        reach = np.where(is_open, TILE / 2, shelf.radii[slots]) * cell
        places = shapely.points(centres)
        shapes = np.where(
            is_open,
            shapely.buffer(places, reach, cap_style="square"),
            shapely.buffer(places, reach),
        )
        grounds = shapely.get_parts(shapely.union_all(shapes))
        place, ground = shapely.STRtree(grounds).query(places, predicate="intersects")
        empty = np.ones(len(grounds))
        np.multiply.at(empty, ground, 1.0 - shelf.chances[slots][place])
        found = [
            Unknown(self._plane.to_degrees(one), float(1.0 - rest))
            for one, rest in zip(grounds.tolist(), empty.tolist(), strict=True)
        ]
        return sorted(found, key=lambda one: -one.chance)

    def _random_places(self) -> list[tuple[int, int]]:
        """Uniform places in the area, always the same for the same area."""
        dice = np.random.default_rng(self._coverage.area_cells)
        places: list[tuple[int, int]] = []
        ground = self._coverage.area_cells * self._coverage.cell**2
        wanted = min(SAMPLE, int(ground / SAMPLE_SQUARE_METRES))
        for _ in range(100 * wanted):
            column = int(dice.integers(self._coverage.columns))
            row = int(dice.integers(self._coverage.rows))
            if self._coverage.window(column, row, 1, 1)[0, 0]:
                places.append((column, row))
                if len(places) == wanted:
                    break
        return places

    def _ask_sample(self) -> list[Question]:
        asked: list[Question] = []
        while self._sample and len(asked) < self._batch:
            column, row = self._sample.pop()
            asked.append(self._point(column, row, FIRST_SCALE, None, OPEN))
        return asked

    def _order(self, chance: NDArray[np.float64]) -> NDArray[np.intp]:
        """The best slots, best first: likely ones by width, the rest by chance."""
        shelf = self._shelf
        likely = chance >= LIKELY
        merit = np.where(likely, 1 + shelf.radii[: shelf.top] + shelf.ranks[: shelf.top], chance)
        count = min(8 * self._batch + 4 * len(self._pending), shelf.top)
        best = np.argpartition(-merit, count - 1)[:count] if count else np.zeros(0, dtype=np.intp)
        best = best[merit[best] > 0.0]
        return best[np.argsort(-merit[best], kind="stable")]

    @staticmethod
    def audit_of(parcels: int) -> int:
        """How many questions in a row must find nothing before a scan counts as complete."""
        return max(AUDIT_LEAST, math.ceil(AUDIT_SHARE * parcels))

    def _trusted(self) -> bool:
        return self._audited >= self.audit_of(self._counted)

    def _random_slots(self, chance: NDArray[np.float64]) -> NDArray[np.intp]:
        """As many gaps of those left as fit in a batch, each as likely to be drawn as any other."""
        slots = np.flatnonzero(chance > 0.0)
        dice = np.random.default_rng(len(self._known) + self._audited)
        return dice.permutation(slots)[: self._batch]

    def _choose(
        self, order: NDArray[np.intp], chance: NDArray[np.float64], enough: bool
    ) -> list[Question]:
        shelf = self._shelf
        taken = [(asked.column, asked.row, asked.spacing) for asked in self._pending.values()]
        busy = np.array(taken, dtype=np.float64).reshape(-1, 3)
        questions: list[Question] = []
        for slot in order.tolist() if not enough else ():
            if len(questions) >= self._batch:
                break
            if shelf.tiles[slot] in self._terrain.stale:
                continue
            while len(questions) < self._batch and (by_number := self._number(float(chance[slot]))):
                questions.append(by_number)
            column, row = (int(v) for v in shelf.places[slot])
            spacing = max(float(shelf.spacing[slot]), float(shelf.radii[slot]))
            apart = np.abs(busy[:, 0] - column) + np.abs(busy[:, 1] - row)
            if (apart < 2 * np.maximum(spacing, busy[:, 2])).any():
                continue
            if len(questions) < self._batch:
                features = shelf.features[slot].copy()
                radius = float(shelf.radii[slot])
                questions.append(self._point(column, row, spacing, features, radius))
                busy = np.vstack([busy, (column, row, spacing)])
        while len(questions) < self._batch and (by_number := self._number(0.3)):
            questions.append(by_number)
        return questions

    def _point(
        self, column: int, row: int, spacing: float, features: Vector | None, radius: float
    ) -> Point:
        x, y = self._coverage.metres_of(column, row)
        scale = self._plane.scale
        lat = round(float(y / scale[1] + self._plane.lat), 7)
        question = Point(lat, round(float(x / scale[0] + self._plane.lon), 7))
        self._pending[question] = _Asked(
            column, row, spacing, features, sampled=features is None, open=radius >= OPEN
        )
        return question

    def _number(self, above: float) -> Number | None:
        best = self._numbering.best(above) if self._numbering is not None else None
        if best is None or self._numbering is None:
            return None
        # Far away from every place: a number keeps no point waiting.
        asked = _Asked(-(10**6), -(10**6), 0.0, None, self._numbering.class_of(best[0]))
        self._pending[best[0]] = asked
        return best[0]

    def _unplanned(self, question: Question) -> _Asked:
        """An answer to a question of an earlier planner, as in a scan that goes on."""
        if isinstance(question, Number):
            number_class = self._numbering.class_of(question) if self._numbering else None
            return _Asked(0, 0, 0.0, None, number_class)
        degrees = np.array([question.lon - self._plane.lon, question.lat - self._plane.lat])
        column, row = self._coverage.cells_of(degrees * self._plane.scale).tolist()
        around = self._coverage.window(column - OPEN, row - OPEN, 2 * OPEN + 1, 2 * OPEN + 1)
        return _Asked(column, row, 0.0, None, open=bool(around.all()))

    def _take_in(self, parcel: Parcel) -> bool:
        """Notes a new parcel; False if it is too small to be looked for."""
        self._known.add(parcel.key)
        ground = self._plane.to_metres(parcel.geometry)
        self._terrain.cover(ground, parcel.key[:2])
        if self._numbering is not None:
            self._numbering.know(parcel.key)
        counts = float(ground.area) >= SMALL_SQUARE_METRES
        self._counted += counts
        return counts

    def _share_of(self, answer: Answer) -> float:
        """How many parcels the area would hold if all were as large as this one."""
        if not isinstance(answer, Parcel):
            return 0.0
        ground = self._coverage.area_cells * self._coverage.cell**2
        return ground / max(float(self._plane.to_metres(answer.geometry).area), 1.0)


def _widened(area: Polygon | MultiPolygon) -> Polygon | MultiPolygon:
    """The area in metres; a corridor, or a spot, as wide as it must be to be asked about."""
    parts = shapely.get_parts(area)
    narrow = shapely.is_empty(shapely.buffer(parts, -NARROW_METRES))
    if not narrow.any():
        return area
    parts[narrow] = shapely.buffer(parts[narrow], NARROW_METRES)
    whole = shapely.union_all(parts)
    assert isinstance(whole, Polygon | MultiPolygon)
    return whole


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
