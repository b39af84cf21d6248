"""Where absence means removal: what an answer was about, by what was asked and what it says."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

SPELLING = {"timezone"}
"""Parameters that say how an answer is spelled, not what it is about."""
GOALS = ("Normal Goal", "Own Goal", "Penalty")
"""The details of events by which a score goes up."""
MOST_DIGITS = 18


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
