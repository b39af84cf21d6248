"""The numbers of parcels as a guide: which are missing, and where their parcels would lie.

The parcels of a block (ada) are numbered from one without gaps, so a number that is missing below
the last belongs to a parcel that was not found, or to one since divided or merged. Numbers run from
neighbour to neighbour: a missing parcel lies next to those before and after it.
"""

import bisect
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import shapely
from numpy.typing import NDArray

from hasat.sources.tkgm.geometry import Outline
from hasat.sources.tkgm.registry.wire import ParcelKey, ParcelNumber

Block = tuple[int, str]
Tile = tuple[int, int]
Number = tuple[Block, int]
Vector = NDArray[np.float64]

# A hole is likelier the nearer the next known number: one away, two away, further; "next" is the
# number after the last known one.
HOLE_CLASSES = ("between", "near", "amid", "next")
START_RATES = {"between": (4.5, 6.0), "near": (4.2, 6.0), "amid": (3.6, 6.0), "next": (2.0, 6.0)}
# Numbers further apart than this are two series rather than one with holes.
MAX_HOLE = 200
# A block with this many misses in a row is skipped: it was renumbered or lies elsewhere.
MAX_MISSES = 4
# Outlines are rounded to about a metre, so neighbours may seem apart by this much.
TOUCH_METRES = 1.5
# The likelihood falls with the distance from a neighbour in number, by this share of a parcel.
REACH = 0.5
MAX_STRETCH = 3.0
MIN_HINT = 0.05


class Run(NamedTuple):
    """The missing numbers between two known ones of a block; `low` is 0 if none is known below."""

    block: Block
    low: int
    high: int

    @property
    def numbers(self) -> range:
        return range(self.low + 1, self.high)


class Hints(NamedTuple):
    """For each gap the best run of missing numbers, if any.

    `one` is how near the gap lies to one of its neighbours, `both` to both, `empty` how many points
    beside it were empty.
    """

    one: Vector
    both: Vector
    empty: Vector
    runs: list[Run | None]


@dataclass
class _BlockNumbers:
    known: list[int] = field(default_factory=list)
    open: dict[int, str] = field(default_factory=dict)
    tried: set[int] = field(default_factory=set)
    misses: int = 0


