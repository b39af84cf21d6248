"""Plan a scan: which points and numbers to query so that all parcels of an area are found.

Every gap in the known ground has a likelihood of holding a parcel. The likeliest gaps are queried
first, responses change the likelihoods of the others, and the scan is complete when the gaps that
are left hold, all likelihoods added up, no more parcels than the quality level allows to miss.

A planner is a pure function of the calls made to it: the same calls in the same order return the
same queries. Nothing here reads a clock, a file or a network.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import shapely
from numpy.typing import NDArray

from hasat.sources.tkgm.geometry import Outline, Plane
from hasat.sources.tkgm.registry.wire import Parcel, ParcelKey, ParcelNumber, Point, Query
from hasat.sources.tkgm.scan import Quality
from hasat.sources.tkgm.scan.audit import (
    MIN_POINTS,
    SMALL_SQUARE_METRES,
    Audit,
    Completeness,
    MissingNumbers,
    Proof,
)
from hasat.sources.tkgm.scan.candidates import FIRST_SCALE, Terrain, UnknownArea
from hasat.sources.tkgm.scan.coverage import OPEN, TILE
from hasat.sources.tkgm.scan.likelihood import LikelihoodModel, Vector
from hasat.sources.tkgm.scan.numbering import Numbering, Run
from hasat.sources.tkgm.scan.progress import QUALITY_LEVELS, Estimate, Forecast
from hasat.sources.tkgm.scan.statistics import Interval, estimate_parcels, multiply

# The first queries go to random points and forecast the cost: one per this many square metres, at
# most this many, or as many times the root of the area in square kilometres if that is more.
SAMPLE = 60
SAMPLE_SQUARE_METRES = 2500.0
SAMPLE_PER_KM = 20
MAX_SAMPLE = 240
# Stale tiles updated in one call: those that matter most, and some that changed long ago and are
# not likely to be queried soon.
MAX_UPDATES = 24
CATCH_UP_UPDATES = 6
# A number without a candidate of higher chance is queried down to this chance.
MIN_NUMBER_CHANCE = 0.3
# With fewer parcels than this expected in all gaps, a small area is complete at any quality.
NEGLIGIBLE = 0.1
# An audit may expect this many times the missing parcels that the quality allows: it is coarse.
AUDIT_TOLERANCE = 2.0
# Before its audit a scan queries gaps next to missing numbers, each run of numbers this often, as
# long as one in so many finds a parcel; a few may find none.
NUMBER_TRIES = 3
QUERIES_PER_NUMBER = 12
FIRST_NUMBER_QUERIES = 20
# From this share of the sample's estimate on, the gaps are a better basis than the sample.
RELY_ON_GAPS = 0.5
# Parts of an area narrower than twice this hold no gap, so they are widened by it.
NARROW_METRES = 3.0
# Ground without parcels is road up to this share; the rest is open and costs this many queries
# per tile.
ROAD_SHARE = 0.3
OPEN_TILE_QUERIES = 0.25
_GRID_METRES_PER_DEGREE = 111_000.0


class QueryPlanner(Protocol):
    """Decide which queries come next."""

    def next_batch(self) -> list[Query]: ...
    def record(self, query: Query, parcel: Parcel | None) -> None: ...
    def skip(self, query: Query) -> None: ...


@dataclass(frozen=True)
class _Pending:
    """A query without a response, and the gap it is for."""

    column: int
    row: int
    spacing: float = 0.0
    features: Vector | None = None
    number_class: str | None = None
    sampled: bool = False
    audit: Audit | None = None
    open: bool = False
    run: Run | None = None
    for_number: bool = False


class Planner:
    """Plan queries for all parcels of an area in degrees.

    Responses may be recorded in any order and after further calls of `next_batch`. The caller
    repeats a query that failed.
    """

    def __init__(
        self,
        area: Outline,
        quality: Quality = "standard",
        batch: int = 20,
        by_number: bool = False,
        weights: Sequence[float] | None = None,
    ) -> None:
        """`weights` are those of an earlier scan of the area; no sample is taken then."""
        self._level = QUALITY_LEVELS[quality]
        self._batch = batch
        self._plane = Plane.around([area])
        self._model = LikelihoodModel(weights)
        self._numbering = Numbering(by_number)
        ground = _widened(self._plane.to_metres(area))
        level = self._level
        self.terrain = Terrain(
            ground, level.smallest_gap, level.spacing, self._model, self._numbering
        )
        self._coverage, self._candidates = self.terrain.coverage, self.terrain.candidates
        self._known: set[ParcelKey] = set()
        self._counted = 0
        self._pending: dict[Query, _Pending] = {}
        self._sampled: list[float] = []
        self._audit: Audit | None = None
        self._audits = 0
        self._recorded = 0
        self._number_tries: Counter[Run] = Counter()
        self._number_hits = 0
        self._area = ground
        self._proof = Proof(self._numbering, ground)
        self._sample = self._random_places() if weights is None else []
        self._sample_size = len(self._sample)

    @property
    def is_sampling(self) -> bool:
        """True until all responses of the initial random sample are recorded."""
        return len(self._sampled) < self._sample_size

    @property
    def has_sample(self) -> bool:
        """True while points of the sample are still to be queried."""
        return bool(self._sample)

    @property
    def weights(self) -> list[float]:
        """The weights of the likelihood model."""
        return [float(weight) for weight in self._model.weights]

    def next_batch(self) -> list[Query]:
        """Return up to `batch` queries; none when the area is complete.

        While responses are outstanding, none only means that there is nothing useful to query
        until they arrive.
        """
        if self._sample:
            return self._take_sample()
        if self._audit is not None and not self._audit.is_done:
            # While an audit is going on, nothing else is queried.
            return self._take_audit()
        if self._model.fit():
            self._candidates.reweigh(self._model.weights)
        self.terrain.catch_up(CATCH_UP_UPDATES)
        unseen = self.terrain.stale
        updates = MAX_UPDATES
        while True:
            candidates = self._candidates
            chance = candidates.chances[: candidates.top]
            enough = float(chance.sum()) <= max(self._level.missing * self._counted, NEGLIGIBLE)
            order = candidates.best(8 * self._batch + 4 * len(self._pending))
            tiles = [candidates.tiles[slot] for slot in order.tolist()]
            stale = [tile for tile in tiles[: 2 * self._batch] if tile in unseen]
            if enough or not tiles:
                stale = list(unseen)
            fresh = not enough and any(t not in unseen for t in tiles)
            if not stale or (updates <= 0 and fresh):
                break
            for tile in list(dict.fromkeys(stale))[: MAX_UPDATES // 2]:
                self.terrain.update(tile)
            updates -= MAX_UPDATES // 2
        if not enough:
            return self._choose(order, chance)
        return self._search_numbers(chance) or self._take_audit()

    def record(self, query: Query, parcel: Parcel | None) -> None:
        """Record the response to a query; a parcel without geometry counts as none."""
        pending = self._pending.pop(query, None) or self._unplanned(query)
        self._recorded += 1
        outline = None if parcel is None else parcel.geometry
        new = counts = False
        if parcel is not None and outline is not None and parcel.key not in self._known:
            new, counts = True, self._add(parcel.key, outline)
        if isinstance(query, ParcelNumber):
            if pending.number_class is not None:
                self._numbering.learn(query, pending.number_class, counts)
            return
        if pending.run is not None and outline is None:
            self._numbering.missed(pending.run)
        self._number_hits += pending.for_number and counts
        if pending.sampled:
            self._sampled.append(self._size_of(outline))
        if pending.audit is not None:
            key = None if parcel is None else parcel.key
            pending.audit.record(key, new, self._size_of(outline))
        if pending.features is not None and (new or outline is None):
            self._model.learn(pending.features, counts)
        if self._coverage.window(pending.column, pending.row, 1, 1)[0, 0]:
            self.terrain.mark(
                pending.column, pending.row, road=outline is None, in_the_open=pending.open
            )

    def skip(self, query: Query) -> None:
        """Treat a query that cannot be answered as empty."""
        self.record(query, None)

    def estimate(self) -> Estimate:
        """Estimate parcels, coverage and queries left, with an interval for the parcels."""
        found = float(len(self._known))
        claim = self.completeness()
        missing, left = self._expected_missing()
        if claim is not None:
            most = claim.max_missing
            low, expected, high = found, found + min(missing, most), found + most
            left = 0.0
        else:
            low, expected, high = self._running_estimate(found, missing)
        return Estimate(
            found=len(self._known),
            expected=expected,
            low=low,
            high=high,
            coverage=1.0 - self._coverage.unknown_cells / max(1, self._coverage.area_cells),
            questions_left=round(max(left, expected - found)),
        )

    def _running_estimate(self, found: float, missing: float) -> tuple[float, float, float]:
        """Return the interval for the parcels of the area while the scan is going on."""
        sampled = self._sampled_parcels()
        if sampled is not None and found < RELY_ON_GAPS * sampled.expected:
            return max(found, sampled.low), sampled.expected, sampled.high
        numbers = sum(len(run.numbers) for run in self._numbering.runs())
        high = found + 2.0 * missing + 3.0 * math.sqrt(missing) + 3.0 + numbers
        low = found
        if sampled is not None and found < sampled.high:
            low, high = max(low, min(sampled.low, high)), max(low, min(high, sampled.high))
        return low, min(max(found + missing, low), high), high

    def completeness(self) -> Completeness | None:
        """Return what the scan can claim to have found; None before its audit."""
        audit = self._audit
        if audit is None or not audit.is_done:
            return None
        missing = max(self._expected_missing()[0], audit.missing)
        return self._proof.completeness(self._counted, missing, audit)

    def missing_numbers(self) -> list[MissingNumbers]:
        """Return the numbers never seen; their parcels were not found or do not exist any more."""
        return [
            MissingNumbers(one.block, one.numbers, self._plane.to_degrees(one.place))
            for one in self._proof.missing_numbers()
        ]

    def forecast(self) -> Forecast | None:
        """Forecast the scan from the sample; None without one."""
        sampled = self._sampled_parcels()
        if sampled is None:
            return None
        seen = float(len(self._known))
        parcels = max(sampled.expected, seen)
        empty = sum(not size for size in self._sampled) / len(self._sampled)
        extra = self._open_queries(empty - ROAD_SHARE) + self._sample_size
        level, low, high = self._level, max(sampled.low, seen), max(sampled.high, seen)
        # No parcel met leaves no more than one.
        counted = Interval(max(low, 1.0), math.sqrt(max(low, 1.0) * max(high, 1.0)), max(high, 1.0))
        spent = multiply(counted, Interval(level.least, level.queries, level.most))
        questions = level.queries * parcels + extra
        return Forecast(
            parcels=parcels,
            low=low,
            high=high,
            questions=round(questions),
            least_questions=round(min(max(spent.low, level.least * seen), questions)),
            most_questions=round(max(spent.high + 2.0 * extra, questions)),
        )

    def _sampled_parcels(self) -> Interval | None:
        if self.is_sampling or not self._sampled:
            return None
        return estimate_parcels(self._sampled, self._coverage.area_cells * self._coverage.cell**2)

    def _expected_missing(self) -> tuple[float, float]:
        """Return the parcels expected in all gaps, and the queries that these deserve."""
        candidates = self._candidates
        alive = candidates.alive[: candidates.top]
        chance = candidates.chances[: candidates.top][alive]
        side = np.minimum(2 * candidates.radii[: candidates.top][alive], TILE) * self._coverage.cell
        fits = np.maximum(1.0, (side / self.terrain.scale) ** 2)
        return float((chance * fits).sum()), float((fits * (chance > self._level.missing)).sum())

    def unknown_areas(self) -> list[UnknownArea]:
        """Return the areas that may still hold a parcel, likeliest first."""
        return self._candidates.unknown_areas(self._coverage, self._plane)

    def audit_size(self, parcels: int) -> int:
        """Return how many random points prove that a scan is complete."""
        return max(MIN_POINTS, math.ceil(self._level.audit * parcels))

    def _search_numbers(self, chance: NDArray[np.float64]) -> list[Query]:
        """Return points in gaps next to missing numbers, while such points find parcels.

        The model expects next to nothing there, but it learned from likelier gaps.
        """
        runs = self._candidates.runs
        found, tries = self._number_hits, self._number_tries
        allowed = FIRST_NUMBER_QUERIES + QUERIES_PER_NUMBER * found - tries.total()
        if self._numbering.by_number or allowed <= 0:
            return []
        best: dict[Run, int] = {}
        for slot in np.argsort(-chance, kind="stable").tolist():
            run = runs[slot]
            if run is not None and chance[slot] > 0.0 and tries[run] < NUMBER_TRIES:
                best.setdefault(run, slot)
        queries = self._choose(np.array(list(best.values())[:allowed], dtype=np.intp), chance)
        for query in queries:
            pending = self._pending[query] = replace(self._pending[query], for_number=True)
            assert pending.run is not None
            tries[pending.run] += 1
        return queries

    def _take_audit(self) -> list[Query]:
        """Return points of the audit; none while responses are outstanding, and at the end."""
        audit = self._audit
        if audit is None or (audit.is_done and not self._is_proved(audit)):
            if self._pending:
                return []
            self._audits += 1
            # A repeated scan must not draw the points of the last one.
            points, seed = self.audit_size(self._counted), self._recorded
            audit = self._audit = Audit.start(self._audits, self._coverage, points, seed)
        queries: list[Query] = []
        while audit.places and len(queries) < self._batch:
            x, y = audit.places.pop()
            queries.append(self._point(x, y, _Pending(*self._cell_of(x, y), audit=audit)))
        return queries

    def _is_proved(self, audit: Audit) -> bool:
        """Return whether an audit finds no more missing than the quality allows."""
        allowed = AUDIT_TOLERANCE * self._level.missing * self._counted
        return not audit.hits or audit.missing <= allowed

    def _open_queries(self, share: float) -> float:
        """Return about how many queries a share of the area takes if it holds no parcel."""
        tiles = self._coverage.area_cells / TILE**2
        return max(0.0, share) * tiles * OPEN_TILE_QUERIES

    def _random_places(self) -> list[tuple[float, float]]:
        """Return uniform places in the area, the same for the same area."""
        ground = self._coverage.area_cells * self._coverage.cell**2
        most = max(SAMPLE, min(MAX_SAMPLE, int(SAMPLE_PER_KM * math.sqrt(ground) / 1000.0)))
        wanted = min(most, int(ground / SAMPLE_SQUARE_METRES))
        return self._coverage.random_unknown(
            wanted, np.random.default_rng(self._coverage.area_cells)
        )

    def _take_sample(self) -> list[Query]:
        queries: list[Query] = []
        while self._sample and len(queries) < self._batch:
            x, y = self._sample.pop()
            place = _Pending(*self._cell_of(x, y), FIRST_SCALE, sampled=True, open=True)
            queries.append(self._point(x, y, place))
        return queries

    def _choose(self, order: NDArray[np.intp], chance: NDArray[np.float64]) -> list[Query]:
        """Return a batch from the ordered slots, far enough apart from each other."""
        candidates = self._candidates
        taken = [(one.column, one.row, one.spacing) for one in self._pending.values()]
        busy = np.array(taken, dtype=np.float64).reshape(-1, 3)
        queries: list[Query] = []
        for slot in order.tolist():
            if len(queries) >= self._batch:
                break
            if candidates.tiles[slot] in self.terrain.stale:
                continue
            while len(queries) < self._batch and (number := self._number(float(chance[slot]))):
                queries.append(number)
            column, row = (int(v) for v in candidates.places[slot])
            radius = float(candidates.radii[slot])
            spacing = max(float(candidates.spacing[slot]), radius)
            apart = np.abs(busy[:, 0] - column) + np.abs(busy[:, 1] - row)
            if (apart < 2 * np.maximum(spacing, busy[:, 2])).any():
                continue
            if len(queries) < self._batch:
                gap = _Pending(
                    column,
                    row,
                    spacing,
                    candidates.features[slot].copy(),
                    open=radius >= OPEN,
                    run=candidates.runs[slot],
                )
                queries.append(self._point(*self._coverage.metres_of(column, row), gap))
                busy = np.vstack([busy, (column, row, spacing)])
        while len(queries) < self._batch and (number := self._number(MIN_NUMBER_CHANCE)):
            queries.append(number)
        return queries

    def _point(self, x: float, y: float, pending: _Pending) -> Point:
        """Return the query for a point in metres, and remember what it is for."""
        scale = self._plane.scale
        lat = round(float(y / scale[1] + self._plane.lat), 7)
        lon = round(float(x / scale[0] + self._plane.lon), 7)
        while (query := Point(lat, lon)) in self._pending:
            # Random points may meet within the rounding.
            lon = round(lon + 1e-7, 7)
        self._pending[query] = pending
        return query

    def _cell_of(self, x: float, y: float) -> tuple[int, int]:
        column, row = self._coverage.cells_of(np.array([x, y])).tolist()
        return column, row

    def _number(self, above: float) -> ParcelNumber | None:
        if (best := self._numbering.take_best(above)) is None:
            return None
        # Far from every place, so that a pending number blocks no point.
        number_class = self._numbering.class_of(best)
        self._pending[best] = _Pending(-(10**6), -(10**6), number_class=number_class)
        return best

    def _unplanned(self, query: Query) -> _Pending:
        """Return the place of a query of an earlier planner, as in a scan that is resumed."""
        if isinstance(query, ParcelNumber):
            return _Pending(0, 0, number_class=self._numbering.class_of(query))
        degrees = np.array([query.lon - self._plane.lon, query.lat - self._plane.lat])
        column, row = self._coverage.cells_of(degrees * self._plane.scale).tolist()
        around = self._coverage.window(column - OPEN, row - OPEN, 2 * OPEN + 1, 2 * OPEN + 1)
        return _Pending(column, row, open=bool(around.all()))

    def _add(self, key: ParcelKey, outline: Outline) -> bool:
        """Add a new parcel; return False if it is too small to be searched for."""
        self._known.add(key)
        ground = self._plane.to_metres(outline)
        self.terrain.cover(ground, key)
        counts = float(ground.area) >= SMALL_SQUARE_METRES
        if counts:
            self._counted += 1
            self._proof.add(float(ground.area))
        return counts

    def _size_of(self, outline: Outline | None) -> float:
        """Return the square metres of a parcel inside the area; 0 for none."""
        if outline is None:
            return 0.0
        ground = shapely.make_valid(self._plane.to_metres(outline))
        # Of a parcel that hardly reaches into the area, a random point says nothing.
        least = min(float(ground.area), SMALL_SQUARE_METRES)
        return max(1.0, least, float(shapely.intersection(ground, self._area).area))


class GridPlanner:
    """Query every grid point of the area that no known parcel contains.

    Parcels narrower than the step are found only by chance.
    """

    def __init__(self, area: Outline, step: float, batch: int = 20) -> None:
        west, south, east, north = area.bounds
        self._batch = batch
        self._lats = np.arange(south, north, step / _GRID_METRES_PER_DEGREE)
        along = _GRID_METRES_PER_DEGREE * math.cos(math.radians((south + north) / 2))
        self._lons = np.arange(west, east, step / along)
        self._open = np.zeros((self._lats.size, self._lons.size), dtype=bool)
        self._mark(area, True)
        self._row = 0

    def next_batch(self) -> list[Query]:
        """Return the next points from south to north; none at the end of the grid."""
        queries: list[Query] = []
        while self._row < len(self._lats) and len(queries) < self._batch:
            columns = np.flatnonzero(self._open[self._row])[: self._batch - len(queries)]
            self._open[self._row, columns] = False
            lat = float(self._lats[self._row])
            queries += [Point(lat, float(self._lons[column])) for column in columns]
            if len(queries) < self._batch:
                self._row += 1
        return queries

    def record(self, query: Query, parcel: Parcel | None) -> None:
        """Remove the grid points that lie in a parcel."""
        if parcel is not None and parcel.geometry is not None:
            self._mark(parcel.geometry, False)

    def skip(self, query: Query) -> None:
        """Do nothing; the other points do not depend on this one."""

    def _mark(self, geometry: Outline, value: bool) -> None:
        shapely.prepare(geometry)
        west, south, east, north = geometry.bounds
        rows = slice(*np.searchsorted(self._lats, (south, north)))
        columns = slice(*np.searchsorted(self._lons, (west, east)))
        lons, lats = np.meshgrid(self._lons[columns], self._lats[rows])
        if lons.size:
            self._open[rows, columns][shapely.contains_xy(geometry, lons, lats)] = value


def _widened(area: Outline) -> Outline:
    """Return the area in metres, with corridors and spots widened so that they can be queried."""
    parts = shapely.get_parts(area)
    narrow = shapely.is_empty(shapely.buffer(parts, -NARROW_METRES))
    if not narrow.any():
        return area
    parts[narrow] = shapely.buffer(parts[narrow], NARROW_METRES)
    whole = shapely.union_all(parts)
    assert isinstance(whole, Outline)
    return whole
