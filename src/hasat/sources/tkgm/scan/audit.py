"""The proof of a scan: random points in the ground that is still unknown, and missing numbers.

Neither uses the likelihoods by which the scan decides what to query. The audit asks points that are
uniform in the unknown ground, so its result is unbiased and bounds the ground that parcels may
still hold. The numbers of a block have no gaps, so those never seen are parcels that were not
found, or that were since divided or merged.
"""

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import shapely

from hasat.sources.tkgm.geometry import Outline
from hasat.sources.tkgm.registry.wire import ParcelKey
from hasat.sources.tkgm.scan.coverage import Coverage
from hasat.sources.tkgm.scan.numbering import Block, Numbering, Run
from hasat.sources.tkgm.scan.statistics import CONFIDENCE, audit_error, binomial_upper

# Smaller parcels are recorded when found, but not searched for.
SMALL_SQUARE_METRES = 60.0
MIN_POINTS = 20
# More points than one for this many square metres prove no more.
SQUARE_METRES_PER_POINT = 20.0
# The parcels found last resemble those still missing: this many.
LATEST = 60
# A missing number is shown as the ground this far around the way between its neighbours.
PLACE_METRES = 5.0
# A parcel with less of its ground inside may have its neighbours in number outside.
INSIDE = 0.9


@dataclass(frozen=True)
class MissingNumbers:
    """Numbers of a block that were never seen, and the place between their neighbours."""

    block: Block
    numbers: tuple[int, ...]
    place: Outline

    @property
    def text(self) -> str:
        """The block and its numbers, as in 101/3, 7-9."""
        return f"{self.block[1]}/{', '.join(_ranges(self.numbers))}"


@dataclass(frozen=True)
class Completeness:
    """The claim of a complete scan about parcels of `smallest` square metres and more.

    `share` was found, with `confidence` at least `low`. `audited` bounds it by the audit alone and
    `numbered` by the missing numbers alone; None where there is no such evidence. `max_missing`
    also counts smaller parcels: those that the audit allows and those with a missing number.
    """

    share: float
    low: float
    high: float
    confidence: float
    smallest: float
    audited: float | None
    numbered: float | None
    max_missing: float
    points: int
    hits: int
    unknown_square_metres: float
    missing_numbers: int
    blocks: int


@dataclass
class Audit:
    """Points that are uniform in the ground unknown at its start."""

    number: int
    places: list[tuple[float, float]]
    square_metres: float
    points: int = 0
    hits: list[float] = field(default_factory=list)
    new: set[ParcelKey] = field(default_factory=set)
    _size: int = 0

    @classmethod
    def start(cls, number: int, coverage: Coverage, points: int, seed: int) -> "Audit":
        """Draw the points, the same for the same coverage and seed."""
        ground = coverage.unknown_cells * coverage.cell**2
        wanted = min(points, int(ground / SQUARE_METRES_PER_POINT))
        dice = np.random.default_rng([coverage.unknown_cells, number, seed])
        places = coverage.random_unknown(wanted, dice)
        return cls(number, places, ground, _size=len(places))

    @property
    def is_done(self) -> bool:
        return self.points >= self._size

    def record(self, key: ParcelKey | None, is_new: bool, size: float) -> None:
        """Record the parcel at a point; it counts if it was unknown at the start."""
        self.points += 1
        if key is not None and is_new:
            self.new.add(key)
        if key in self.new and size >= SMALL_SQUARE_METRES:
            self.hits.append(size)

    @property
    def missing(self) -> float:
        """The expected number of parcels in the ground that is still unknown."""
        if not self.points:
            return 0.0
        each = sum(self.square_metres / size for size in self.hits) / self.points
        return max(0.0, each - len(self.hits))

    @property
    def max_square_metres(self) -> float:
        """The most ground that parcels not found may hold."""
        if not self.points:
            return self.square_metres
        share = binomial_upper(len(self.hits), self.points, audit_error(self.number))
        return share * self.square_metres


class Proof:
    """Collects what bounds the number of parcels not found."""

    def __init__(self, numbering: Numbering, area: Outline) -> None:
        self._numbering = numbering
        self._area = area
        self._sizes: deque[float] = deque(maxlen=LATEST)
        shapely.prepare(area)

    def add(self, size: float) -> None:
        """Add the size of a parcel that was searched for and found."""
        self._sizes.append(size)

    def missing_numbers(self) -> list[MissingNumbers]:
        """Return the missing numbers, except those whose neighbours reach beyond the area."""
        found = []
        for run in self._numbering.runs():
            neighbours = self._neighbours(run)
            if neighbours and all(self._is_inside(ground) for ground in neighbours):
                numbers = tuple(self._numbering.missing(run))
                found.append(MissingNumbers(run.block, numbers, _between(neighbours)))
        return found

    def completeness(self, found: int, expected: float, audit: Audit | None) -> Completeness | None:
        """Return the claim for parcels found and others expected; None if nothing supports one."""
        if not found:
            return None
        missing = self.missing_numbers()
        numbers = sum(len(one.numbers) for one in missing)
        by_audit = None if audit is None else self._max_missing(audit)
        # More missing numbers than parcels: the numbers here have gaps, and prove nothing.
        by_number = float(numbers) if 0 < self._numbering.count >= numbers else None
        most = [one for one in (by_audit, by_number) if one is not None]
        if not most:
            return None
        return Completeness(
            share=found / (found + min(expected, max(most))),
            low=found / (found + max(most)),
            high=1.0,
            confidence=CONFIDENCE,
            smallest=SMALL_SQUARE_METRES,
            audited=None if by_audit is None else found / (found + by_audit),
            numbered=None if by_number is None else found / (found + by_number),
            max_missing=sum(most),
            points=0 if audit is None else audit.points,
            hits=0 if audit is None else len(audit.hits),
            unknown_square_metres=0.0 if audit is None else audit.square_metres,
            missing_numbers=numbers,
            blocks=len({one.block for one in missing}),
        )

    def _max_missing(self, audit: Audit) -> float:
        """Return the most parcels in the ground that the audit leaves open.

        They are taken to be of the sizes found last: the search finds the small ones last.
        """
        sizes = np.maximum(np.array(self._sizes or [SMALL_SQUARE_METRES]), SMALL_SQUARE_METRES)
        return audit.max_square_metres * float((1.0 / sizes).mean())

    def _neighbours(self, run: Run) -> tuple[Outline, ...]:
        ends = (self._numbering.ground_of(run.block, end) for end in (run.low, run.high))
        return tuple(ground for ground in ends if ground is not None)

    def _is_inside(self, ground: Outline) -> bool:
        if shapely.covers(self._area, ground):
            return True
        # A rounded outline may touch itself.
        inside = shapely.intersection(shapely.make_valid(ground), self._area)
        return float(inside.area) >= INSIDE * float(ground.area)


def _between(neighbours: tuple[Outline, ...]) -> Outline:
    """Return the ground around the shortest way between two parcels, or around one."""
    first, *other = neighbours
    way = shapely.shortest_line(first, other[0]) if other else shapely.boundary(first)
    place = shapely.buffer(way, PLACE_METRES, quad_segs=2)
    assert isinstance(place, Outline)
    return place


def _ranges(numbers: tuple[int, ...]) -> list[str]:
    """Return numbers as text, those in a row as a range."""
    rows: list[list[int]] = []
    for number in numbers:
        if rows and number == rows[-1][-1] + 1:
            rows[-1].append(number)
        else:
            rows.append([number])
    return [str(row[0]) if len(row) == 1 else f"{row[0]}-{row[-1]}" for row in rows]
