"""Extraction of records from responses: one for each event, table line or player's match.

A record's body is the element as published. What the element lacks (the fixture that an event
belongs to) is in its key, and nothing else: the database computes typed columns from key and body.

`scopes` says where absence means removal: the events of a fixture, the tables of a league's season.
An element that cannot be read is quarantined, and then its response has no scope in that dataset.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any, NamedTuple

from hasat.sources.football.ingest.scopes import (
    BLOCKS,
    EARLIEST,
    GOALS,
    LATEST,
    MAX_DIGITS,
    NO_NUMBER,
    Element,
    RecordScope,
    ended_without_goals,
    fixture_scope,
    goals_scope,
    is_number,
    league_of,
    scopes_of_request,
)


class Block(NamedTuple):
    """One kind of details of a match that a response has as a list, perhaps an empty one."""

    fixture: int
    name: str
    is_empty: bool


@dataclass(frozen=True)
class Unreadable:
    """A part of a response that does not have the expected form."""

    dataset: str
    reason: str
    body: Any


@dataclass
class Extract:
    """The records of a response. A partial response adds missing records and changes none."""

    elements: list[Element] = field(default_factory=list)
    scopes: list[RecordScope] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    partial: bool = False
    _seen: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, dataset: str, key: str, body: Any) -> None:
        if len(key) > _MAX_KEY_LENGTH:
            raise _FormError(dataset, "its identity is too long to be a key")
        self.elements.append(Element(dataset, key, body))

    def add_without_id(self, dataset: str, identity: str, body: Any) -> None:
        """Add an element without an id under its identity, numbered if that is not unique."""
        self._seen[dataset, identity] += 1
        count = self._seen[dataset, identity]
        self.add(dataset, identity if count == 1 else f"{identity}:{count}", body)


# An index entry of PostgreSQL holds 2,700 bytes, and a character may take four.
_MAX_KEY_LENGTH = 600
_MAX_STATUS_LENGTH = 100


class _FormError(Exception):
    """An element cannot become a record; has the dataset and the reason."""


def extract(endpoint: str, parameters: Mapping[str, str], response: Any) -> Extract:
    """Extract the records of a response; there are none for an endpoint that is not mirrored."""
    found = Extract(partial=bool(parameters.keys() & _FILTERS.get(endpoint, set())))
    read = _READERS.get(endpoint)
    if read is None:
        return found
    rows = response if isinstance(response, list) else [response] if response else []
    for row in rows:
        _try(found, read, parameters, row)
    fixture, block = parameters.get("fixture", ""), endpoint.removeprefix("fixtures/")
    if block in BLOCKS and is_number(fixture) and not found.partial:
        found.blocks.append(Block(int(fixture), block, not rows))
    damaged = {one.dataset for one in found.unreadable}
    # An empty table means that there is none yet; an empty list of injuries is meaningful.
    if not found.partial and (found.elements or endpoint == "injuries"):
        found.scopes += [
            scope
            for scope in scopes_of_request(endpoint, parameters)
            if scope.dataset not in damaged
        ]
    return found


_Reader = Callable[[Extract, Mapping[str, str], Any], None]

# Parameters that restrict the response to a part of each element.
_FILTERS = {
    "fixtures/lineups": {"type", "team", "player"},
    "fixtures/statistics": {"type", "team"},
    "fixtures/players": {"team"},
    "fixtures/events": {"type", "team", "player"},
}


def _try(found: Extract, read: _Reader, parameters: Mapping[str, str], row: Any) -> None:
    try:
        read(found, parameters, row)
    except _FormError as error:
        dataset, reason = error.args
        found.unreadable.append(Unreadable(dataset, reason, row))


def _timezone(found: Extract, _: Mapping[str, str], row: Any) -> None:
    found.add("timezones", _text("timezones", row), row)


def _country(found: Extract, _: Mapping[str, str], row: Any) -> None:
    # The key is the name, since World has no code.
    found.add("countries", _text("countries", row, "name"), row)


def _league(found: Extract, _: Mapping[str, str], row: Any) -> None:
    found.add("leagues", _number("leagues", row, "league", "id"), row)


def _team(found: Extract, _: Mapping[str, str], row: Any) -> None:
    found.add("teams", _number("teams", row, "team", "id"), row)


def _fixture(found: Extract, _: Mapping[str, str], row: Any) -> None:
    key = _number("fixtures", row, "fixture", "id")
    status = row["fixture"].get("status")
    if isinstance(status, dict) and len(str(status.get("short"))) > _MAX_STATUS_LENGTH:
        raise _FormError("fixtures", "fixture.status.short is too long to be a code")
    if row.keys().isdisjoint(BLOCKS):
        found.add("fixtures", key, row)
        return
    # The same fixture comes with and without its blocks.
    body = {name: value for name, value in row.items() if name not in BLOCKS}
    found.add("fixtures", key, body)
    complete = all(isinstance(row.get(block), list) for block in BLOCKS)
    has_details = complete and any(row[block] for block in BLOCKS)
    for block in BLOCKS:
        rows = row.get(block)
        if not isinstance(rows, list):
            if rows:
                lost = Unreadable(f"fixture_{block}", f"{block} is not a list", rows)
                found.unreadable.append(lost)
            continue
        found.blocks.append(Block(int(key), block, not rows))
        before, known = len(found.unreadable), len(found.elements)
        for one in rows:
            _try(found, _READERS[f"fixtures/{block}"], {"fixture": key}, one)
        # live=all has current events only. An empty block means no data yet, except that without
        # events and with other details nothing happened: a withdrawn only event is removed.
        has_data = len(found.elements) > known or (block == "events" and has_details)
        if complete and has_data and len(found.unreadable) == before:
            found.scopes.append(fixture_scope(f"fixture_{block}", int(key)))
    # Without any details an empty list means no data, but a score of 0:0 means no goals.
    if complete and not has_details and ended_without_goals(row):
        found.scopes += [goals_scope(int(key), detail) for detail in GOALS]


def _event(found: Extract, parameters: Mapping[str, str], row: Any) -> None:
    """Read an event, identified by minute, team, type and player: its position may change."""
    name = "fixture_events"
    time = _at(name, row, "time")
    elapsed, extra = _at(name, time, "elapsed"), time.get("extra")
    minute = f"{elapsed}" if extra is None else f"{elapsed}+{extra}"
    player_key, team = _player_key(row.get("player")), _id(row, "team")
    identity = f"{_fixture_id(name, parameters)}:{minute}:{team}:{row.get('type')}:{player_key}"
    found.add_without_id(name, identity, row)


def _team_block(dataset: str) -> _Reader:
    def read(found: Extract, parameters: Mapping[str, str], row: Any) -> None:
        team = _number(dataset, row, "team", "id")
        found.add(dataset, f"{_fixture_id(dataset, parameters)}:{team}", row)

    return read


def _players(found: Extract, parameters: Mapping[str, str], row: Any) -> None:
    """Read the players of a team; several may have the id 0 or none."""
    name = "fixture_players"
    team = _number(name, row, "team", "id")
    players = _at(name, row, "players")
    if not isinstance(players, list):
        raise _FormError(name, "players is not a list")

    def read(found: Extract, parameters: Mapping[str, str], player: Any) -> None:
        identity = (
            f"{_fixture_id(name, parameters)}:{team}:{_player_key(_at(name, player, 'player'))}"
        )
        found.add_without_id(name, identity, player)

    for player in players:
        _try(found, read, parameters, player)


def _standing(found: Extract, parameters: Mapping[str, str], row: Any) -> None:
    """Read the tables of a league's season: a list of groups, in which a team may occur twice."""
    name = "standings"
    league = _number(name, row, "league", "id")
    season = _number(name, row, "league", "season")
    groups = _at(name, row, "league", "standings")
    if not isinstance(groups, list) or not all(isinstance(group, list) for group in groups):
        raise _FormError(name, "standings is not a list of groups")

    def read(found: Extract, _: Mapping[str, str], line: Any) -> None:
        team = _number(name, line, "team", "id")
        identity = f"{league}:{season}:{line.get('group')}:{team}"
        found.add_without_id(name, identity, line)

    for line in (line for group in groups for line in group):
        _try(found, read, parameters, line)