class Numbering:
    """The known numbers of every block, and those missing.

    With `by_number` the missing numbers are queried themselves.
    """

    def __init__(self, by_number: bool = False) -> None:
        self.by_number = by_number
        self.count = 0
        """The known parcels that have a number."""
        self._blocks: dict[Block, _BlockNumbers] = {}
        self._open: dict[str, dict[Number, None]] = {c: {} for c in HOLE_CLASSES}
        self._rates = {name: list(start) for name, start in START_RATES.items()}
        self._grounds: dict[Number, Outline] = {}
        self._tiles: dict[Number, tuple[Tile, ...]] = {}
        self._at: defaultdict[Tile, dict[Number, None]] = defaultdict(dict)
        self._empty: dict[Run, float] = {}

    def add(self, key: ParcelKey, ground: Outline, tiles: Iterable[Tile]) -> set[Tile]:
        """Add a known parcel that is near some tiles; return the tiles whose hints changed."""
        mahalle_id, ada, parsel = key
        if not parsel.isdecimal() or not 0 < int(parsel) < 10**9:
            return set()
        block, number = (mahalle_id, ada), int(parsel)
        entry = self._blocks.setdefault(block, _BlockNumbers())
        at = bisect.bisect(entry.known, number)
        last = entry.known[-1] if entry.known else 0
        adjacent = [entry.known[i] for i in (at - 1, at) if 0 <= i < len(entry.known)]
        entry.known.insert(at, number)
        self.count += 1
        self._grounds[block, number] = ground
        self._tiles[block, number] = tuple(tiles)
        for tile in self._tiles[block, number]:
            self._at[tile][block, number] = None
        if number > last:
            if number - last <= MAX_HOLE:
                for hole in range(last + 1, number):
                    self._sort(block, entry, hole)
            if self.by_number:
                self._sort(block, entry, number + 1)
        for near in range(number - 2, number + 3):
            if near in entry.open or near == number:
                self._sort(block, entry, near)
        changed: set[Tile] = set()
        for neighbour in adjacent:
            changed.update(self._tiles.get((block, neighbour), ()))
            self._forget_if_settled(block, neighbour)
        self._forget_if_settled(block, number)
        return changed

    def hints(self, tile: Tile, places: Vector, radii: Sequence[float], scale: float) -> Hints:
        """Return hints for gaps in a tile, of which places and radii are given in metres."""
        count = len(places)
        hints = Hints(np.zeros(count), np.zeros(count), np.zeros(count), [None] * count)
        near = list(self._at.get(tile, ()))
        if not near or not count:
            return hints
        spots: NDArray[np.object_] = np.array(shapely.points(places)).reshape(-1, 1)
        grounds = np.array([[self._grounds[number] for number in near]])
        away = shapely.distance(spots, grounds)
        away = np.maximum(away - np.array(radii)[:, None] - TOUCH_METRES, 0.0) / (REACH * scale)
        index = {number: i for i, number in enumerate(near)}
        best = np.full(count, MIN_HINT)
        for run in {run: None for number in near for run in self._runs_beside(*number)}:
            stretch = min(math.sqrt(len(run.numbers)), MAX_STRETCH)
            sides = [
                np.exp(-away[:, index[run.block, end]] / stretch)
                for end in (run.low, run.high)
                if (run.block, end) in index
            ]
            one = np.maximum.reduce(sides)
            both = one * np.minimum.reduce(sides) if len(sides) == 2 else np.zeros(count)
            empty = self._empty.get(run, 0.0)
            merit = (one + both) / (1.0 + empty / 2.0)
            for i in np.flatnonzero(merit > best).tolist():
                best[i] = merit[i]
                hints.one[i], hints.both[i], hints.empty[i] = one[i], both[i], empty
                hints.runs[i] = run
        return hints

    def missed(self, run: Run) -> None:
        """Note that a point next to the neighbours of missing numbers was empty."""
        self._empty[run] = self._empty.get(run, 0.0) + 1.0

    def runs(self) -> list[Run]:
        """Return the runs of missing numbers of all blocks."""
        return [
            run
            for block, entry in self._blocks.items()
            for number in entry.known
            if (run := self._run_below(block, entry, number)) is not None
        ]

    def ground_of(self, block: Block, number: int) -> Outline | None:
        """Return the ground of a known neighbour of missing numbers."""
        return self._grounds.get((block, number))

    def missing(self, run: Run) -> list[int]:
        """Return the numbers of a run that were not queried themselves."""
        tried = self._blocks[run.block].tried
        return [number for number in run.numbers if number not in tried]

    def take_best(self, above: float) -> ParcelNumber | None:
        """Return the likeliest number not yet queried, if its chance is better than `above`."""
        rated = sorted(
            ((hits / trials, name) for name, (hits, trials) in self._rates.items()), reverse=True
        )
        for chance, name in rated:
            if chance <= above or not self.by_number:
                break
            for block, number in self._open[name]:
                entry = self._blocks[block]
                self._close(block, entry, number)
                if entry.misses < MAX_MISSES:
                    entry.tried.add(number)
                    return ParcelNumber(block[0], block[1], str(number))
                self._close_all(block, entry)
                return self.take_best(above)
        return None

    def class_of(self, query: ParcelNumber) -> str:
        """Return how a number relates to the known ones."""
        entry = self._blocks.get((query.mahalle_id, query.ada), _BlockNumbers())
        return _classify(entry, int(query.parsel))

    def learn(self, query: ParcelNumber, name: str, hit: bool) -> None:
        """Add the response to a query by number."""
        self._rates[name][0] += hit
        self._rates[name][1] += 1
        entry = self._blocks.get((query.mahalle_id, query.ada))
        if entry is not None:
            entry.tried.add(int(query.parsel))
            entry.misses = 0 if hit else entry.misses + 1

    def is_complete(self, block: Block) -> bool:
        """Return whether no number of the block is left to be found."""
        entry = self._blocks.get(block)
        return entry is not None and not entry.open

    def _runs_beside(self, block: Block, number: int) -> list[Run]:
        entry = self._blocks[block]
        at = bisect.bisect(entry.known, number)
        after = entry.known[at] if at < len(entry.known) else 0
        both = (self._run_below(block, entry, n) for n in (number, after))
        return [run for run in both if run is not None]

    def _run_below(self, block: Block, entry: _BlockNumbers, number: int) -> Run | None:
        """Return the run that ends below a known number, if a number of it may still be found."""
        at = bisect.bisect_left(entry.known, number)
        low = entry.known[at - 1] if at > 0 else 0
        if not 1 < number - low <= MAX_HOLE:
            return None
        run = Run(block, low, number)
        return run if any(n not in entry.tried for n in run.numbers) else None

    def _forget_if_settled(self, block: Block, number: int) -> None:
        """Drop the ground of a parcel that is no neighbour of a missing number."""
        entry = self._blocks[block]
        if number != entry.known[-1] and not self._runs_beside(block, number):
            self._grounds.pop((block, number), None)
            for tile in self._tiles.pop((block, number), ()):
                self._at[tile].pop((block, number), None)

    def _sort(self, block: Block, entry: _BlockNumbers, number: int) -> None:
        self._close(block, entry, number)
        at = bisect.bisect_left(entry.known, number)
        is_known = at < len(entry.known) and entry.known[at] == number
        if number > 0 and not is_known and number not in entry.tried:
            name = _classify(entry, number)
            entry.open[number] = name
            self._open[name][(block, number)] = None

    def _close(self, block: Block, entry: _BlockNumbers, number: int) -> None:
        name = entry.open.pop(number, None)
        if name is not None:
            self._open[name].pop((block, number), None)

    def _close_all(self, block: Block, entry: _BlockNumbers) -> None:
        for number in list(entry.open):
            self._close(block, entry, number)


def _classify(entry: _BlockNumbers, number: int) -> str:
    if number > (entry.known[-1] if entry.known else 0):
        return "next"
    near = set(entry.known[_window(entry.known, number)])
    if {number - 1, number + 1} <= near:
        return "between"
    if {number - 2, number - 1, number + 1, number + 2} & near:
        return "near"
    return "amid"


def _window(known: Sequence[int], number: int) -> slice:
    return slice(bisect.bisect_left(known, number - 2), bisect.bisect_right(known, number + 2))
