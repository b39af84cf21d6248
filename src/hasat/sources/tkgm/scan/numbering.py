"""Which parcel numbers are missing: parcels of a block (ada) are numbered from one without gaps.

Numbers of parcels since divided or merged are never found, and a block may reach beyond the area;
how often that is so is learnt from the answers.
"""

from dataclasses import dataclass, field

from hasat.sources.tkgm.registry.wire import Number, ParcelKey

# A hole is as good as its nearest known number is near: next to it, two away, further; "next" is
# the number after the last known one.
HOLE_CLASSES = ("beside", "near", "amid", "next")
START_RATES = {"beside": (4.5, 6.0), "near": (4.2, 6.0), "amid": (3.6, 6.0), "next": (2.0, 6.0)}
# Numbers further apart than this are two series rather than one with holes.
LONGEST_HOLE = 200
# A block with this many misses in a row is left alone: it was renumbered or lies elsewhere.
MISSES = 4

Block = tuple[int, str]


@dataclass
class _Ada:
    known: set[int] = field(default_factory=set)
    open: dict[int, str] = field(default_factory=dict)
    tried: set[int] = field(default_factory=set)
    misses: int = 0


class Numbering:
    """The numbers known of every block, and those worth asking for."""

    def __init__(self) -> None:
        self._blocks: dict[Block, _Ada] = {}
        self._open: dict[str, dict[tuple[Block, int], None]] = {c: {} for c in HOLE_CLASSES}
        self._rates = {name: list(start) for name, start in START_RATES.items()}

    def know(self, key: ParcelKey) -> None:
        """Takes in a parcel, however it was found."""
        mahalle_id, ada, parsel = key
        if not parsel.isdecimal() or int(parsel) == 0:
            return
        block = (mahalle_id, ada)
        entry = self._blocks.setdefault(block, _Ada())
        number = int(parsel)
        last = max(entry.known, default=0)
        entry.known.add(number)
        if number > last:
            if number - last <= LONGEST_HOLE:
                for hole in range(last + 1, number):
                    self._sort(block, entry, hole)
            self._sort(block, entry, number + 1)
        for near in (number - 2, number - 1, number, number + 1, number + 2):
            if near in entry.open or near == number:
                self._sort(block, entry, near)

    def best(self, above: float) -> tuple[Number, float] | None:
        """The likeliest number not asked yet and its chance, if better than `above`; it counts as
        asked from now on."""
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
                if entry.misses < MISSES:
                    return Number(block[0], block[1], str(number)), chance
                self._seal(block, entry)
                return self.best(above)
        return None

    def class_of(self, question: Number) -> str:
        """How the number of a question relates to those known now."""
        entry = self._blocks.get((question.mahalle_id, question.ada), _Ada())
        return _classify(entry, int(question.parsel))

    def learn(self, question: Number, name: str, hit: bool) -> None:
        """Takes in how a question by number went."""
        self._rates[name][0] += hit
        self._rates[name][1] += 1
        entry = self._blocks.get((question.mahalle_id, question.ada))
        if entry is not None:
            entry.tried.add(int(question.parsel))
            entry.misses = 0 if hit else entry.misses + 1

    def reopen(self, question: Number) -> None:
        """Takes back that a number was asked for."""
        block = (question.mahalle_id, question.ada)
        entry = self._blocks[block]
        entry.tried.discard(int(question.parsel))
        self._sort(block, entry, int(question.parsel))

    def complete(self, block: Block) -> bool:
        """True when every number up to the one after the last has been asked or found."""
        entry = self._blocks.get(block)
        return entry is not None and not entry.open

    def _sort(self, block: Block, entry: _Ada, number: int) -> None:
        self._close(block, entry, number)
        if number > 0 and number not in entry.known and number not in entry.tried:
            name = _classify(entry, number)
            entry.open[number] = name
            self._open[name][(block, number)] = None

    def _close(self, block: Block, entry: _Ada, number: int) -> None:
        name = entry.open.pop(number, None)
        if name is not None:
            self._open[name].pop((block, number), None)

    def _seal(self, block: Block, entry: _Ada) -> None:
        for number in list(entry.open):
            self._close(block, entry, number)


def _classify(entry: _Ada, number: int) -> str:
    if number > max(entry.known, default=0):
        return "next"
    if {number - 1, number + 1} <= entry.known:
        return "beside"
    if {number - 2, number - 1, number + 1, number + 2} & entry.known:
        return "near"
    return "amid"
