"""HTTP routes for matches as published, with Hasat's inferences in separate fields."""

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any

from fastapi import Path, Query
from psycopg import AsyncConnection
from psycopg.rows import dict_row
from starlette.responses import Response

from hasat.errors import NotFoundError, UsageError
from hasat.http.routes import ReadStoreDep, StorableText
from hasat.messages import msg
from hasat.sources.football.api import queries
from hasat.sources.football.api.queries import read_page
from hasat.sources.football.api.route_params import (
    Id,
    PageParams,
    PathId,
    item_responses,
    list_responses,
    new_router,
    page_response,
    respond,
)
from hasat.sources.football.states import State, codes_in
from hasat.sources.football.status import iso_time
from hasat.store.queries import load_query

router = new_router()

_FIXTURE = {
    "fixture": {"id": 1035037, "date": "2026-11-14T20:00:00+00:00", "status": {"short": "2H"}},
    "league": {"id": 39, "season": 2026},
    "teams": {"home": {"id": 33}, "away": {"id": 34}},
    "goals": {"home": 1, "away": 0},
    "state": "live",
    "inferred": {
        "status": "FT",
        "needsScoreVerification": True,
        "reason": "began 2026-11-14 20:00:00+00, last reported as 2H 2026-11-14 21:20:00+00",
        "inferredAt": "2026-11-15T01:00:00+00:00",
    },
    "toldAt": "2026-11-14T21:20:00+00:00",
    "unconfirmedSince": "2026-11-14T21:20:00+00:00",
    "changedAt": "2026-11-14T21:20:00+00:00",
}


@router.get(
    "/fixtures", summary="Matches", response_class=Response, responses=list_responses(_FIXTURE)
)
async def fixtures(
    store: ReadStoreDep,
    paging: PageParams,
    league: Id = None,
    season: Id = None,
    team: Id = None,
    day: Annotated[date | None, Query(alias="date", description="A day, in UTC.")] = None,
    first: Annotated[date | None, Query(alias="from", description="First day, in UTC.")] = None,
    last: Annotated[date | None, Query(alias="to", description="Last day, in UTC.")] = None,
    status: Annotated[
        StorableText | None,
        Query(min_length=1, max_length=100, description="Codes such as `FT-AET-PEN`."),
    ] = None,
    state: Annotated[State | None, Query(description="A group of status codes.")] = None,
    round_: Annotated[StorableText | None, Query(alias="round", max_length=100)] = None,
    inferred: Annotated[
        bool | None, Query(description="Only matches inferred to be finished, or only others.")
    ] = None,
) -> Response:
    """Matches as published, by kick-off. Hasat's inferences are in `inferred` only."""
    filters = {
        "league": league,
        "season": season,
        "team": team,
        "date": day,
        "from": first,
        "to": last,
        "status": codes_in(status),
        "state": None if state is None else state.value,
        "round": round_,
        "inferred": inferred,
    }
    return await page_response(store, "fixtures", queries.FIXTURES, filters, paging, _fixture)


@router.get(
    "/fixtures/{fixture_id}",
    summary="A match",
    response_class=Response,
    responses=item_responses(_FIXTURE),
)
async def fixture(fixture_id: PathId, store: ReadStoreDep) -> Response:
    async with store.connection() as conn:
        match = _fixture(await _load_fixture(conn, fixture_id))
        return await respond(conn, "fixtures", match)


@router.get(
    "/fixtures/{fixture_id}/details",
    summary="A match with all details",
    response_class=Response,
    responses=item_responses(
        {**_FIXTURE, "events": [], "lineups": [], "statistics": [], "players": []}
    ),
)
async def details(fixture_id: PathId, store: ReadStoreDep) -> Response:
    async with store.snapshot() as conn:
        match = _fixture(await _load_fixture(conn, fixture_id))
        for name in queries.BLOCKS:
            match[name] = await _block(conn, name, fixture_id)
        found = await read_page(conn, queries.INJURIES, {"fixture": fixture_id})
        match["injuries"] = [row["body"] for row in found.rows]
        return await respond(conn, "fixtures", match)


