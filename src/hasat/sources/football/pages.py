"""Football: coverage of the tracked leagues, the matches of a day, and standings."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from importlib.resources import files
from typing import Any

from psycopg.rows import dict_row

from hasat.errors import UsageError
from hasat.messages import msg, template
from hasat.pages import NavigationEntry, Page, PageContext, PageRequest, SourcePages
from hasat.source.installed import missing_configuration
from hasat.sources.football.settings import FootballSettings
from hasat.sources.football.source import FOOTBALL
from hasat.sources.football.states import state_of
from hasat.store.queries import load_query

_MAX_MATCHES = 300

# The data of a season shown in the coverage table, with the API endpoint that provides it.
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
    """One endpoint of a season: `here`, `offered` but not fetched yet, or `not_offered`."""

    endpoint: str
    state: str


@dataclass(frozen=True)
class LeagueRow:
    """A tracked season: its matches and the coverage of each endpoint."""

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
    """A match as published, with the state that Hasat inferred, if any."""

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
class StandingsRow:
    """One team in the standings."""

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
    """The data of the page."""

    lacks: str | None
    endpoints: Sequence[str]
    leagues: Sequence[LeagueRow]
    league: int | None
    day: date
    matches: Sequence[Match]
    table: Sequence[StandingsRow]


async def football(request: PageRequest) -> Football:
    """Load the tracked leagues, the matches of one day, and the standings of one league."""
    context = request.context
    tracked = context.settings.section(FootballSettings).tracked_leagues
    chosen = request.number("league")
    day = _day(request, (await context.store.now()).astimezone(context.zone).date())
    shown = next((one for one in tracked if one.id == chosen), tracked[0] if tracked else None)
    return Football(
        lacks=missing_configuration(FOOTBALL, context.settings),
        endpoints=list(_ENDPOINTS),
        leagues=await _leagues(context),
        league=chosen,
        day=day,
        matches=await _matches(context, day, chosen),
        table=await _table(context, shown.id, shown.season) if shown and shown.id else [],
    )


def _day(request: PageRequest, today: date) -> date:
    given = request.text("day")
    try:
        return date.fromisoformat(given) if given else today
    except ValueError as error:
        raise UsageError(
            msg("{given!r} is not a date.", given=given), remedy=msg("Use the form 2026-11-16.")
        ) from error


async def _rows(context: PageContext, name: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    async with context.store.connection() as conn, conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load_query("hasat.sources.football", name), values)
        return await cursor.fetchall()


async def _leagues(context: PageContext) -> Sequence[LeagueRow]:
    tracked = context.settings.section(FootballSettings).tracked_leagues
    if not tracked:
        return []
    names = {one.id: one.name for one in tracked}
    rows = await _rows(
        context,
        "page_leagues",
        {"leagues": [one.id for one in tracked], "seasons": [one.season for one in tracked]},
    )
    return [
        LeagueRow(
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
    # Endpoints and seasons that /leagues does not mention may still be available.
    if (row["covered"] or {}).get(_ENDPOINTS[name]) is False:
        return "not_offered"
    has_data = row["detailed"] > 0 if name in _OF_MATCHES else row[name]
    return "here" if has_data else "offered"


async def _matches(context: PageContext, day: date, league: int | None) -> Sequence[Match]:
    rows = await _rows(
        context,
        "page_matches",
        {"day": day, "zone": context.zone.key, "league": league, "limit": _MAX_MATCHES},
    )
    return [Match(**row, state=state_of(row["status"]).value) for row in rows]


async def _table(context: PageContext, league: int, season: int) -> Sequence[StandingsRow]:
    rows = await _rows(context, "page_standings", {"league": league, "season": season})
    return [StandingsRow(**row) for row in rows]


PAGES = SourcePages(
    (Page("/football", "football", football, "football"),),
    files("hasat.sources.football") / "templates",
    (NavigationEntry("football", template("Football"), "/football", order=70),),
    labels={
        "coverage": {
            "here": template("Available"),
            "offered": template("Not fetched yet"),
            "not_offered": template("Not offered"),
        },
        "match_data": {
            "events": template("Events"),
            "lineups": template("Line-ups"),
            "statistics": template("Statistics"),
            "players": template("Players"),
            "standings": template("Standings"),
            "injuries": template("Injuries"),
            "top_scorers": template("Top scorers"),
            "team_statistics": template("Team statistics"),
        },
        "match_state": {
            "scheduled": template("Not started"),
            "live": template("Live"),
            "finished": template("Full time"),
            "postponed": template("Postponed"),
            "cancelled": template("Cancelled"),
            "abandoned": template("Abandoned"),
            "not_played": template("Not played"),
            "unknown": template("Unknown"),
        },
        "match_group": {
            "live": template("Live"),
            "finished": template("Finished matches"),
            "others": template("Other matches"),
        },
    },
)
