"""HTTP routes of the football mirror."""

import json
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from hasat.settings import Settings
from hasat.source import Source
from hasat.sources.football import source
from hasat.sources.football.ingest.loader import load
from hasat.sources.football.ingest.raw_store import ApiResponse
from hasat.sources.football.ingest.rebuild import rebuild
from hasat.sources.football.source import FOOTBALL
from hasat.sources.football.states import State, state_of
from hasat.store import MigrationSet, Store
from hasat.testing.http import undocumented_operations
from support.football_api import api_response

pytestmark = pytest.mark.anyio

MIGRATIONS = [source.FOOTBALL.migration_set]
V1 = "/api/v1/football"
NOVEMBER_15 = 1700006400


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return MIGRATIONS


@pytest.fixture
def sources() -> list[Source]:
    return [FOOTBALL]


async def test_the_operations_are_documented(app: FastAPI) -> None:
    assert undocumented_operations(app) == []


def fixture(number: int, home: int, away: int, day: int, status: str, **blocks: Any) -> Any:
    played = status == "FT"
    return {
        "fixture": {
            "id": number,
            "timestamp": NOVEMBER_15 + 86400 * day,
            "status": {"short": status, "long": status, "elapsed": None},
        },
        "league": {"id": 39, "name": "Premier League", "season": 2024, "round": f"Round {day}"},
        "teams": {"home": {"id": home, "name": f"T{home}"}, "away": {"id": away}},
        "goals": {"home": 2 if played else None, "away": 1 if played else None},
        "score": {},
        **blocks,
    }


DETAILS = {
    "events": [
        {
            "time": {"elapsed": 9, "extra": None},
            "team": {"id": 1},
            "player": {"id": None, "name": "100% X"},
            "type": "Goal",
        }
    ],
    "lineups": [{"team": {"id": 1}, "startXI": []}],
    "statistics": [{"team": {"id": 1}, "statistics": [{"type": "Possession", "value": "55%"}]}],
    "players": [{"team": {"id": 1}, "players": [{"player": {"id": 0, "name": "A"}}]}],
}
FLAGS = {"events": True, "lineups": True, "statistics_fixtures": False}
COVERAGE = {"fixtures": FLAGS, "standings": True, "top_scorers": False, "injuries": True}
LEAGUE = {
    "league": {"id": 39, "name": "Premier League", "type": "League"},
    "country": {"name": "England"},
    "seasons": [{"year": 2024, "current": True, "coverage": COVERAGE}],
}
TURKISH = {"league": {"id": 203, "name": "Süper Lig", "type": "League"}, "seasons": []}


@pytest.fixture
async def filled(store: Store) -> None:
    season = {"league": "39", "season": "2024"}
    matches = [
        fixture(1, 1, 2, 0, "FT"),
        fixture(2, 2, 1, 1, "2H"),
        fixture(3, 1, 3, 2, "NS"),
        fixture(4, 3, 2, 0, "FT"),
    ]
    lines = [{"team": {"id": t}, "group": g, "rank": t} for g in "AB" for t in (1, 2)]
    tables = {"league": {"id": 39, "season": 2024, "standings": [lines[:2], lines[2:]]}}
    injured = {
        "player": {"id": 7, "name": "P", "type": "Missing Fixture", "reason": "Knee"},
        "team": {"id": 1},
        "fixture": {"id": 3, "timestamp": NOVEMBER_15 + 2 * 86400},
        "league": {"id": 39, "season": 2024},
    }
    scorer = {"player": {"id": 7}, "statistics": [{"team": {"id": 1}, "goals": {"total": 3}}]}
    statistics = {"league": {"id": 39, "season": 2024}, "team": {"id": 1}, "form": "W"}
    await load(
        store,
        [
            api_response("timezone", ["UTC"]),
            api_response("countries", [{"name": "World", "code": None, "flag": None}]),
            api_response("leagues", [LEAGUE, TURKISH]),
            api_response("teams", [{"team": {"id": 1, "name": "T1"}, "venue": {}}], **season),
            api_response("fixtures", matches, **season),
            api_response("fixtures", [{**matches[0], **DETAILS}], ids="1"),
            api_response("standings", [tables], **season),
            api_response("injuries", [injured], **season),
            api_response("players/topscorers", [scorer], **season),
            api_response("teams/statistics", statistics, **season, team="1"),
        ],
        run=None,
        retention_days=30,
    )
    async with store.connection() as conn:
        await conn.execute(
            "INSERT INTO core.fixture_inferences (fixture_id, inferred_status, reason, inferred_at)"
            " VALUES (2, 'FT', 'nothing was heard', now())"
        )


