"""Scopes: the parts of a dataset in which absence from a response means removal."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

FORMAT_PARAMETERS = {"timezone"}
"""Parameters that change how a response is written, not what it is about."""
GOALS = ("Normal Goal", "Own Goal", "Penalty")
"""The details of events that raise a score."""
BLOCKS = ("events", "lineups", "statistics", "players")
"""The parts that /fixtures adds to a fixture requested by its id."""
LEAGUE_DATASETS = ("fixtures", "injuries")
DETAIL_DATASETS = tuple(f"fixture_{block}" for block in BLOCKS)
"""The datasets whose records belong to a match and leave the mirror with it."""
MAX_DIGITS = 18
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


def scopes_of_request(endpoint: str, parameters: Mapping[str, str]) -> Iterator[RecordScope]:
    """Return the scopes of a complete response to a request."""
    given = frozenset(parameters) - FORMAT_PARAMETERS
    numbers = {name: int(value) for name, value in parameters.items() if is_number(value)}
    if given == {"league", "season"} and given <= numbers.keys():
        dataset = {"players/topscorers": "top_scorers"}.get(endpoint, endpoint)
        if dataset in ("fixtures", "standings", "injuries", "top_scorers"):
            yield season_scope(dataset, numbers["league"], numbers["season"])
    elif given == {"fixture"} and given <= numbers.keys():
        dataset = endpoint.replace("fixtures/", "fixture_")
        yield fixture_scope(dataset, numbers["fixture"])
    elif endpoint == "injuries" and given == {"date"}:
        yield day_scope("injuries", parameters["date"])
    elif not given and endpoint in ("timezone", "countries", "leagues"):
        yield RecordScope("timezones" if endpoint == "timezone" else endpoint)


def listed_season(endpoint: str, parameters: Mapping[str, str]) -> tuple[int, int] | None:
    """Return the league and season whose matches a request lists in full, if it does."""
    if endpoint != "fixtures":
        return None
    for scope in scopes_of_request(endpoint, parameters):
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


def is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS


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
    name, body = element.dataset, element.body
    yield RecordScope(name)
    match name:
        case "fixtures":
            yield season_scope(
                name, _number(body, "league", "id"), _number(body, "league", "season")
            )
        case "standings" | "top_scorers":
            league, season, *_ = element.key.split(":")
            yield season_scope(name, int(league), int(season))
        case "injuries":
            yield season_scope(
                name, _number(body, "league", "id"), _number(body, "league", "season")
            )
            yield fixture_scope(name, _number(body, "fixture", "id"))
            if EARLIEST <= (at := _number(body, "fixture", "timestamp")) <= LATEST:
                yield day_scope(name, datetime.fromtimestamp(at, UTC).date().isoformat())
        case _ if name in DETAIL_DATASETS:
            fixture = match_of(element)
            yield fixture_scope(name, fixture)
            if name == "fixture_events" and body.get("detail") in GOALS:
                yield goals_scope(fixture, body["detail"])


def _number(body: Any, *path: str) -> int:
    """Read an integer as core.whole does; NO_NUMBER if there is none."""
    for step in path:
        body = body.get(step) if isinstance(body, dict) else None
    if isinstance(body, bool) or not isinstance(body, (int, float)) or abs(body) >= 10**MAX_DIGITS:
        return NO_NUMBER
    return int(body)
