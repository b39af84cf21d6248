"""HTTP routes for tables, players, teams, coverage and quota."""

from collections.abc import Mapping
from datetime import date
from itertools import groupby
from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from hasat.errors import DatabaseError, NotFoundError, UsageError
from hasat.http.routes import (
    ReadStoreDep,
    SettingsDep,
    StorableText,
    StoreDep,
    declare_responses,
    dumps,
    json_response,
)
from hasat.messages import msg
from hasat.sources.football.api import queries
from hasat.sources.football.api.queries import read_page
from hasat.sources.football.api.route_params import (
    Id,
    PageParams,
    PathId,
    Text,
    item_responses,
    list_responses,
    new_router,
    page_response,
    respond,
)
from hasat.sources.football.status import iso_time, quota_of
from hasat.store import Store
from hasat.text import MAX_EXACT_INTEGER

router = new_router()

_MAX_ROWS = 10_000
_TABLE = {"leagueId": 39, "season": 2026, "groups": [{"group": "Premier League", "table": []}]}


@router.get(
    "/teams", summary="Teams", response_class=Response, responses=list_responses({"team": {}})
)
async def teams(
    store: ReadStoreDep,
    paging: PageParams,
    number: Annotated[int | None, Query(ge=0, le=MAX_EXACT_INTEGER, alias="id")] = None,
    league: Id = None,
    season: Id = None,
    country: Text = None,
    search: Text = None,
) -> Response:
    """Teams by name; with `league`, the teams with a match in it."""
    if season is not None and league is None:
        raise UsageError(msg("`season` requires `league`."), remedy=msg("Add the league."))
    of = None if league is None else [league, season]
    filters = {"id": number, "of": of, "country": country, "search": search}
    return await page_response(store, "teams", queries.TEAMS, filters, paging)


@router.get(
    "/standings/{league}/{season}",
    summary="A season's tables",
    response_class=Response,
    responses=item_responses(_TABLE),
)
async def tables(league: PathId, season: PathId, store: ReadStoreDep) -> Response:
    """All groups of a season's tables; a team may be in several."""
    return await _tables(store, league, season, None)


@router.get(
    "/standings",
    summary="A season's tables",
    response_class=Response,
    responses=item_responses(_TABLE),
)
async def standings(
    store: ReadStoreDep,
    league: Annotated[int, Query(ge=0, le=MAX_EXACT_INTEGER)],
    season: Annotated[int, Query(ge=0, le=MAX_EXACT_INTEGER)],
    team: Id = None,
) -> Response:
    """All groups of a season's tables, or the lines of one team."""
    return await _tables(store, league, season, team)


async def _tables(store: Store, league: int, season: int, team: int | None) -> Response:
    filters = {"league": league, "season": season, "team": team}
    async with store.snapshot() as conn:
        found = await read_page(conn, queries.STANDINGS, filters, size=_MAX_ROWS)
        if not found.rows:
            raise NotFoundError(
                msg(
                    "The mirror has no table for league {league}, season {season}.",
                    league=league,
                    season=season,
                ),
                remedy=msg("GET /api/v1/football/coverage lists what is available."),
            )
        groups = [
            {"group": name, "table": [row["body"] for row in rows]}
            for name, rows in groupby(found.rows, key=lambda row: row["group_name"])
        ]
        content = {"leagueId": league, "season": season, "groups": groups}
        return await respond(conn, "standings", content)


@router.get(
    "/injuries",
    summary="Injuries and suspensions",
    response_class=Response,
    responses=list_responses({}),
)
async def injuries(
    store: ReadStoreDep,
    paging: PageParams,
    league: Id = None,
    season: Id = None,
    team: Id = None,
    fixture: Id = None,
    player: Id = None,
    day: Annotated[date | None, Query(alias="date", description="The day of the match.")] = None,
) -> Response:
    filters = {
        "league": league,
        "season": season,
        "team": team,
        "fixture": fixture,
        "player": player,
        "date": day,
    }
    return await page_response(store, "injuries", queries.INJURIES, filters, paging)