def _injury(found: Extract, _: Mapping[str, str], row: Any) -> None:
    name = "injuries"
    player_key = _player_key(_at(name, row, "player"))
    # Some refer to an unknown match, or to none.
    fixture = "" if _id(row, "fixture") is None else _number(name, row, "fixture", "id")
    identity = f"{fixture}:{_id(row, 'team')}:{player_key}"
    found.add_without_id(name, identity, row)


def _top_scorer(found: Extract, parameters: Mapping[str, str], row: Any) -> None:
    name = "top_scorers"
    league, season = _league_season(name, parameters)
    identity = f"{league}:{season}:{_player_key(_at(name, row, 'player'))}"
    found.add_without_id(name, identity, row)


def _team_statistics(found: Extract, parameters: Mapping[str, str], row: Any) -> None:
    name = "team_statistics"
    league, team = _number(name, row, "league", "id"), _number(name, row, "team", "id")
    season = _number(name, row, "league", "season")
    until = f":{parameters['date']}" if "date" in parameters else ""
    found.add(name, f"{league}:{season}:{team}{until}", row)


_READERS: dict[str, _Reader] = {
    "timezone": _timezone,
    "countries": _country,
    "leagues": _league,
    "teams": _team,
    "fixtures": _fixture,
    "fixtures/events": _event,
    "fixtures/lineups": _team_block("fixture_lineups"),
    "fixtures/statistics": _team_block("fixture_statistics"),
    "fixtures/players": _players,
    "standings": _standing,
    "injuries": _injury,
    "players/topscorers": _top_scorer,
    "teams/statistics": _team_statistics,
}


