"""The same answers again, from the newest to the oldest: the first word on a record is the last.

Whatever an older answer says of a record that a newer one told, or left out of what it covered,
is over. So each record is met once and nothing but keys has to be remembered.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator

from hasat.sources.football.covers import Cover
from hasat.sources.football.elements import Element, Extract
from hasat.sources.football.folding import DETAILS, OF_A_LEAGUE, covers_of, league_of, match_of

_NONE: frozenset[int] = frozenset()


class Replay:
    """What the answers so far have settled."""

    def __init__(self) -> None:
        self._settled: defaultdict[str, set[str]] = defaultdict(set)
        self._covered: dict[Cover, frozenset[int] | None] = {}
        self._with_covers: set[str] = set()
        self._fillers: dict[tuple[str, str], Element] = {}
        self._vanished: set[int] = set()

    def add(
        self, found: Extract, leagues: Collection[int] | None, vanished: Collection[int] = ()
    ) -> Iterator[Element]:
        """Those records on which this answer, older than all before it, is the last word.

        `vanished` are the matches that it removed: what is older about their details is over.
        """
        # Of one that is told twice in an answer, the later counts.
        for element in reversed(found.elements):
            name, key, _ = element
            settled = self._settled[name]
            if key in settled:
                continue
            if leagues is not None and league_of(element) not in (None, *leagues):
                continue
            over = self._is_over(element)
            if found.partial:
                if not over:
                    # It stays only if nothing older is there to be filled.
                    self._fillers[name, key] = element
                continue
            settled.add(key)
            if not over:
                self._fillers.pop((name, key), None)
                yield element
        for cover in found.covers:
            self._cover(cover, leagues)
        self._vanished.update(vanished)

    def rest(self) -> Iterator[Element]:
        """Records that only answers about a part of them told; once all were added."""
        return iter(self._fillers.values())

    def _cover(self, cover: Cover, leagues: Collection[int] | None) -> None:
        self._with_covers.add(cover.dataset)
        before = self._covered.get(cover, _NONE)
        if before is None or leagues is None or cover.dataset not in OF_A_LEAGUE:
            self._covered[cover] = None
        else:
            self._covered[cover] = before.union(leagues)

    def _is_over(self, element: Element) -> bool:
        if element.dataset in DETAILS and match_of(element) in self._vanished:
            return True
        if element.dataset not in self._with_covers:
            return False
        for cover in covers_of(element):
            leagues = self._covered.get(cover, _NONE)
            if leagues is None or (leagues and league_of(element) in leagues):
                return True
        return False