async def get(client: httpx2.AsyncClient, path: str, status: int = 200) -> Any:
    found = await client.get(f"{V1}{path}")
    assert found.status_code == status, found.text
    return found.json()


def ids(page: Any) -> list[int]:
    return [item["fixture"]["id"] for item in page["items"]]


@pytest.mark.usefixtures("filled")
async def test_matches_can_be_filtered(client: httpx2.AsyncClient) -> None:
    everything = await get(client, "/fixtures")
    assert (ids(everything), everything["totalCount"]) == ([1, 4, 2, 3], 4)
    for request, wanted in {
        "league=39&season=2024&status=ft-aet": [1, 4],
        "team=3": [4, 3],
        "date=2023-11-16": [2],
        "from=2023-11-16&to=2023-11-17": [2, 3],
        "state=live": [2],
        "round=Round 2": [3],
        "inferred=true": [2],
        "inferred=false&state=scheduled": [3],
        "league=40": [],
        "pageSize=3&page=2": [3],
    }.items():
        assert ids(await get(client, f"/fixtures?{request}")) == wanted, request
    assert ids(await get(client, "/h2h?h2h=1-2")) == [2, 1]
    assert ids(await get(client, "/teams/3/fixtures")) == [3, 4]
    metrics = await get(client, "/teams/1/metrics")
    assert {name: metrics[name] for name in ("played", "wins", "goalsFor", "form")} == {
        "played": 1,
        "wins": 1,
        "goalsFor": 2,
        "form": "W",
    }


@pytest.mark.usefixtures("filled")
async def test_inference_is_separate_from_match(client: httpx2.AsyncClient) -> None:
    match = await get(client, "/fixtures/2")
    assert match["fixture"]["status"]["short"] == "2H"
    assert match["goals"] == {"home": None, "away": None}
    assert (match["state"], match["inferred"]["status"]) == ("live", "FT")
    assert match["inferred"]["needsScoreVerification"] is True
    assert (await get(client, "/fixtures/1"))["inferred"] is None


@pytest.mark.usefixtures("filled")
async def test_match_with_details(client: httpx2.AsyncClient) -> None:
    match = await get(client, "/fixtures/1/details")
    assert match["events"] == DETAILS["events"]
    assert match["statistics"] == DETAILS["statistics"]
    assert match["players"] == [{"teamId": 1, "player": {"id": 0, "name": "A"}}]
    assert (await get(client, "/fixtures/1/lineups"))["items"] == DETAILS["lineups"]
    assert (await get(client, "/fixtures/3/details"))["injuries"][0]["player"]["id"] == 7
    await get(client, "/fixtures/99/details", 404)
    await get(client, "/fixtures/1/odds", 422)