@router.get(
    "/fixtures/{fixture_id}/{block}",
    summary="One kind of details of a match",
    response_class=Response,
    responses=item_responses({"fixtureId": 1035037, "items": []}),
)
async def one_block(
    fixture_id: PathId,
    block: Annotated[str, Path(pattern="^(events|lineups|statistics|players)$")],
    store: ReadStoreDep,
) -> Response:
    """Events, lineups, statistics or players."""
    async with store.snapshot() as conn:
        await _load_fixture(conn, fixture_id)
        items = await _block(conn, block, fixture_id)
        return await respond(conn, "fixtures", {"fixtureId": fixture_id, "items": items})


@router.get(
    "/h2h",
    summary="Head to head",
    response_class=Response,
    responses=list_responses(_FIXTURE),
)
async def head_to_head(
    store: ReadStoreDep,
    paging: PageParams,
    teams: Annotated[
        str, Query(alias="h2h", pattern=r"^\d{1,18}-\d{1,18}$", description="Such as `33-34`.")
    ],
    league: Id = None,
    season: Id = None,
    status: Annotated[StorableText | None, Query(min_length=1, max_length=100)] = None,
) -> Response:
    """All matches between two teams, the latest first."""
    one, other = map(int, teams.split("-"))
    if one == other:
        raise UsageError(
            msg("The two teams must differ."), remedy=msg("Use two ids, for example h2h=33-34.")
        )
    filters = {
        "team": one,
        "opponent": other,
        "league": league,
        "season": season,
        "status": codes_in(status),
    }
    return await page_response(store, "fixtures", queries.LATEST_FIRST, filters, paging, _fixture)


@router.get(
    "/teams/{team_id}/fixtures",
    summary="A team's matches",
    response_class=Response,
    responses=list_responses(_FIXTURE),
)
async def team_fixtures(
    team_id: PathId, store: ReadStoreDep, paging: PageParams, league: Id = None, season: Id = None
) -> Response:
    """The matches of a team, the latest first."""
    filters = {"team": team_id, "league": league, "season": season}
    return await page_response(store, "fixtures", queries.LATEST_FIRST, filters, paging, _fixture)


@router.get(
    "/teams/{team_id}/metrics",
    summary="A team's recent form",
    response_class=Response,
    responses=item_responses(
        {"teamId": 33, "played": 5, "wins": 3, "draws": 1, "losses": 1, "form": "WWDLW"}
    ),
)
async def team_metrics(
    team_id: PathId,
    store: ReadStoreDep,
    league: Id = None,
    season: Id = None,
    last: Annotated[int, Query(ge=1, le=500, description="The number of finished matches.")] = 20,
) -> Response:
    """Figures from finished matches only, without inferences."""
    async with store.connection() as conn, conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(
            load_query("hasat.sources.football", "team_metrics"),
            {"team": team_id, "league": league, "season": season, "last": last},
        )
        [row] = await cursor.fetchall()
        return await respond(conn, "fixtures", {"teamId": team_id, **row})


async def _load_fixture(conn: AsyncConnection[Any], number: int) -> dict[str, Any]:
    found = await read_page(conn, queries.FIXTURES, {"id": number})
    if not found.rows:
        raise NotFoundError(
            msg("The mirror has no match {number}.", number=number),
            remedy=msg("GET /api/v1/football/fixtures lists the matches."),
        )
    return found.rows[0]


async def _block(conn: AsyncConnection[Any], name: str, number: int) -> list[Any]:
    found = await read_page(conn, queries.BLOCKS[name], {"fixture": number})
    if name != "players":
        return [row["body"] for row in found.rows]
    return [{"teamId": row["team_id"], **row["body"]} for row in found.rows]


def _fixture(row: Mapping[str, Any]) -> dict[str, Any]:
    inferred = None
    if row["inferred_status"] is not None:
        inferred = {
            "status": row["inferred_status"],
            "needsScoreVerification": row["needs_score_verification"],
            "reason": row["reason"],
            "inferredAt": iso_time(row["inferred_at"]),
        }
    return {
        **row["body"],
        "state": row["state"],
        "inferred": inferred,
        "toldAt": iso_time(row["told_at"]),
        "unconfirmedSince": iso_time(row["unconfirmed_since"]),
        "detailsAt": iso_time(row["details_at"]),
        "changedAt": iso_time(row["changed_at"]),
    }
