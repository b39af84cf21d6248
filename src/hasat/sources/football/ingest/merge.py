"""Many answers in the order in which they came, folded into what they say together."""

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Any

from psycopg import sql

from hasat.feed.dataset import Scope
from hasat.sources.football.ingest.elements import Extract
from hasat.sources.football.ingest.scopes import (
    DETAIL_DATASETS,
    LEAGUE_DATASETS,
    Element,
    RecordScope,
    league_of,
    match_of,
    scopes_containing,
)

_NONE: frozenset[int] = frozenset()


class ResponseMerge:
    """The last word on every record, and where absence means removal.

    `leagues` restricts what enters to these, for answers that are about all of them.
    """

    def __init__(self, leagues: Collection[int] | None = None) -> None:
        self.records: dict[str, dict[str, Any]] = {}
        self.fillers: dict[str, set[str]] = {}
        self._covers: dict[RecordScope, None] = {}
        self._inside: dict[RecordScope, set[str]] = {}
        self._dropped: dict[str, set[str]] = {}
        self._leagues = leagues
        self.vanished: list[int] = []
        """Matches that leave the mirror, and all their details with them."""

    def add(self, extract: Extract) -> None:
        """What the next answer says."""
        wanted = [element for element in extract.elements if self._is_wanted(element)]
        present = {(element.dataset, element.key) for element in wanted}
        for cover in extract.scopes:
            self._covers[cover] = None
            for key in self._inside.pop(cover, ()):
                if (cover.dataset, key) not in present:
                    self._drop(cover, key)
        for element in wanted:
            self._put(element, filler=extract.partial)

    def datasets(self) -> list[str]:
        """Those that the answers say anything about."""
        named = {cover.dataset for cover in self._covers}
        return sorted(named | {name for name, found in self.records.items() if found})

    def scopes(self, dataset: str) -> bool:
        """Whether absence from the answers means removal anywhere in a dataset."""
        return any(cover.dataset == dataset for cover in self._covers)

    def scope(self, dataset: str) -> Scope:
        """Where absence means removal, as a condition on the dataset's table."""
        scopes = [cover for cover in self._covers if cover.dataset == dataset]
        if any(not cover.where for cover in scopes):
            return Scope({"whole": True})
        conditions: list[sql.Composable] = []
        values: dict[str, Any] = {}
        for number, cover in enumerate(scopes):
            equal = []
            for column, value in cover.where:
                name = f"cover_{number}_{column}"
                values[name] = value
                equal.append(
                    sql.SQL("m.{} = {}").format(sql.Identifier(column), sql.Placeholder(name))
                )
            conditions.append(sql.SQL(" AND ").join(equal))
        where: sql.Composable = sql.SQL("false")
        if conditions:
            where = sql.SQL("(") + sql.SQL(") OR (").join(conditions) + sql.SQL(")")
        if self._leagues is not None and dataset in LEAGUE_DATASETS:
            values["leagues"] = sorted(self._leagues)
            where = sql.SQL("(") + where + sql.SQL(") AND m.league_id = ANY (%(leagues)s)")
        if dropped := self._dropped.get(dataset):
            # The mirror may still have it where it was before these answers: in another day.
            values["dropped"] = sorted(dropped)
            where = sql.SQL("(") + where + sql.SQL(") OR m.key = ANY (%(dropped)s)")
        told: dict[str, Any] = {"covers": [dict(cover.where) for cover in scopes]}
        if self.vanished and dataset in DETAIL_DATASETS:
            told["vanished"] = values["vanished"] = self.vanished
            where = sql.SQL("(") + where + sql.SQL(") OR m.fixture_id = ANY (%(vanished)s)")
        return Scope(told, where, values)

    def _put(self, element: Element, *, filler: bool) -> None:
        records = self.records.setdefault(element.dataset, {})
        if filler and element.key in records:
            return
        records[element.key] = element.body
        fillers = self.fillers.setdefault(element.dataset, set())
        (fillers.add if filler else fillers.discard)(element.key)
        for cover in scopes_containing(element):
            self._inside.setdefault(cover, set()).add(element.key)

    def _drop(self, cover: RecordScope, key: str) -> None:
        records = self.records[cover.dataset]
        # It may have moved to another day since it was seen in this one.
        if key in records and cover in scopes_containing(Element(cover.dataset, key, records[key])):
            del records[key]
            if key not in self.fillers[cover.dataset]:
                self._dropped.setdefault(cover.dataset, set()).add(key)

    def _is_wanted(self, element: Element) -> bool:
        league = league_of(element)
        return self._leagues is None or league is None or league in self._leagues


class ReverseMerge:
    """What the answers so far have settled."""

    def __init__(self) -> None:
        self._settled: defaultdict[str, set[str]] = defaultdict(set)
        self._covered: dict[RecordScope, frozenset[int] | None] = {}
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
        for cover in found.scopes:
            self._cover(cover, leagues)
        self._vanished.update(vanished)

    def rest(self) -> Iterator[Element]:
        """Records that only answers about a part of them told; once all were added."""
        return iter(self._fillers.values())

    def _cover(self, cover: RecordScope, leagues: Collection[int] | None) -> None:
        self._with_covers.add(cover.dataset)
        before = self._covered.get(cover, _NONE)
        if before is None or leagues is None or cover.dataset not in LEAGUE_DATASETS:
            self._covered[cover] = None
        else:
            self._covered[cover] = before.union(leagues)

    def _is_over(self, element: Element) -> bool:
        if element.dataset in DETAIL_DATASETS and match_of(element) in self._vanished:
            return True
        if element.dataset not in self._with_covers:
            return False
        for cover in scopes_containing(element):
            leagues = self._covered.get(cover, _NONE)
            if leagues is None or (leagues and league_of(element) in leagues):
                return True
        return False