@pytest.mark.usefixtures("filled")
async def test_tables_players_and_coverage(client: httpx2.AsyncClient) -> None:
    tables = await get(client, "/standings/39/2024")
    assert [group["group"] for group in tables["groups"]] == ["A", "B"]
    assert tables == await get(client, "/standings?league=39&season=2024")
    await get(client, "/standings/40/2024", 404)
    for path in (
        "/injuries?date=2023-11-17&player=7",
        "/top_scorers?league=39",
        "/team_statistics?team=1",
        "/teams?league=39&season=2024",
        "/teams?search=t1",
        "/teams?id=1",
        "/leagues?search=premier&type=league",
        "/countries?name=World",
        "/timezones",
    ):
        page = await get(client, path)
        assert (len(page["items"]), page["totalCount"], page["totalPages"]) == (1, 1, 1), path
    assert (await get(client, "/teams?search=%25"))["items"] == []
    for one in ("super lig", "SÜPER", "süper"):
        found = (await get(client, f"/leagues?search={one}"))["items"]
        assert [league["league"]["name"] for league in found] == ["Süper Lig"]
    await get(client, "/teams?season=2024", 400)
    found = {one["endpoint"]: one for one in (await get(client, "/coverage?league=39"))["items"]}
    published = {k: (v["expected"], v["present"], v["percent"]) for k, v in found.items()}
    assert published == {
        "/fixtures": (4, 4, 100.0),
        "/fixtures/events": (2, 1, 50.0),
        "/fixtures/lineups": (2, 1, 50.0),
        "/fixtures/statistics": (0, 1, 100.0),
        "/fixtures/players": (2, 1, 50.0),
        "/teams": (3, 1, 33.33),
        "/standings": (3, 2, 66.67),
        "/teams/statistics": (3, 1, 33.33),
        "/players/topscorers": (0, 1, 100.0),
        "/injuries": (None, 1, None),
    }
    assert (await get(client, "/coverage?endpoint=standings"))["totalCount"] == 1
    assert (await get(client, "/quota"))["remaining"] == 75_000


async def covered(store: Store) -> dict[str, tuple[Any, ...]]:
    query = (
        "SELECT endpoint, expected_count, actual_count, count_coverage FROM mart.coverage_status"
    )
    async with store.connection() as conn:
        rows = await (await conn.execute(query)).fetchall()
    return {endpoint: tuple(figures) for endpoint, *figures in rows}


async def test_coverage_of_matches_uses_last_listing_of_season(
    store: Store, settings: Settings
) -> None:
    season = {"league": "39", "season": "2024"}

    async def take(one: ApiResponse) -> None:
        await load(store, [one], run=None, retention_days=30)

    await take(api_response("fixtures", [fixture(1, 1, 2, 0, "NS")], date="2023-11-15"))
    assert (await covered(store))["/fixtures"] == (None, 1, None)
    # The API counts four, sends three, and one of them cannot be read.
    sent = [fixture(1, 1, 2, 0, "NS"), fixture(2, 2, 1, 1, "NS"), {"fixture": {"id": "?"}}]
    envelope = {"get": "fixtures", "errors": [], "results": 4, "response": sent}
    await take(ApiResponse("fixtures", season, json.dumps(envelope).encode()))
    assert (await covered(store))["/fixtures"] == (4, 2, 50)
    # An empty list does not change the count of the season.
    await take(api_response("fixtures", [], **season))
    assert (await covered(store))["/fixtures"] == (4, 2, 50)
    await execute(store, "TRUNCATE football.season_listed")
    assert (await covered(store))["/fixtures"] == (None, 2, None)
    await rebuild(store, settings)
    assert (await covered(store))["/fixtures"] == (4, 2, 50)
    await take(api_response("fixtures", sent[:2], **season))
    assert (await covered(store))["/fixtures"] == (2, 2, 100)


