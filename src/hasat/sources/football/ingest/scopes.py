"""Scopes: the parts of a dataset in which absence from a response means removal."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from hasat.feed.columns import Column
from hasat.sources.football.endpoints import (
    DATASETS,
    ENDPOINT_OF,
    MAX_DIGITS,
    Endpoint,
    is_number,
)

GOALS = ("Normal Goal", "Own Goal", "Penalty")
"""The details of events that raise a score."""
BLOCKS = ("events", "lineups", "statistics", "players")
"""The parts that /fixtures adds to a fixture requested by its id."""
LEAGUE_DATASETS = ("fixtures", "injuries")
DETAIL_DATASETS = tuple(f"fixture_{block}" for block in BLOCKS)
"""The datasets whose records belong to a match and leave the mirror with it."""
# The same limits as in core.moment: years that both Python and PostgreSQL can store.
EARLIEST, LATEST = -62135510400, 253370764800
NO_NUMBER = -1


class Element(NamedTuple):
    """One record of a dataset."""

    dataset: str
    key: str
    body: Any


class RecordScope(NamedTuple):
    """All of a dataset's records with these values in these columns."""

    dataset: str
    where: tuple[tuple[str, int | str], ...] = ()


def fixture_scope(dataset: str, fixture: int) -> RecordScope:
    return RecordScope(dataset, (("fixture_id", fixture),))


def goals_scope(fixture: int, detail: str) -> RecordScope:
    return RecordScope("fixture_events", (("fixture_id", fixture), ("detail", detail)))


def season_scope(dataset: str, league: int, season: int) -> RecordScope:
    return RecordScope(dataset, (("league_id", league), ("season", season)))


def day_scope(dataset: str, date: str) -> RecordScope:
    return RecordScope(dataset, (("fixture_date", date),))


def scopes_of_request(endpoint: Endpoint, parameters: Mapping[str, str]) -> Iterator[RecordScope]:
    """Return the scopes of a complete response to a request."""
    rule = endpoint.rule_for(parameters)
    if rule is None:
        return
    where: list[tuple[str, int | str]] = []
    for parameter, name in rule.columns.items():
        text = parameters[parameter]
        if rule.by_holder:
            text = f"{parameter}-{text}"
        elif column_of(endpoint.dataset.name, name).type == "integer":
            if not is_number(text):
                return
            where.append((name, int(text)))
            continue
        where.append((name, text))
    yield RecordScope(endpoint.dataset.name, tuple(where))


def listed_season(endpoint: str, parameters: Mapping[str, str]) -> tuple[int, int] | None:
    """Return the league and season whose matches a request lists in full, if it does."""
    if endpoint != "fixtures":
        return None
    for scope in scopes_of_request(ENDPOINT_OF[endpoint], parameters):
        (_, league), (_, season) = scope.where
        return int(league), int(season)
    return None


def ended_without_goals(row: Any) -> bool:
    """Whether a match ended 0:0 after ninety minutes; after penalties there are goal events."""
    status, goals = row["fixture"].get("status"), row.get("goals")
    if not isinstance(status, dict) or not isinstance(goals, dict):
        return False
    return status.get("short") == "FT" and all(_is_zero(goals.get(s)) for s in ("home", "away"))


def _is_zero(value: Any) -> bool:
    return value == 0 and not isinstance(value, bool)


def league_of(element: Element) -> int | None:
    """Return the league by which a record may be left out; None if it has none."""
    if element.dataset not in LEAGUE_DATASETS:
        return None
    return _number(element.body, "league", "id")


def match_of(element: Element) -> int:
    """Return the match that a record of its details belongs to."""
    return int(element.key.partition(":")[0])


def scopes_containing(element: Element) -> Iterator[RecordScope]:
    """Return every scope that contains a record; the database computes the same columns."""
    name = element.dataset
    yield RecordScope(name)
    for rule in ENDPOINT_OF[name].rules:
        if rule.day_of is not None:
            at = _number(element.body, *rule.day_of.split("."))
            if EARLIEST <= at <= LATEST:
                day = datetime.fromtimestamp(at, UTC).date().isoformat()
                yield RecordScope(name, tuple((column, day) for column in rule.columns.values()))
        elif rule.columns:
            where = [(column, _value(element, column)) for column in rule.columns.values()]
            yield RecordScope(name, tuple(where))
    if name == "fixture_events" and element.body.get("detail") in GOALS:
        yield goals_scope(match_of(element), element.body["detail"])


def column_of(dataset: str, name: str) -> Column:
    """Return a column of a dataset by its name."""
    return _COLUMNS[dataset][name]


_COLUMNS = {
    name: {column.name: column for column in dataset.columns} for name, dataset in DATASETS.items()
}


def _value(element: Element, name: str) -> int | str:
    """Return the value of a column as the database computes it."""
    column = column_of(element.dataset, name)
    if column.key_part is not None:
        separator, place = column.key_part
        part = element.key.split(separator)[place - 1]
        return int(part) if column.type == "integer" else part
    if column.type == "integer":
        return _number(element.body, *column.steps)
    value = element.body
    for step in column.steps:
        value = value.get(step) if isinstance(value, dict) else None
    return str(value)


def _number(body: Any, *path: str) -> int:
    """Read an integer as core.whole does; NO_NUMBER if there is none."""
    for step in path:
        body = body.get(step) if isinstance(body, dict) else None
    if isinstance(body, bool) or not isinstance(body, (int, float)) or abs(body) >= 10**MAX_DIGITS:
        return NO_NUMBER
    return int(body)
