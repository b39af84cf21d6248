"""HTTP routes for what is computed from matches: tables, form, seasons and corrections."""

import io
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic.alias_generators import to_camel
from starlette.responses import Response

from hasat.errors import NotFoundError, UsageError
from hasat.http.routes import ReadStoreDep, declare_responses, dumps, json_response
from hasat.messages import msg
from hasat.sources.football.api import queries
from hasat.sources.football.api.queries import read_rows
from hasat.sources.football.api.route_params import (
    Id,
    PageParams,
    PathId,
    Text,
    item_responses,
    list_responses,
    new_router,
    page_response,
)
from hasat.sources.football.status import iso_time
from hasat.tables.writer import MEDIA_TYPES, write_table
from hasat.text import MAX_EXACT_INTEGER

router = new_router()

_MAX_CORRECTIONS = 1_000
_LINE = {"rank": 1, "team_id": 33, "team": "Team", "played": 12, "points": 28, "form": "WWDLW"}


@router.get(
    "/table/{league}/{season}",
    summary="The table after a round",
    response_class=Response,
    responses=item_responses({"leagueId": 39, "season": 2026, "round": 12, "table": [_LINE]}),
)
async def table(
    league: PathId,
    season: PathId,
    store: ReadStoreDep,
    round: Annotated[int | None, Query(ge=1, le=9999, description="Default: all rounds.")] = None,  # noqa: A002 - the name of the parameter
    stage: Text = None,
    format: Literal["json", "csv", "xlsx"] = "json",  # noqa: A002 - the name of the parameter
) -> Response:
    """The table computed from the results up to a round, by points, difference and goals.

    The API's own table is `/standings`; it has the league's rules for ties and deducted points.
    """
    lines = await read_rows(
        store, "league_table", league=league, season=season, round=round, stage=stage
    )
    if not lines:
        raise NotFoundError(
            msg(
                "No finished match of league {league} in season {season} is in a numbered round.",
                league=league,
                season=season,
            )
        )
    if format != "json":
        name = f"table-{league}-{season}" + (f"-round-{round}" if round else "")
        return _table_file(lines, f"{name}.{format}", format)
    return json_response(
        dumps({"leagueId": league, "season": season, "round": round, "table": lines})
    )


def _table_file(
    lines: Sequence[Mapping[str, Any]], name: str, file_format: Literal["csv", "xlsx"]
) -> Response:
    file = io.BytesIO()
    writer = write_table(file, file_format)
    writer.add([list(lines[0]), *(list(line.values()) for line in lines)])
    writer.close()
    return Response(
        file.getvalue(),
        media_type=MEDIA_TYPES[file_format],
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


@router.get(
    "/corrections",
    summary="Results that changed after the final whistle",
    response_class=Response,
    responses=declare_responses({"items": [{"fixtureId": 7, "goalsHome": 1}]}, UsageError),
)
async def corrections(
    store: ReadStoreDep,
    league: Id = None,
    season: Id = None,
    limit: Annotated[int, Query(ge=1, le=_MAX_CORRECTIONS)] = 100,
) -> Response:
    """Corrected results, the newest first, as long as changes are stored."""
    found = await read_rows(store, "corrections", league=league, season=season, limit=limit)
    items = [one | {"changedAt": iso_time(one["changedAt"])} for one in found]
    return json_response(dumps({"items": items}))


_TEAM = {"leagueId": 39, "season": 2026, "teamId": 33, "team": "Team", "played": 12}


@router.get(
    "/form",
    summary="The last five results of teams",
    response_class=Response,
    responses=list_responses({"teamId": 33, "form": "WWDLW", "formHome": "WWW", "pointsOf5": 10}),
)
async def form(
    store: ReadStoreDep,
    paging: PageParams,
    league: Id = None,
    season: Id = None,
    team: Id = None,
) -> Response:
    """Results together, at home and away, the latest last; most points first."""
    filters = {"league": league, "season": season, "team": team}
    return await page_response(store, "fixtures", queries.TEAM_FORM, filters, paging, _computed)


@router.get(
    "/team_seasons",
    summary="Teams' seasons",
    response_class=Response,
    responses=list_responses({**_TEAM, "won": 8, "cleanSheets": 4, "form": "WWDLW"}),
)
async def team_seasons(
    store: ReadStoreDep,
    paging: PageParams,
    league: Id = None,
    season: Id = None,
    team: Id = None,
) -> Response:
    """Sums over the matches of each season."""
    filters = {"league": league, "season": season, "team": team}
    return await page_response(store, "fixtures", queries.TEAM_SEASONS, filters, paging, _computed)


@router.get(
    "/player_seasons",
    summary="Players' seasons",
    response_class=Response,
    responses=list_responses({"playerId": 7, "name": "Player", "matches": 12, "goals": 3}),
)
async def player_seasons(
    store: ReadStoreDep,
    paging: PageParams,
    league: Id = None,
    season: Id = None,
    team: Id = None,
    player: Id = None,
) -> Response:
    """Sums over the details of each season's matches; most goals first."""
    filters = {"league": league, "season": season, "team": team, "player": player}
    query = queries.PLAYER_SEASONS
    return await page_response(store, "fixtures", query, filters, paging, _computed)


@router.get(
    "/head_to_head",
    summary="The balance against opponents",
    response_class=Response,
    responses=list_responses({"teamId": 33, "opponentId": 34, "played": 6, "won": 3, "drawn": 1}),
)
async def balance(
    store: ReadStoreDep,
    paging: PageParams,
    team: Annotated[int, Query(ge=0, le=MAX_EXACT_INTEGER)],
    opponent: Id = None,
) -> Response:
    """The balance of a team against each opponent, over all mirrored seasons."""
    filters = {"team": team, "opponent": opponent}
    return await page_response(store, "fixtures", queries.HEAD_TO_HEAD, filters, paging, _computed)


def _computed(row: Mapping[str, Any]) -> Any:
    return {
        to_camel(name): iso_time(value) if isinstance(value, datetime) else value
        for name, value in row.items()
    }