@pytest.mark.parametrize("one_by_one", [False, True])
async def test_fetched_empty_list_of_events_is_not_missing(
    store: Store, settings: Settings, one_by_one: bool
) -> None:
    nothing: dict[str, Any] = {**DETAILS, "events": []}

    async def details_of(match: Any) -> None:
        responses = [api_response("fixtures", [{**match, **nothing}], ids="1")]
        if one_by_one:
            responses = [
                api_response(f"fixtures/{block}", rows, fixture="1")
                for block, rows in nothing.items()
            ]
        for one in responses:
            await load(store, [one], run=None, retention_days=30)
        if one_by_one:
            await execute(store, "UPDATE football.fixture_told SET details_at = clock_timestamp()")

    async def events() -> tuple[Any, ...]:
        return (await covered(store))["/fixtures/events"]

    before, after = fixture(1, 1, 2, 0, "NS"), fixture(1, 1, 2, 0, "FT")
    await load(store, [api_response("fixtures", [before], ids="1")], run=None, retention_days=30)
    await details_of(before)
    # Details fetched before the match ended do not count as its events.
    await execute(store, "UPDATE football.fixture_told SET details_at = now() - interval '2 hours'")
    ended = api_response("fixtures", [after], date="2023-11-15")
    await load(store, [ended], run=None, retention_days=30)
    assert await events() == (1, 0, 0)
    await details_of(after)
    assert await events() == (1, 1, 100)
    assert (await covered(store))["/fixtures/lineups"] == (1, 1, 100)
    await execute(store, "TRUNCATE football.fixture_told")
    assert await events() == (1, 0, 0)
    await rebuild(store, settings)
    assert await events() == (1, 1, 100)


@pytest.mark.parametrize(
    ("endpoint", "team"),
    [("standings", 0), ("players/topscorers", 0), ("teams/statistics", 1)],
)
async def test_fetched_empty_table_is_not_missing(store: Store, endpoint: str, team: int) -> None:
    ended = [fixture(1, 1, 2, 0, "FT")]
    await load(store, [api_response("fixtures", ended, ids="1")], run=None, retention_days=30)

    async def present() -> int:
        _, actual, _ = (await covered(store))[f"/{endpoint}"]
        return int(actual)

    async def respond(age: str) -> None:
        await execute(
            store,
            "INSERT INTO football.season_asked VALUES"
            f" ('{endpoint}', 39, 2024, {team}, clock_timestamp() - interval '{age}')"
            " ON CONFLICT (endpoint, league_id, season, team_id)"
            " DO UPDATE SET asked_at = EXCLUDED.asked_at",
        )

    assert await present() == 0
    # Before the match ended the table was empty for another reason.
    await respond("2 hours")
    assert await present() == 0
    await respond("0")
    assert await present() == (2 if endpoint == "standings" else 1)


async def execute(store: Store, statement: Any) -> None:
    async with store.connection() as conn:
        await conn.execute(statement)


@pytest.mark.usefixtures("filled")
async def test_every_dataset_has_feed_and_archives(client: httpx2.AsyncClient) -> None:
    found = await client.get("/api/v1/fixtures/changes")
    assert {change["key"] for change in found.json()["changes"]} == {"1", "2", "3", "4"}
    assert (await client.get("/api/v1/fixtures/1/history")).json()["history"]
    assert (await client.get("/api/v1/fixture_events/digest")).json()["count"] == 1
    assert (await client.get("/api/v1/standings/archives")).status_code == 200
    answered = await client.get(f"{V1}/fixtures")
    assert answered.headers["X-Last-Sync-At"]


async def test_unknown_filter_and_empty_mirror_are_reported(client: httpx2.AsyncClient) -> None:
    assert (await get(client, "/fixtures?leage=39", 400))["detail"].startswith("Unknown parameter")
    for path in ("/fixtures", "/fixtures/1", "/standings/39/2024", "/coverage"):
        assert (await client.get(f"{V1}{path}")).status_code in (404, 503), path
    await get(client, "/fixtures?date=yesterday", 422)
    await get(client, "/h2h?h2h=33", 422)
    await get(client, "/fixtures?status=", 422)
    assert "must differ" in (await get(client, "/h2h?h2h=33-33", 400))["detail"]
    assert "more than once" in (await get(client, "/fixtures?league=1&league=2", 422))["detail"]


