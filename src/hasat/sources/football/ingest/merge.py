"""Merging of many responses into records, from the oldest to the newest or in reverse."""

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
    column_of,
    league_of,
    match_of,
    scopes_containing,
)

_NONE: frozenset[int] = frozenset()


class ResponseMerge:
    """The newest body of every record, and the scopes in which absence means removal.

    `leagues` restricts the records, for responses that are about all leagues.
    """

    def __init__(self, leagues: Collection[int] | None = None) -> None:
        self.records: dict[str, dict[str, Any]] = {}
        self.fillers: dict[str, set[str]] = {}
        self._scopes: dict[RecordScope, None] = {}
        self._inside: dict[RecordScope, set[str]] = {}
        self._dropped: dict[str, set[str]] = {}
        self._leagues = leagues
        self.vanished: list[int] = []
        """Matches that leave the mirror together with their details."""

    def add(self, extract: Extract) -> None:
        """Add the records of the next response."""
        wanted = [element for element in extract.elements if self._is_wanted(element)]
        present = {(element.dataset, element.key) for element in wanted}
        for scope in extract.scopes:
            self._scopes[scope] = None
            for key in self._inside.pop(scope, ()):
                if (scope.dataset, key) not in present:
                    self._drop(scope, key)
        for element in wanted:
            self._put(element, filler=extract.partial)

    def datasets(self) -> list[str]:
        """Return the names of the datasets that the responses affect."""
        named = {scope.dataset for scope in self._scopes}
        return sorted(named | {name for name, found in self.records.items() if found})

    def has_scope(self, dataset: str) -> bool:
        """Whether absence means removal anywhere in a dataset."""
        return any(scope.dataset == dataset for scope in self._scopes)

    def scope(self, dataset: str) -> Scope:
        """Return the scope of a dataset as a condition on its table."""
        scopes = [scope for scope in self._scopes if scope.dataset == dataset]
        if any(not scope.where for scope in scopes):
            return Scope({"whole": True})
        conditions: list[sql.Composable] = []
        values: dict[str, Any] = {}
        for number, scope in enumerate(scopes):
            equal = []
            for column, value in scope.where:
                name = f"scope_{number}_{column}"
                values[name] = value
                equal.append(
                    sql.SQL("{} = {}").format(
                        column_of(dataset, column).read("m"), sql.Placeholder(name)
                    )
                )
            conditions.append(sql.SQL(" AND ").join(equal))
        where: sql.Composable = sql.SQL("false")
        if conditions:
            where = sql.SQL("(") + sql.SQL(") OR (").join(conditions) + sql.SQL(")")
        if self._leagues is not None and dataset in LEAGUE_DATASETS:
            values["leagues"] = sorted(self._leagues)
            where = sql.SQL("(") + where + sql.SQL(") AND m.league_id = ANY (%(leagues)s)")
        if dropped := self._dropped.get(dataset):
            # The mirror may still have the record in another scope, such as the day before.
            values["dropped"] = sorted(dropped)
            where = sql.SQL("(") + where + sql.SQL(") OR m.key = ANY (%(dropped)s)")
        description: dict[str, Any] = {"covers": [dict(scope.where) for scope in scopes]}
        if self.vanished and dataset in DETAIL_DATASETS:
            description["vanished"] = values["vanished"] = self.vanished
            where = sql.SQL("(") + where + sql.SQL(") OR m.fixture_id = ANY (%(vanished)s)")
        return Scope(description, where, values)

    def _put(self, element: Element, *, filler: bool) -> None:
        records = self.records.setdefault(element.dataset, {})
        if filler and element.key in records:
            return
        records[element.key] = element.body
        fillers = self.fillers.setdefault(element.dataset, set())
        (fillers.add if filler else fillers.discard)(element.key)
        for scope in scopes_containing(element):
            self._inside.setdefault(scope, set()).add(element.key)

    def _drop(self, scope: RecordScope, key: str) -> None:
        records = self.records[scope.dataset]
        # The record may have moved to another day since.
        if key in records and scope in scopes_containing(Element(scope.dataset, key, records[key])):
            del records[key]
            if key not in self.fillers[scope.dataset]:
                self._dropped.setdefault(scope.dataset, set()).add(key)

    def _is_wanted(self, element: Element) -> bool:
        league = league_of(element)
        return self._leagues is None or league is None or league in self._leagues


class ReverseMerge:
    """A merge from the newest response to the oldest.

    The first body of a record is its newest one, so each record is returned once, and only keys
    are remembered. A record that a newer response left out of its scope is over.
    """

    def __init__(self) -> None:
        self._settled: defaultdict[str, set[str]] = defaultdict(set)
        self._scoped: dict[RecordScope, frozenset[int] | None] = {}
        self._scoped_datasets: set[str] = set()
        self._fillers: dict[tuple[str, str], Element] = {}
        self._vanished: set[int] = set()

    def add(
        self, found: Extract, leagues: Collection[int] | None, vanished: Collection[int] = ()
    ) -> Iterator[Element]:
        """Return the records whose newest body is in this response, older than all before it.

        `vanished` are the matches that it removed: older details of them are over.
        """
        # If a response has a record twice, the later one counts.
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
                    # It counts only if no older response has the whole record.
                    self._fillers[name, key] = element
                continue
            settled.add(key)
            if not over:
                self._fillers.pop((name, key), None)
                yield element
        for scope in found.scopes:
            self._add_scope(scope, leagues)
        self._vanished.update(vanished)

    def partial_records(self) -> Iterator[Element]:
        """Return the records that only partial responses contain, after all were added."""
        return iter(self._fillers.values())

    def _add_scope(self, scope: RecordScope, leagues: Collection[int] | None) -> None:
        self._scoped_datasets.add(scope.dataset)
        before = self._scoped.get(scope, _NONE)
        if before is None or leagues is None or scope.dataset not in LEAGUE_DATASETS:
            self._scoped[scope] = None
        else:
            self._scoped[scope] = before.union(leagues)

    def _is_over(self, element: Element) -> bool:
        if element.dataset in DETAIL_DATASETS and match_of(element) in self._vanished:
            return True
        if element.dataset not in self._scoped_datasets:
            return False
        for scope in scopes_containing(element):
            leagues = self._scoped.get(scope, _NONE)
            if leagues is None or (leagues and league_of(element) in leagues):
                return True
        return False
