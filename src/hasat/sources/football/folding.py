"""Many answers in the order in which they came, folded into what they say together."""

from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from typing import Any

from psycopg import sql

from hasat.feed.dataset import Scope
from hasat.sources.football.covers import (
    GOALS,
    Cover,
    of_day,
    of_fixture,
    of_goals,
    of_season,
)
from hasat.sources.football.elements import BLOCKS, Element, Extract, Unreadable
from hasat.sources.football.values import EARLIEST, LATEST

_TOO_LARGE = 10**18
_NOBODYS = -1


class Fold:
    """The last word on every record, and where absence means removal.

    `leagues` restricts what enters to these, for answers that are about all of them.
    """

    def __init__(self, leagues: Collection[int] | None = None) -> None:
        self.records: dict[str, dict[str, Any]] = {}
        self.fillers: dict[str, set[str]] = {}
        self._covers: dict[Cover, None] = {}
        self._inside: dict[Cover, set[str]] = {}
        self._dropped: dict[str, set[str]] = {}
        self._leagues = leagues
        self.vanished: list[int] = []
        """Matches that leave the mirror, and all their details with them."""

    def add(self, extract: Extract) -> None:
        """What the next answer says."""
        wanted = [element for element in extract.elements if self._is_wanted(element)]
        present = {(element.dataset, element.key) for element in wanted}
        for cover in extract.covers:
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

    def covers(self, dataset: str) -> bool:
        """Whether absence from the answers means removal anywhere in a dataset."""
        return any(cover.dataset == dataset for cover in self._covers)

    def scope(self, dataset: str) -> Scope:
        """Where absence means removal, as a condition on the dataset's table."""
        covers = [cover for cover in self._covers if cover.dataset == dataset]
        if any(not cover.where for cover in covers):
            return Scope({"whole": True})
        conditions: list[sql.Composable] = []
        values: dict[str, Any] = {}
        for number, cover in enumerate(covers):
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
        if self._leagues is not None and dataset in OF_A_LEAGUE:
            values["leagues"] = sorted(self._leagues)
            where = sql.SQL("(") + where + sql.SQL(") AND m.league_id = ANY (%(leagues)s)")
        if dropped := self._dropped.get(dataset):
            # The mirror may still have it where it was before these answers: in another day.
            values["dropped"] = sorted(dropped)
            where = sql.SQL("(") + where + sql.SQL(") OR m.key = ANY (%(dropped)s)")
        told: dict[str, Any] = {"covers": [dict(cover.where) for cover in covers]}
        if self.vanished and dataset in DETAILS:
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
        for cover in covers_of(element):
            self._inside.setdefault(cover, set()).add(element.key)

    def _drop(self, cover: Cover, key: str) -> None:
        records = self.records[cover.dataset]
        # It may have moved to another day since it was seen in this one.
        if key in records and cover in covers_of(Element(cover.dataset, key, records[key])):
            del records[key]
            if key not in self.fillers[cover.dataset]:
                self._dropped.setdefault(cover.dataset, set()).add(key)

    def _is_wanted(self, element: Element) -> bool:
        league = league_of(element)
        return self._leagues is None or league is None or league in self._leagues


OF_A_LEAGUE = ("fixtures", "injuries")
DETAILS = tuple(f"fixture_{block}" for block in BLOCKS)
"""The datasets whose records belong to a match and leave the mirror with it."""


def league_of(element: Element) -> int | None:
    """The league by which an element may be kept out; None where none is."""
    if element.dataset not in OF_A_LEAGUE:
        return None
    return _number(element.body, "league", "id")


def set_aside_nobodys(extract: Extract) -> None:
    """Where only some leagues may enter: what does not say of which it is may be of one of them."""
    nobodys = [element for element in extract.elements if league_of(element) == _NOBODYS]
    if not nobodys:
        return
    reason = "it does not say of which league it is"
    extract.unreadable += [Unreadable(one.dataset, reason, one.body) for one in nobodys]
    extract.elements = [one for one in extract.elements if league_of(one) != _NOBODYS]
    damaged = {one.dataset for one in nobodys}
    extract.covers = [cover for cover in extract.covers if cover.dataset not in damaged]


def match_of(element: Element) -> int:
    """Return the match that a record of its details belongs to."""
    return int(element.key.partition(":")[0])


def covers_of(element: Element) -> Iterator[Cover]:
    """Every cover that a record lies in; the same columns are computed in the database."""
    name, body = element.dataset, element.body
    yield Cover(name)
    match name:
        case "fixtures":
            yield of_season(name, _number(body, "league", "id"), _number(body, "league", "season"))
        case "standings" | "top_scorers":
            league, season, *_ = element.key.split(":")
            yield of_season(name, int(league), int(season))
        case "injuries":
            yield of_season(name, _number(body, "league", "id"), _number(body, "league", "season"))
            yield of_fixture(name, _number(body, "fixture", "id"))
            if EARLIEST <= (at := _number(body, "fixture", "timestamp")) <= LATEST:
                yield of_day(name, datetime.fromtimestamp(at, UTC).date().isoformat())
        case _ if name in DETAILS:
            fixture = match_of(element)
            yield of_fixture(name, fixture)
            if name == "fixture_events" and body.get("detail") in GOALS:
                yield of_goals(fixture, body["detail"])


def _number(body: Any, *path: str) -> int:
    """A whole number in a body, as core.whole has it; nobody's for none."""
    for step in path:
        body = body.get(step) if isinstance(body, dict) else None
    if isinstance(body, bool) or not isinstance(body, (int, float)) or abs(body) >= _TOO_LARGE:
        return _NOBODYS
    return int(body)