@pytest.mark.usefixtures("filled")
async def test_status_and_metrics(client: httpx2.AsyncClient) -> None:
    status = (await client.get("/api/v1/status")).json()
    [football] = status["sources"]
    assert (football["fixtures"], football["inferred"]) == (4, 1)
    assert football["quota"]["remaining"] == 75_000
    metrics = (await client.get("/metrics")).text
    assert 'hasat_football_fixtures{state="finished"} 2.0' in metrics
    assert "hasat_football_inferred_fixtures 1.0" in metrics


async def test_database_and_code_have_same_states(store: Store) -> None:
    live = ["1H", "HT", "2H", "ET", "BT", "P", "SUSP", "INT", "LIVE"]
    codes = ["TBD", "NS", *live, "FT", "AET", "PEN", "PST", "CANC", "ABD", "AWD", "WO", "??"]
    async with store.connection() as conn:
        for code in codes:
            row = await (await conn.execute("SELECT football.state_of(%s)", [code])).fetchone()
            assert row == (state_of(code).value,)
    assert {state_of(code) for code in codes} == set(State)


async def test_table_and_corrections(client: httpx2.AsyncClient, store: Store) -> None:
    played = fixture(1, 1, 2, 1, "FT")
    played["league"]["round"] = "Regular Season - 1"
    season = {"league": "39", "season": "2024"}
    await load(store, [api_response("fixtures", [played], **season)], run=None, retention_days=30)
    table = (await client.get(f"{V1}/table/39/2024", params={"round": 1})).json()
    assert [(one["team_id"], one["points"], one["form"]) for one in table["table"]] == [
        (1, 3, "W"),
        (2, 0, "L"),
    ]
    file = await client.get(f"{V1}/table/39/2024", params={"round": 1, "format": "csv"})
    assert 'filename="table-39-2024-round-1.csv"' in file.headers["content-disposition"]
    first, *lines = file.content.decode("utf-8-sig").splitlines()
    assert first.split(";")[:3] == list(table["table"][0])[:3]
    assert len(lines) == len(table["table"])
    workbook = await client.get(f"{V1}/table/39/2024", params={"format": "xlsx"})
    assert workbook.content.startswith(b"PK")
    assert (await client.get(f"{V1}/table/39/1999")).status_code == 404
    assert (await client.get(f"{V1}/table/39/2024", params={"round": 0})).status_code == 422
    assert (await client.get(f"{V1}/corrections")).json() == {"items": []}
    played["goals"]["home"] = 3
    await load(store, [api_response("fixtures", [played], **season)], run=None, retention_days=30)
    [found] = (await client.get(f"{V1}/corrections", params={"league": 39})).json()["items"]
    assert (found["homeBefore"], found["goalsHome"]) == (2, 3)
    assert (await client.get(f"{V1}/corrections", params={"league": 40})).json() == {"items": []}


async def test_form_seasons_and_balances(client: httpx2.AsyncClient, store: Store) -> None:
    season = {"league": "39", "season": "2024"}
    matches = [fixture(number, 1, 2, number, "FT") for number in (1, 2, 3)]
    await load(store, [api_response("fixtures", matches, **season)], run=None, retention_days=30)
    of_team = {"league": 39, "season": 2024, "team": 1}
    [found] = (await client.get(f"{V1}/form", params=of_team)).json()["items"]
    assert (found["form"], found["formHome"], found["pointsOf5"]) == ("WWW", "WWW", 9)
    assert found["formAway"] == ""
    [found] = (await client.get(f"{V1}/team_seasons", params=of_team)).json()["items"]
    assert (found["played"], found["won"], found["leagueId"]) == (3, 3, 39)
    [found] = (await client.get(f"{V1}/head_to_head", params={"team": 2})).json()["items"]
    assert (found["opponentId"], found["played"], found["lost"]) == (1, 3, 3)
    assert (await client.get(f"{V1}/head_to_head")).status_code == 422
    players = (await client.get(f"{V1}/player_seasons", params={"player": 7})).json()
    assert players["totalCount"] == len(players["items"])