def _at(dataset: str, row: Any, *path: str) -> Any:
    for step in path:
        if not isinstance(row, dict) or step not in row:
            raise _FormError(dataset, f"{'.'.join(path)} is missing")
        row = row[step]
    return row


def _id(row: Any, name: str) -> Any:
    """Return the id of an optional part of an element."""
    part = row.get(name)
    return part.get("id") if isinstance(part, dict) else None


def _number(dataset: str, row: Any, *path: str) -> str:
    value = _at(dataset, row, *path)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _FormError(dataset, f"{'.'.join(path)} is not an integer: {value!r}"[:200])
    if abs(value) >= 10**MAX_DIGITS:
        raise _FormError(dataset, f"{'.'.join(path)} is too large")
    return str(value)


def _text(dataset: str, row: Any, *path: str) -> str:
    value = _at(dataset, row, *path)
    if not isinstance(value, str) or not value:
        name = ".".join(path) or "the element"
        raise _FormError(dataset, f"{name} is not a string: {value!r}"[:200])
    return value


def _fixture_id(dataset: str, parameters: Mapping[str, str]) -> str:
    fixture = parameters.get("fixture", "")
    if not is_number(fixture):
        raise _FormError(dataset, "the response does not name its fixture")
    return fixture


def _league_season(dataset: str, parameters: Mapping[str, str]) -> tuple[str, str]:
    league, season = parameters.get("league", ""), parameters.get("season", "")
    if not (is_number(league) and is_number(season)):
        raise _FormError(dataset, "the response does not name its league and season")
    return league, season


def _player_key(player: Any) -> str:
    """Return a player's id, or the name if the id is 0 or missing."""
    if not isinstance(player, dict):
        return "-"
    return str(player["id"]) if player.get("id") else f"-{player.get('name') or ''}"


# Integers in bodies from which columns are computed.
_NUMBERS = {
    "teams": ("venue.id",),
    "fixtures": (
        "fixture.timestamp",
        "fixture.status.elapsed",
        "league.id",
        "league.season",
        "teams.home.id",
        "teams.away.id",
        "goals.home",
        "goals.away",
    ),
    "fixture_events": ("time.elapsed", "time.extra", "team.id", "player.id"),
    "fixture_players": ("player.id",),
    "standings": ("rank", "points"),
    "injuries": ("fixture.timestamp", "league.id", "league.season", "team.id", "player.id"),
    "top_scorers": ("player.id",),
}
_DAY = re.compile(r"(19|20|21)[0-9]{2}-[0-9]{2}-[0-9]{2}")


def unreadable_values(dataset: str, body: Any) -> Iterator[str]:
    """Describe each value that its typed column cannot hold.

    The record is mirrored as published with NULL in the column: a league with one impossible date
    is still a league.
    """
    for path in _NUMBERS.get(dataset, ()):
        value = _value(body, path)
        if value is not None and not _is_integer(value, is_timestamp=path.endswith("timestamp")):
            yield _described(path, value, "is not a number that can be stored")
    if dataset == "leagues":
        yield from _of_seasons(body.get("seasons"))


def _of_seasons(seasons: Any) -> Iterator[str]:
    if seasons is not None and not isinstance(seasons, list):
        yield _described("seasons", seasons, "is not a list")
        return
    for number, season in enumerate(seasons or ()):
        path = f"seasons[{number}]"
        year = _value(season, "year")
        if not _is_integer(year) or not 1800 <= year <= 2200:
            yield _described(f"{path}.year", year, "is not a year")
        for name in ("start", "end"):
            day = _value(season, name)
            if day is not None and not _is_day(day):
                yield _described(f"{path}.{name}", day, "is not a day")


def _value(body: Any, path: str) -> Any:
    for step in path.split("."):
        body = body.get(step) if isinstance(body, dict) else None
    return body


def _is_integer(value: Any, *, is_timestamp: bool = False) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return EARLIEST <= value <= LATEST if is_timestamp else abs(value) < 10**MAX_DIGITS


def _is_day(value: Any) -> bool:
    if not isinstance(value, str) or _DAY.fullmatch(value) is None:
        return False
    try:
        date.fromisoformat(value)
    except ValueError:
        return False
    return True


def _described(path: str, value: Any, problem: str) -> str:
    return f"{path} {problem}: {value!r}"[:200]


def quarantine_without_league(extract: Extract) -> None:
    """Quarantine records without a league, which may belong to a followed one."""
    unassigned = [element for element in extract.elements if league_of(element) == NO_NUMBER]
    if not unassigned:
        return
    reason = "its league is missing"
    extract.unreadable += [Unreadable(one.dataset, reason, one.body) for one in unassigned]
    extract.elements = [one for one in extract.elements if league_of(one) != NO_NUMBER]
    damaged = {one.dataset for one in unassigned}
    extract.scopes = [scope for scope in extract.scopes if scope.dataset not in damaged]
