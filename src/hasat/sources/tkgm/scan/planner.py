"""Plan a scan: which points and numbers to query so that all parcels of an area are found.

Every gap in the known ground has a likelihood of holding a parcel. The likeliest gaps are queried
first, responses change the likelihoods of the others, and the scan is complete when the gaps that
are left hold, all likelihoods added up, no more parcels than the quality level allows to miss.

A planner is a pure function of the calls made to it: the same calls in the same order return the
same queries. Nothing here reads a clock, a file or a network.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import shapely
from numpy.typing import NDArray

from hasat.sources.tkgm.geometry import Outline, Plane
from hasat.sources.tkgm.registry.wire import Parcel, ParcelKey, ParcelNumber, Point, Query
from hasat.sources.tkgm.scan.candidates import UnknownArea
from hasat.sources.tkgm.scan.gaps import OPEN, TILE
from hasat.sources.tkgm.scan.likelihood import LikelihoodModel, Vector
from hasat.sources.tkgm.scan.numbering import Numbering
from hasat.sources.tkgm.scan.progress import Estimate, Forecast
from hasat.sources.tkgm.scan.scan_request import QUALITY_LEVELS, Quality
from hasat.sources.tkgm.scan.terrain import FIRST_SCALE, Terrain

# The first queries go to random points, one per this many square metres, and forecast the cost.
SAMPLE = 60
SAMPLE_SQUARE_METRES = 5000.0
# Smaller parcels are recorded when found, but not searched for.
SMALL_SQUARE_METRES = 60.0
# Stale tiles updated in one call: those that matter most, and some that changed long ago and are
# not likely to be queried soon.
MAX_UPDATES = 24
CATCH_UP_UPDATES = 6
# A number without a candidate of higher chance is queried down to this chance.
MIN_NUMBER_CHANCE = 0.3
# Before a scan is complete, random gaps among those left are queried, this share of the parcels
# found and at least this many; all in a row must be empty.
AUDIT_SHARE = 0.025
MIN_AUDIT = 20
# With fewer parcels than this expected in all gaps, a small area is complete at any quality.
NEGLIGIBLE = 0.1
# Parts of an area narrower than twice this hold no gap, so they are widened by it.
NARROW_METRES = 3.0
# Ground without parcels is road up to this share; the rest is open and costs this many queries
# per tile.
ROAD_SHARE = 0.3
OPEN_TILE_QUERIES = 0.25
# The factor by which the cost per parcel differs between cadastres.
COST_SPREAD = 1.4
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
    spacing: float
    features: Vector | None
    number_class: str | None = None
    sampled: bool = False
    open: bool = False


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
        self._numbering = Numbering() if by_number else None
        ground = _widened(self._plane.to_metres(area))
        self.terrain = Terrain(ground, self._level.smallest_gap, self._model, self._numbering)
        self._coverage, self._candidates = self.terrain.coverage, self.terrain.candidates
        self._known: set[ParcelKey] = set()
        self._counted = 0
        self._pending: dict[Query, _Pending] = {}
        self._sampled: list[float] = []
        self._audited = 0
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
            fresh = not self._is_audited() if enough else any(t not in unseen for t in tiles)
            if not stale or (updates <= 0 and fresh):
                break
            for tile in list(dict.fromkeys(stale))[: MAX_UPDATES // 2]:
                self.terrain.update(tile)
            updates -= MAX_UPDATES // 2
        if enough and not self._is_audited():
            order, enough = candidates.sample(self._batch, len(self._known) + self._audited), False
            self._audited += len(order)
        return self._choose(order, chance, enough)

    def record(self, query: Query, parcel: Parcel | None) -> None:
        """Record the response to a query; a parcel without geometry counts as none."""
        pending = self._pending.pop(query, None) or self._unplanned(query)
        outline = None if parcel is None else parcel.geometry
        new = counts = False
        if parcel is not None and outline is not None and parcel.key not in self._known:
            new, counts = True, self._add(parcel.key, outline)
        if isinstance(query, ParcelNumber):
            if self._numbering is not None and pending.number_class is not None:
                self._numbering.learn(query, pending.number_class, counts)
            return
        if pending.sampled:
            self._sampled.append(self._share_of(outline))
        if pending.features is not None and (new or outline is None):
            self._model.learn(pending.features, counts)
            if counts:
                self._audited = 0
        if self._coverage.window(pending.column, pending.row, 1, 1)[0, 0]:
            self.terrain.mark(
                pending.column, pending.row, road=outline is None, in_the_open=pending.open
            )

    def skip(self, query: Query) -> None:
        """Treat a query that cannot be answered as empty."""
        self.record(query, None)

    def estimate(self) -> Estimate:
        """Estimate parcels, coverage and queries left, with an interval for the parcels."""
        candidates = self._candidates
        alive = candidates.alive[: candidates.top]
        chance = candidates.chances[: candidates.top][alive]
        side = np.minimum(2 * candidates.radii[: candidates.top][alive], TILE) * self._coverage.cell
        fits = np.maximum(1.0, (side / self.terrain.scale) ** 2)
        missing = float((chance * fits).sum())
        spread = 2.0 * math.sqrt(float((chance * (1 - chance) * fits**2).sum()) + missing + 1.0)
        # While most of the area is unknown, the sample is a better basis than the gaps.
        few = missing > len(self._known) / 4 and self._counted < 10 * self._sample_size
        if self._sampled and not self.is_sampling and few:
            total = np.array(self._sampled)
            expected = max(float(total.mean()), float(len(self._known)))
            spread = 2.0 * float(total.std()) / math.sqrt(len(total)) + 1.0
        else:
            expected = len(self._known) + missing
        left = float((fits * (chance > self._level.missing)).sum())
        return Estimate(
            found=len(self._known),
            expected=expected,
            low=max(float(len(self._known)), expected - spread),
            high=expected + spread,
            coverage=1.0 - self._coverage.unknown_cells / max(1, self._coverage.area_cells),
            questions_left=round(max(left, expected - len(self._known))),
        )

    def forecast(self) -> Forecast | None:
        """Forecast the scan from the sample; None without one."""
        if self.is_sampling or not self._sampled:
            return None
        held = np.array(self._sampled)
        seen = float(len(self._known))
        parcels = max(float(held.mean()), seen)
        spread = 2.0 * float(held.std()) / math.sqrt(len(held))
        # No parcel in n points still allows parcels on 3/n of the area.
        high = max(parcels + spread, 3.0) if held.any() else 3.0 * self._open_queries(1.0)
        cost = self._level.queries_per_parcel
        extra = self._open_queries(float((held == 0.0).mean()) - ROAD_SHARE)
        return Forecast(
            parcels=parcels,
            low=max(parcels - spread, seen),
            high=high,
            questions=round(cost * parcels + extra) + self._sample_size,
            most_questions=round(COST_SPREAD * (cost * high + extra)) + self._sample_size,
        )

    def unknown_areas(self) -> list[UnknownArea]:
        """Return the areas that may still hold a parcel, likeliest first."""
        return self._candidates.unknown_areas(self._coverage, self._plane)

    @staticmethod
    def audit_size(parcels: int) -> int:
        """Return how many random queries in a row must be empty before a scan is complete."""
        return max(MIN_AUDIT, math.ceil(AUDIT_SHARE * parcels))

    def _is_audited(self) -> bool:
        return self._audited >= self.audit_size(self._counted)

    def _open_queries(self, share: float) -> float:
        """Return about how many queries a share of the area takes if it holds no parcel."""
        tiles = self._coverage.area_cells / TILE**2
        return max(0.0, share) * tiles * OPEN_TILE_QUERIES

    def _random_places(self) -> list[tuple[int, int]]:
        """Return uniform places in the area, the same for the same area."""
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

    def _take_sample(self) -> list[Query]:
        queries: list[Query] = []
        while self._sample and len(queries) < self._batch:
            column, row = self._sample.pop()
            queries.append(self._point(column, row, FIRST_SCALE, None, OPEN))
        return queries

    def _choose(
        self, order: NDArray[np.intp], chance: NDArray[np.float64], enough: bool
    ) -> list[Query]:
        """Return a batch from the ordered slots, far enough apart from each other."""
        candidates = self._candidates
        taken = [(one.column, one.row, one.spacing) for one in self._pending.values()]
        busy = np.array(taken, dtype=np.float64).reshape(-1, 3)
        queries: list[Query] = []
        for slot in order.tolist() if not enough else ():
            if len(queries) >= self._batch:
                break
            if candidates.tiles[slot] in self.terrain.stale:
                continue
            while len(queries) < self._batch and (number := self._number(float(chance[slot]))):
                queries.append(number)
            column, row = (int(v) for v in candidates.places[slot])
            spacing = max(float(candidates.spacing[slot]), float(candidates.radii[slot]))
            apart = np.abs(busy[:, 0] - column) + np.abs(busy[:, 1] - row)
            if (apart < 2 * np.maximum(spacing, busy[:, 2])).any():
                continue
            if len(queries) < self._batch:
                features = candidates.features[slot].copy()
                radius = float(candidates.radii[slot])
                queries.append(self._point(column, row, spacing, features, radius))
                busy = np.vstack([busy, (column, row, spacing)])
        while len(queries) < self._batch and (number := self._number(MIN_NUMBER_CHANCE)):
            queries.append(number)
        return queries

    def _point(
        self, column: int, row: int, spacing: float, features: Vector | None, radius: float
    ) -> Point:
        x, y = self._coverage.metres_of(column, row)
        scale = self._plane.scale
        lat = round(float(y / scale[1] + self._plane.lat), 7)
        query = Point(lat, round(float(x / scale[0] + self._plane.lon), 7))
        self._pending[query] = _Pending(
            column, row, spacing, features, sampled=features is None, open=radius >= OPEN
        )
        return query

    def _number(self, above: float) -> ParcelNumber | None:
        if self._numbering is None or (best := self._numbering.take_best(above)) is None:
            return None
        # Far from every place, so that a pending number blocks no point.
        number_class = self._numbering.class_of(best)
        self._pending[best] = _Pending(-(10**6), -(10**6), 0.0, None, number_class)
        return best

    def _unplanned(self, query: Query) -> _Pending:
        """Return the place of a query of an earlier planner, as in a scan that is resumed."""
        if isinstance(query, ParcelNumber):
            number_class = self._numbering.class_of(query) if self._numbering else None
            return _Pending(0, 0, 0.0, None, number_class)
        degrees = np.array([query.lon - self._plane.lon, query.lat - self._plane.lat])
        column, row = self._coverage.cells_of(degrees * self._plane.scale).tolist()
        around = self._coverage.window(column - OPEN, row - OPEN, 2 * OPEN + 1, 2 * OPEN + 1)
        return _Pending(column, row, 0.0, None, open=bool(around.all()))

    def _add(self, key: ParcelKey, outline: Outline) -> bool:
        """Add a new parcel; return False if it is too small to be searched for."""
        self._known.add(key)
        ground = self._plane.to_metres(outline)
        self.terrain.cover(ground, key[:2])
        if self._numbering is not None:
            self._numbering.add(key)
        counts = float(ground.area) >= SMALL_SQUARE_METRES
        self._counted += counts
        return counts

    def _share_of(self, outline: Outline | None) -> float:
        """Return how many parcels the area would hold if all were as large as this one."""
        if outline is None:
            return 0.0
        ground = self._coverage.area_cells * self._coverage.cell**2
        return ground / max(float(self._plane.to_metres(outline).area), 1.0)


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
