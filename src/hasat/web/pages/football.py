"""Football: what the API covers and what is here of it, matches of a day, and tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from psycopg.rows import dict_row

from hasat.errors import NotFoundError, UsageError
from hasat.messages import msg
from hasat.sources.football.datasets import state_of
from hasat.store.queries import load_query
from hasat.web.page import Asked, House, Page

_MOST_MATCHES = 300

# What is shown of a league's season, by the endpoint that tells it.
_ENDPOINTS = {
    "events": "/fixtures/events",
    "lineups": "/fixtures/lineups",
    "statistics": "/fixtures/statistics",
    "players": "/fixtures/players",
    "standings": "/standings",
    "injuries": "/injuries",
    "top_scorers": "/players/topscorers",
    "team_statistics": "/teams/statistics",
}
_OF_MATCHES = frozenset({"events", "lineups", "statistics", "players"})


@dataclass(frozen=True)
class Cell:
    """One endpoint of a league's season: `here`, `offered` but not here yet, or `not_offered`."""

    endpoint: str
    state: str


@dataclass(frozen=True)
class LeagueLine:
    """A followed season: its matches, and what there is of each endpoint."""

    league_id: int
    season: int
    name: str
    country: str | None
    matches: int
    expected: int | None
    finished: int
    detailed: int
    inferred: int
    cells: Sequence[Cell]


@dataclass(frozen=True)
class Match:
    """A match as the API told it; what Hasat infers stands beside it."""

    fixture_id: int
    league: str | None
    date: datetime
    home: str | None
    away: str | None
    goals_home: int | None
    goals_away: int | None
    status: str | None
    state: str
    elapsed: int | None
    inferred: str | None
    reason: str | None


@dataclass(frozen=True)
class TableLine:
    """A team's line of a table."""

    group: str | None
    rank: int | None
    team: str | None
    played: int | None
    won: int | None
    drawn: int | None
    lost: int | None
    scored: int | None
    conceded: int | None
    points: int | None
    form: str | None


@dataclass(frozen=True)
class Football:
    """All of the page."""

    lacks: str | None
    endpoints: Sequence[str]
    leagues: Sequence[LeagueLine]
    league: int | None
    day: date
    matches: Sequence[Match]
    table: Sequence[TableLine]


async def football(asked: Asked) -> Football:
    """The followed leagues, one day of matches, one league's table."""
    house = asked.house
    source = next((one for one in house.sources if one.name == "football"), None)
    if source is None:
        raise NotFoundError(msg("The source football is not installed here."))
    tracked = house.settings.football.tracked_leagues
    chosen = asked.number("league")
    day = _day(asked, (await house.store.now()).astimezone(house.zone).date())
    shown = next((one for one in tracked if one.id == chosen), tracked[0] if tracked else None)
    return Football(
        lacks=source.lacks(house.settings) if source.lacks else None,
        endpoints=list(_ENDPOINTS),
        leagues=await _leagues(house),
        league=chosen,
        day=day,
        matches=await _matches(house, day, chosen),
        table=await _table(house, shown.id, shown.season) if shown and shown.id else [],
    )


def _day(asked: Asked, today: date) -> date:
    given = asked.text("day")
    try:
        return date.fromisoformat(given) if given else today
    except ValueError as error:
        raise UsageError(
            msg("{given!r} is not a day.", given=given), remedy=msg("Write it as 2026-11-16.")
        ) from error


async def _rows(house: House, name: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    async with house.store.connection() as conn, conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load_query("hasat.web", name), values)
        return await cursor.fetchall()


async def _leagues(house: House) -> Sequence[LeagueLine]:
    tracked = house.settings.football.tracked_leagues
    if not tracked:
        return []
    names = {one.id: one.name for one in tracked}
    rows = await _rows(
        house,
        "football_leagues",
        {"leagues": [one.id for one in tracked], "seasons": [one.season for one in tracked]},
    )
    return [
        LeagueLine(
            league_id=row["league_id"],
            season=row["season"],
            name=row["name"] or names[row["league_id"]] or str(row["league_id"]),
            country=row["country"],
            matches=row["matches"],
            expected=row["expected"],
            finished=row["finished"],
            detailed=row["detailed"],
            inferred=row["inferred"],
            cells=[Cell(name, _cell(name, row)) for name in _ENDPOINTS],
        )
        for row in rows
    ]


def _cell(name: str, row: dict[str, Any]) -> str:
    # What /leagues does not say is worth a try, and so is a season that it does not list.
    if (row["covered"] or {}).get(_ENDPOINTS[name]) is False:
        return "not_offered"
    here = row["detailed"] > 0 if name in _OF_MATCHES else row[name]
    return "here" if here else "offered"


async def _matches(house: House, day: date, league: int | None) -> Sequence[Match]:
    rows = await _rows(
        house,
        "football_matches",
        {"day": day, "zone": house.zone.key, "league": league, "limit": _MOST_MATCHES},
    )
    return [Match(**row, state=state_of(row["status"]).value) for row in rows]


async def _table(house: House, league: int, season: int) -> Sequence[TableLine]:
    rows = await _rows(house, "football_table", {"league": league, "season": season})
    return [TableLine(**row) for row in rows]


PAGES = (Page("/football", "football", football, "football"),)
