"""Where absence means removal: what an answer was about, by what was asked and what it says."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

SPELLING = {"timezone"}
"""Parameters that say how an answer is spelled, not what it is about."""
GOALS = ("Normal Goal", "Own Goal", "Penalty")
"""The details of events by which a score goes up."""
BLOCKS = ("events", "lineups", "statistics", "players")
"""What /fixtures adds to a fixture that is asked for by its id."""
OF_A_LEAGUE = ("fixtures", "injuries")
DETAILS = tuple(f"fixture_{block}" for block in BLOCKS)
"""The datasets whose records belong to a match and leave the mirror with it."""
MOST_DIGITS = 18
# As core.moment has it: the years that every calendar here has.
EARLIEST, LATEST = -62135510400, 253370764800
NO_NUMBER = -1


class Element(NamedTuple):
    """One record of a dataset."""

    dataset: str
    key: str
    body: Any


class Cover(NamedTuple):
    """All of a dataset's records with these values in these columns."""

    dataset: str
    where: tuple[tuple[str, int | str], ...] = ()


def of_fixture(dataset: str, fixture: int) -> Cover:
    return Cover(dataset, (("fixture_id", fixture),))


def of_goals(fixture: int, detail: str) -> Cover:
    return Cover("fixture_events", (("fixture_id", fixture), ("detail", detail)))


def of_season(dataset: str, league: int, season: int) -> Cover:
    return Cover(dataset, (("league_id", league), ("season", season)))


def of_day(dataset: str, date: str) -> Cover:
    return Cover(dataset, (("fixture_date", date),))


def covered_by(endpoint: str, parameters: Mapping[str, str]) -> Iterator[Cover]:
    """Where absence from the whole answer means removal, by what was asked."""
    asked = frozenset(parameters) - SPELLING
    numbers = {name: int(value) for name, value in parameters.items() if is_number(value)}
    if asked == {"league", "season"} and asked <= numbers.keys():
        dataset = {"players/topscorers": "top_scorers"}.get(endpoint, endpoint)
        if dataset in ("fixtures", "standings", "injuries", "top_scorers"):
            yield of_season(dataset, numbers["league"], numbers["season"])
    elif asked == {"fixture"} and asked <= numbers.keys():
        dataset = endpoint.replace("fixtures/", "fixture_")
        yield of_fixture(dataset, numbers["fixture"])
    elif endpoint == "injuries" and asked == {"date"}:
        yield of_day("injuries", parameters["date"])
    elif not asked and endpoint in ("timezone", "countries", "leagues"):
        yield Cover("timezones" if endpoint == "timezone" else endpoint)


def listed_season(endpoint: str, parameters: Mapping[str, str]) -> tuple[int, int] | None:
    """Return the league and season of which all matches were asked for, if so."""
    if endpoint != "fixtures":
        return None
    for cover in covered_by(endpoint, parameters):
        (_, league), (_, season) = cover.where
        return int(league), int(season)
    return None


def ended_without_goals(row: Any) -> bool:
    """Whether a match was over after ninety minutes (shots from the mark are goals too) at 0:0."""
    status, goals = row["fixture"].get("status"), row.get("goals")
    if not isinstance(status, dict) or not isinstance(goals, dict):
        return False
    return status.get("short") == "FT" and all(_is_zero(goals.get(s)) for s in ("home", "away"))


def _is_zero(value: Any) -> bool:
    return value == 0 and not isinstance(value, bool)


def is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS


def league_of(element: Element) -> int | None:
    """The league by which an element may be kept out; None where none is."""
    if element.dataset not in OF_A_LEAGUE:
        return None
    return _number(element.body, "league", "id")


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
    if isinstance(body, bool) or not isinstance(body, (int, float)) or abs(body) >= 10**MOST_DIGITS:
        return NO_NUMBER
    return int(body)