@router.get(
    "/top_scorers", summary="Top scorers", response_class=Response, responses=list_responses({})
)
async def top_scorers(
    store: ReadStoreDep, paging: PageParams, league: Id = None, season: Id = None, team: Id = None
) -> Response:
    """Top scorers, the most goals first."""
    filters = {"league": league, "season": season, "team": team}
    return await page_response(store, "top_scorers", queries.TOP_SCORERS, filters, paging, _scorer)


@router.get(
    "/team_statistics",
    summary="Team statistics",
    response_class=Response,
    responses=list_responses({}),
)
async def team_statistics(
    store: ReadStoreDep, paging: PageParams, league: Id = None, season: Id = None, team: Id = None
) -> Response:
    filters = {"league": league, "season": season, "team": team}
    return await page_response(store, "team_statistics", queries.TEAM_STATISTICS, filters, paging)


@router.get("/leagues", summary="Leagues", response_class=Response, responses=list_responses({}))
async def leagues(
    store: ReadStoreDep,
    paging: PageParams,
    number: Annotated[int | None, Query(ge=0, le=MAX_EXACT_INTEGER, alias="id")] = None,
    country: Text = None,
    kind: Annotated[StorableText | None, Query(max_length=20, alias="type")] = None,
    search: Text = None,
) -> Response:
    filters = {"id": number, "country": country, "type": kind, "search": search}
    return await page_response(store, "leagues", queries.LEAGUES, filters, paging)


@router.get(
    "/countries", summary="Countries", response_class=Response, responses=list_responses({})
)
async def countries(store: ReadStoreDep, paging: PageParams, name: Text = None) -> Response:
    return await page_response(store, "countries", queries.COUNTRIES, {"name": name}, paging)


@router.get(
    "/timezones", summary="Time zones", response_class=Response, responses=list_responses("UTC")
)
async def timezones(store: ReadStoreDep, paging: PageParams) -> Response:
    return await page_response(store, "timezones", queries.TIMEZONES, {}, paging)


_COVERAGE = {
    "leagueId": 39,
    "leagueName": "Premier League",
    "season": 2026,
    "endpoint": "/fixtures/events",
    "covered": True,
    "expected": 110,
    "present": 110,
    "percent": 100.0,
    "lastUpdate": "2026-11-14T23:30:00+00:00",
}


@router.get(
    "/coverage",
    summary="Coverage",
    response_class=Response,
    responses=list_responses(_COVERAGE),
)
async def coverage(
    store: ReadStoreDep,
    paging: PageParams,
    league: Id = None,
    season: Id = None,
    endpoint: Annotated[
        StorableText | None, Query(max_length=40, description="/standings, ...")
    ] = None,
) -> Response:
    """Expected and present records by league, season and endpoint.

    `expected` is 0 for what the API does not cover, and null if it is unknown. For matches it is
    the count in the API's last listing of the whole season.
    """
    if endpoint is not None:
        endpoint = f"/{endpoint.lstrip('/')}"
    filters = {"league": league, "season": season, "endpoint": endpoint}
    return await page_response(store, "leagues", queries.COVERAGE, filters, paging, _covered)


@router.get("/quota", summary="Quota", responses=declare_responses({}, DatabaseError))
async def quota(store: StoreDep, settings: SettingsDep) -> Response:
    """The budget windows of API-Football; /api/v1/quota also has lanes and jobs."""
    return json_response(dumps(await quota_of(store, settings)))


def _scorer(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"leagueId": row["league_id"], "season": row["season"], **row["body"]}


def _covered(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "leagueId": row["league_id"],
        "leagueName": row["league_name"],
        "season": row["season"],
        "endpoint": row["endpoint"],
        "covered": row["covered"],
        "expected": row["expected_count"],
        "present": row["actual_count"],
        "percent": None if row["count_coverage"] is None else float(row["count_coverage"]),
        "lastUpdate": iso_time(row["last_update"]),
    }
