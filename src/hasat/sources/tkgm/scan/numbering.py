"""Missing parcel numbers: the parcels of a block (ada) are numbered from one without gaps.

Numbers of parcels since divided or merged are never found, and a block may reach beyond the area.
How often that happens is learnt from the responses.
"""

from dataclasses import dataclass, field

from hasat.sources.tkgm.registry.wire import ParcelKey, ParcelNumber

# A hole is likelier the nearer the next known number: one away, two away, further; "next" is the
# number after the last known one.
HOLE_CLASSES = ("between", "near", "amid", "next")
START_RATES = {"between": (4.5, 6.0), "near": (4.2, 6.0), "amid": (3.6, 6.0), "next": (2.0, 6.0)}
# Numbers further apart than this are two series rather than one with holes.
MAX_HOLE = 200
# A block with this many misses in a row is skipped: it was renumbered or lies elsewhere.
MAX_MISSES = 4

Block = tuple[int, str]


@dataclass
class _BlockNumbers:
    known: set[int] = field(default_factory=set)
    open: dict[int, str] = field(default_factory=dict)
    tried: set[int] = field(default_factory=set)
    misses: int = 0


class Numbering:
    """The known numbers of every block, and those worth a query."""

    def __init__(self) -> None:
        self._blocks: dict[Block, _BlockNumbers] = {}
        self._open: dict[str, dict[tuple[Block, int], None]] = {c: {} for c in HOLE_CLASSES}
        self._rates = {name: list(start) for name, start in START_RATES.items()}

    def add(self, key: ParcelKey) -> None:
        """Add a known parcel."""
        mahalle_id, ada, parsel = key
        if not parsel.isdecimal() or int(parsel) == 0:
            return
        block = (mahalle_id, ada)
        entry = self._blocks.setdefault(block, _BlockNumbers())
        number = int(parsel)
        last = max(entry.known, default=0)
        entry.known.add(number)
        if number > last:
            if number - last <= MAX_HOLE:
                for hole in range(last + 1, number):
                    self._sort(block, entry, hole)
            self._sort(block, entry, number + 1)
        for near in (number - 2, number - 1, number, number + 1, number + 2):
            if near in entry.open or near == number:
                self._sort(block, entry, near)

    def take_best(self, above: float) -> ParcelNumber | None:
        """Return the likeliest number not yet queried, if its chance is better than `above`."""
        rated = sorted(
            ((hits / trials, name) for name, (hits, trials) in self._rates.items()), reverse=True
        )
        for chance, name in rated:
            if chance <= above:
                break
            for block, number in self._open[name]:
                entry = self._blocks[block]
                self._close(block, entry, number)
                entry.tried.add(number)
                if entry.misses < MAX_MISSES:
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
        """Return whether every number up to the one after the last was queried or found."""
        entry = self._blocks.get(block)
        return entry is not None and not entry.open

    def _sort(self, block: Block, entry: _BlockNumbers, number: int) -> None:
        self._close(block, entry, number)
        if number > 0 and number not in entry.known and number not in entry.tried:
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
    if number > max(entry.known, default=0):
        return "next"
    if {number - 1, number + 1} <= entry.known:
        return "between"
    if {number - 2, number - 1, number + 1, number + 2} & entry.known:
        return "near"
    return "amid"
