"""HTTP routes for what is computed from matches: tables after a round, and corrections."""

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from hasat.errors import NotFoundError, UsageError
from hasat.http.routes import ReadStoreDep, declare_responses, dumps, json_response
from hasat.messages import msg
from hasat.sources.football.api.queries import read_rows
from hasat.sources.football.api.route_params import Id, PathId, Text, item_responses, new_router
from hasat.sources.football.status import iso_time

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
    return json_response(
        dumps({"leagueId": league, "season": season, "round": round, "table": lines})
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
