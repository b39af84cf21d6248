"""The page of the source: coverage of the tracked leagues, and the matches of a day."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from hasat.errors import UsageError
from hasat.messages import msg
from hasat.pages import PageContext, PageRequest
from hasat.source.installed import missing_configuration
from hasat.sources.football.pages.data import Match, StandingsRow, read_rows, to_match
from hasat.sources.football.settings import FootballSettings
from hasat.sources.football.source import FOOTBALL

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


async def _leagues(context: PageContext) -> Sequence[LeagueRow]:
    tracked = context.settings.section(FootballSettings).tracked_leagues
    if not tracked:
        return []
    names = {one.id: one.name for one in tracked}
    rows = await read_rows(
        context.store,
        "leagues",
        leagues=[one.id for one in tracked],
        seasons=[one.season for one in tracked],
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
    rows = await read_rows(
        context.store, "matches", day=day, zone=context.zone.key, league=league, limit=_MAX_MATCHES
    )
    return [to_match(row) for row in rows]


async def _table(context: PageContext, league: int, season: int) -> Sequence[StandingsRow]:
    rows = await read_rows(context.store, "standings", league=league, season=season)
    return [StandingsRow(**row) for row in rows]
