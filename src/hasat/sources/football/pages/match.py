"""The page of a match: score, events, line-ups, statistics, corrections and earlier meetings."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hasat.errors import NotFoundError
from hasat.messages import msg
from hasat.pages import PageRequest
from hasat.sources.football.pages.data import read_rows
from hasat.sources.football.pages.pitch import Lineup, read_lineup
from hasat.sources.football.states import state_of

_NUMBER = re.compile(r"-?[0-9]{1,9}(\.[0-9]{1,6})?")
_GOAL, _CARD, _SUBSTITUTION = "Goal", "Card", "subst"


@dataclass(frozen=True)
class Event:
    """An event; `side` is home, away or empty."""

    minute: str
    side: str
    kind: str
    """goal, missed, yellow, red, substitution, var or other."""
    text: str
    """Its name in the API."""
    player: str | None
    assist: str | None
    comments: str | None


@dataclass(frozen=True)
class Statistic:
    """A figure of both teams as published, and the share of the home team if it is a number."""

    name: str
    home: str
    away: str
    share: float | None


@dataclass(frozen=True)
class Correction:
    """A result before and after a change that came after the final whistle."""

    changed_at: datetime
    status_before: str | None
    status: str | None
    home_before: int | None
    away_before: int | None
    goals_home: int | None
    goals_away: int | None


@dataclass(frozen=True)
class Meeting:
    """An earlier result of the two teams."""

    fixture_id: int
    league: str | None
    date: datetime | None
    home: str | None
    away: str | None
    goals_home: int | None
    goals_away: int | None


@dataclass(frozen=True)
class Player:
    """The figures of a player in this match."""

    side: str
    name: str | None
    minutes: int
    rating: str | None
    goals: int | None
    assists: int | None


@dataclass(frozen=True)
class Heading:
    """The match as published, what Hasat infers about it, and when it was received."""

    fixture_id: int
    key: str
    league_id: int | None
    season: int | None
    league: str | None
    round: str | None
    date: datetime | None
    home_id: int | None
    home: str | None
    away_id: int | None
    away: str | None
    goals_home: int | None
    goals_away: int | None
    status: str | None
    state: str
    elapsed: int | None
    extra: int | None
    venue: str | None
    city: str | None
    referee: str | None
    half_home: int | None
    half_away: int | None
    penalty_home: int | None
    penalty_away: int | None
    changed_at: datetime
    told_at: datetime | None
    details_at: datetime | None
    inferred: str | None
    reason: str | None
    inferred_at: datetime | None
    unconfirmed_since: datetime | None


@dataclass(frozen=True)
class MatchPage:
    """The data of the page."""

    match: Heading
    events: Sequence[Event]
    lineups: Sequence[Lineup]
    statistics: Sequence[Statistic]
    players: Sequence[Player]
    corrections: Sequence[Correction]
    meetings: Sequence[Meeting]


async def match(request: PageRequest) -> MatchPage:
    """Load a match with all details."""
    number = request.number("fixture")
    found = await read_rows(request.store, "match", fixture=number)
    if not found:
        raise NotFoundError(
            msg("The mirror has no match {number}.", number=number),
            remedy=msg("The page Football lists the matches."),
        )
    [one] = found
    sides = {one["home_id"]: "home", one["away_id"]: "away"}
    sides.pop(None, None)
    events = await read_rows(request.store, "events", fixture=number)
    lineups = await read_rows(request.store, "lineups", fixture=number)
    statistics = await read_rows(request.store, "statistics", fixture=number)
    players = await read_rows(request.store, "players", fixture=number)
    corrections = await read_rows(request.store, "corrections_of_match", key=one["key"])
    meetings = await read_rows(
        request.store, "meetings", fixture=number, home=one["home_id"], away=one["away_id"]
    )
    return MatchPage(
        match=Heading(**one, state=state_of(one["status"]).value),
        events=[_event(row, sides) for row in events],
        lineups=[read_lineup(row["body"]) for row in _home_first(lineups, sides)],
        statistics=_statistics(_home_first(statistics, sides), sides),
        players=[_player(row, sides) for row in _home_first(players, sides)],
        corrections=[Correction(**row) for row in corrections],
        meetings=[Meeting(**row) for row in meetings],
    )


def _home_first(rows: Sequence[dict[str, Any]], sides: Mapping[int, str]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: sides.get(row["team_id"]) != "home")


def _event(row: Mapping[str, Any], sides: Mapping[int, str]) -> Event:
    minute = "" if row["elapsed"] is None else f"{row['elapsed']}"
    extra = "" if row["extra"] is None else f"+{row['extra']}"
    return Event(
        minute=f"{minute}{extra}",
        side=sides.get(row["team_id"], ""),
        kind=_kind(row["type"], row["detail"] or ""),
        text=row["detail"] or row["type"] or "",
        player=row["player"],
        assist=row["assist"],
        comments=row["comments"],
    )


def _kind(type_: str | None, detail: str) -> str:
    name = (type_ or "").casefold()
    if name == _GOAL.casefold():
        return "missed" if "miss" in detail.casefold() else "goal"
    if name == _CARD.casefold():
        return "yellow" if detail.casefold() == "yellow card" else "red"
    return {_SUBSTITUTION: "substitution", "var": "var"}.get(name, "other")


def _statistics(rows: Sequence[dict[str, Any]], sides: Mapping[int, str]) -> list[Statistic]:
    """Pair the figures of both teams; a figure that only one team has is shown, too."""
    figures: dict[str, dict[str, Any]] = {}
    for row in rows:
        side = sides.get(row["team_id"])
        listed = row["body"].get("statistics") if isinstance(row["body"], dict) else None
        for one in listed if side and isinstance(listed, list) else ():
            if isinstance(one, dict) and isinstance(one.get("type"), str):
                figures.setdefault(one["type"], {})[side or ""] = one.get("value")
    found = []
    for name, values in figures.items():
        home, away = values.get("home"), values.get("away")
        if home is not None or away is not None:
            found.append(Statistic(name, _written(home), _written(away), _share(home, away)))
    return found


def _written(value: Any) -> str:
    return "0" if value is None else str(value)[:30]


def _share(home: Any, away: Any) -> float | None:
    """Return the share of the first of two figures, if both are numbers or percentages."""
    numbers = []
    for value in (home, away):
        text = _written(value).removesuffix("%")
        if not _NUMBER.fullmatch(text):
            return None
        numbers.append(max(0.0, float(text)))
    total = sum(numbers)
    return numbers[0] / total if total else None


def _player(row: Mapping[str, Any], sides: Mapping[int, str]) -> Player:
    values = {name: value for name, value in row.items() if name != "team_id"}
    return Player(side=sides.get(row["team_id"], ""), **values)
