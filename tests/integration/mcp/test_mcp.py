"""The tools for assistants, asked by a real client over every transport."""

import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from mcp.client import Client
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from hasat.api.app import create_app
from hasat.api.keys import create_key
from hasat.budget import Budget, Remaining
from hasat.console.runtime import build_catalogue, source_migrations
from hasat.http.listener import Listener, bind
from hasat.jobs import run_in_foreground
from hasat.mcp.server import ToolServers, serve_streamable
from hasat.settings import Settings
from hasat.source import ToolContext
from hasat.source.installed import all_sources
from hasat.sources.football.ingest.loader import load
from hasat.sources.football.ingest.raw_store import ApiResponse
from hasat.sources.football.settings import FootballSettings, football_upstream
from hasat.sources.football.simulator.world import make_world
from hasat.sources.football.status import quota_of
from hasat.store import MigrationSet, Store
from hasat.store.audit import list_audit
from support.processes import Installation, eventually, free_port

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

SEED_TOOLS = {
    "stale_fixtures_report": {"threshold_hours", "safety_lag_hours"},
    "auto_finish_stats": {"hours"},
    "get_job_status": {"job_name"},
    "get_stale_live_fixtures_status": {"threshold_minutes"},
    "get_rate_limit_status": set(),
    "get_database_stats": set(),
}
OPERATING = {"run_job", "stop_run", "approve_hold", "reject_hold"}


@pytest.fixture
def migrations() -> Sequence[MigrationSet]:
    return source_migrations()


@pytest.fixture
def settings(settings: Settings) -> Settings:
    tracked = [{"id": 39, "season": 2026, "name": "League 1"}]
    section = {
        **settings.section(FootballSettings).model_dump(),
        "api_key": "k",
        "tracked_leagues": tracked,
    }
    football = type(settings.section(FootballSettings)).model_validate(section)
    return settings.model_copy(update={"football": football})


def assistant_of(settings: Settings, store: Store) -> ToolServers:
    return ToolServers(ToolContext(store, settings, build_catalogue(settings)), all_sources())


async def call_tool(client: Client, tool: str, **arguments: Any) -> Any:
    """Return the structured content of a tool's response; its text is the same."""
    answer = await client.call_tool(tool, arguments)
    assert not answer.is_error, answer.content
    assert answer.structured_content is not None
    assert answer.structured_content["ok"] is True
    return answer.structured_content


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    answer = await client.call_tool(tool, arguments)
    assert answer.is_error
    return str(answer.content[0].text)  # type: ignore[union-attr]


async def fill(store: Store) -> Any:
    """A round of matches as the API reported it while they were played, five hours ago."""
    now = await store.now()
    world = make_world(7, now - timedelta(days=3), 1, 6)
    match = next(m for m in world.matches.values() if m.fate == "played")
    moment = match.at(match.kick_off + timedelta(minutes=30))
    later = int((now - timedelta(hours=5)).timestamp())
    body = moment.body()
    body["fixture"]["timestamp"] = later
    coverage = {"fixtures": {"events": True}, "standings": True}
    league = {
        "league": {"id": 39, "name": "League 1", "type": "League"},
        "country": {"name": "Country 0"},
        "seasons": [{"year": body["league"]["season"], "coverage": coverage}],
    }
    answers = [
        _answer("leagues", {}, [league]),
        _answer("fixtures", {"ids": str(match.id)}, [{**body, **moment.blocks()}]),
    ]
    await load(store, answers, run=None, retention_days=90)
    async with store.connection() as conn:
        await conn.execute("UPDATE football.fixture_told SET told_at = now() - interval '4 hours'")
    return match


def _answer(endpoint: str, parameters: dict[str, str], response: Any) -> ApiResponse:
    envelope = {"get": endpoint, "parameters": parameters, "errors": [], "results": len(response)}
    body = {**envelope, "paging": {"current": 1, "total": 1}, "response": response}
    return ApiResponse(endpoint, parameters, json.dumps(body).encode())


async def test_the_tools_of_the_original_have_its_arguments_and_typed_answers(
    settings: Settings, store: Store
) -> None:
    async with Client(assistant_of(settings, store).reading) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    for name, arguments in SEED_TOOLS.items():
        assert arguments <= tools[name].input_schema["properties"].keys(), name
    for name, tool in tools.items():
        assert tool.description, name
        assert tool.output_schema is not None, name
        assert "ts_utc" in tool.output_schema["properties"], name
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint, name
    assert not OPERATING & tools.keys()


async def test_matches_and_what_is_inferred_about_them(settings: Settings, store: Store) -> None:
    match = await fill(store)
    async with Client(assistant_of(settings, store).reading) as client:
        stale = await call_tool(
            client, "stale_fixtures_report", threshold_hours=2, safety_lag_hours=3
        )
        assert (stale["total"], stale["by_status"]) == (1, {"1H": 1})
        live = await call_tool(client, "get_stale_live_fixtures_status", threshold_minutes=15)
        assert [one["fixture_id"] for one in live["items"]] == [match.id]
        none = await call_tool(client, "stale_fixtures_report", threshold_hours=6)
        assert none["items"] == []
        # To try out what would be marked marks nothing.
        name, params = "auto_finish_stale_fixtures", {"dry_run": True}
        tried = await run_in_foreground(build_catalogue(settings), store, settings, name, params)
        assert tried.outcome == "done"
        assert (await call_tool(client, "auto_finish_stats"))["auto_finished"] == 0
        async with store.connection() as conn:
            await conn.execute(
                "INSERT INTO core.fixture_inferences"
                " VALUES (%s, 'FT', true, 'silence', clock_timestamp())",
                [match.id],
            )
        stats = await call_tool(client, "auto_finish_stats", hours=24)
        assert (stats["auto_finished"], stats["still_inferred"]) == (1, 1)
        [shown] = (await call_tool(client, "query_fixtures", league_id=39))["items"]
        assert (shown["status_short"], shown["inferred_status"]) == ("1H", "FT")
        for codes, found in (("1h-HT", 1), ("FT", 0)):
            assert len((await call_tool(client, "query_fixtures", status=codes))["items"]) == found
        events = await call_tool(client, "query_fixture_events", fixture_id=match.id)
        assert events["total"] == len([goal for goal in match.goals if goal[0] <= 31])
        players = await call_tool(client, "query_fixture_players", fixture_id=match.id)
        assert players["total"] == 24
        status = await call_tool(client, "get_fixture_detail_status", fixture_id=match.id)
        assert (status["fixture"]["fixture_id"], status["players"]) == (match.id, 24)
        lacking = await call_tool(client, "get_coverage_status", league_id=39, endpoint="standings")
        assert [(one["expected_count"], one["actual_count"]) for one in lacking["items"]] == [
            (2, 0)
        ]
        summed = await call_tool(client, "get_coverage_summary", season=match.season)
        assert "/fixtures" in {one["endpoint"] for one in summed["items"]}
        assert "no match 1" in await refused(client, "get_fixture_detail_status", fixture_id=1)
        [league] = (await call_tool(client, "list_tracked_leagues"))["items"]
        assert (league["name"], league["league_id"]) == ("League 1", 39)
        assert (await call_tool(client, "get_league_info", league_id=39))["name"] == "League 1"
        for tool in ("query_teams", "query_injuries", "get_backfill_progress"):
            assert (await call_tool(client, tool))["items"] == []
        for tool in ("get_raw_error_summary", "get_raw_error_samples"):
            assert (await call_tool(client, tool))["items"] == []
        assert (await call_tool(client, "query_standings", league_id=39, season=2026))["total"] == 0
        synced = await call_tool(client, "get_last_sync_time", endpoint="fixtures")
        assert [one["endpoint"] for one in synced["items"]] == ["/fixtures"]
        sentence = await refused(client, "query_fixture_events", fixture_id=1)
        assert "no match 1" in sentence
        sentence = await refused(client, "query_fixtures", fixture_id=10**30)
        assert "fixture_id" in sentence
        assert "less than" in sentence


async def test_a_league_of_odd_seasons_is_told_as_far_as_it_can_be_read(
    settings: Settings, store: Store
) -> None:
    for seasons, readable in ((None, 0), ({"year": 2026}, 0), (["?", {"year": 2026}], 1)):
        league = {"league": {"id": 39, "name": "League 1"}, "seasons": seasons}
        await load(store, [_answer("leagues", {}, [league])], run=None, retention_days=90)
        async with Client(assistant_of(settings, store).reading) as client:
            [tracked] = (await call_tool(client, "list_tracked_leagues"))["items"]
            assert (tracked["name"], tracked["coverage"]) == ("League 1", None)
            listed = await call_tool(client, "get_league_info", league_id=39)
            assert len(listed["seasons"]) == readable


async def test_what_an_element_does_not_say_of_itself_stands_beside_it(
    settings: Settings, store: Store
) -> None:
    match = await fill(store)
    for season in (2025, 2026):
        line = {"rank": 1, "group": "A", "team": {"id": 33}}
        table = {"league": {"id": 39, "season": season, "standings": [[line]]}}
        asked = {"league": "39", "season": str(season)}
        await load(store, [_answer("standings", asked, [table])], run=None, retention_days=90)
    async with Client(assistant_of(settings, store).reading) as client:
        lines = (await call_tool(client, "query_standings", league_id=39))["items"]
        assert [line["season"] for line in lines] == [2026, 2025]
        players = (await call_tool(client, "query_fixture_players", fixture_id=match.id))["items"]
        teams = match.at(match.kick_off).body()["teams"]
        sides = {teams[side]["id"] for side in ("home", "away")}
        assert {player["team_id"] for player in players} == sides


async def test_teams_and_players_of_a_league_can_be_found(settings: Settings, store: Store) -> None:
    await fill(store)
    asked = {"league": "39", "season": "2026"}
    names = {1: "Galatasaray SK", 2: "Fenerbahçe"}
    teams = [{"team": {"id": number, "name": name}} for number, name in names.items()]
    scorers = [
        {"player": {"id": goals}, "statistics": [{"goals": {"total": goals}}]} for goals in (5, 20)
    ]
    figures = {"league": {"id": 39, "season": 2026}, "team": {"id": 1}, "form": "WWD"}
    answers = [
        _answer("teams", asked, teams),
        _answer("players/topscorers", asked, scorers),
        _answer("teams/statistics", asked | {"team": "1"}, figures),
    ]
    await load(store, answers, run=None, retention_days=90)
    async with Client(assistant_of(settings, store).reading) as client:
        [found] = (await call_tool(client, "query_teams", name="galatasaray"))["items"]
        assert found["team"]["id"] == 1
        # Neither has a match in it.
        assert (await call_tool(client, "query_teams", league_id=39))["total"] == 0
        top = (await call_tool(client, "query_top_scorers", league_id=39))["items"]
        assert [(one["season"], one["player"]["id"]) for one in top] == [(2026, 20), (2026, 5)]
        [one] = (await call_tool(client, "query_team_statistics", team_id=1))["items"]
        assert one == figures


async def test_what_was_asked_wrongly_is_said_and_never_passed_over(
    settings: Settings, store: Store
) -> None:
    async with Client(assistant_of(settings, store).operating) as client:
        sentence = await refused(client, "query_fixtures", league=39)
        assert sentence.startswith("query_fixtures has no argument 'league'. Arguments: league_id,")
        sentence = await refused(client, "run_job", job_name="daily_standings", force=True)
        assert "no argument 'force'" in sentence
        sentence = await refused(client, "get_league_info")
        assert sentence == "Invalid arguments of get_league_info: league_id: Field required."
        assert (await call_tool(client, "list_job_runs"))["items"] == []


async def test_a_cut_list_says_that_there_is_more(settings: Settings, store: Store) -> None:
    now = await store.now()
    matches = list(make_world(7, now, 1, 6).matches.values())
    bodies = [match.at(now).body() for match in matches[:3]]
    await load(store, [_answer("fixtures", {"date": "x"}, bodies)], run=None, retention_days=90)
    async with Client(assistant_of(settings, store).reading) as client:
        for limit, more in ((2, True), (3, False)):
            shown = await call_tool(client, "query_fixtures", limit=limit)
            assert (len(shown["items"]), shown["more"]) == (limit, more)


async def test_the_smaller_limit_rules(settings: Settings, store: Store) -> None:
    # Also in the first minutes of a day, when its counts may be those of the day before.
    upstream = replace(football_upstream(settings), opening_seconds=0)
    async with Budget(store, upstream) as budget:
        grant = await budget.acquire("daily", job="x")
        await grant.settle("ok", Remaining(day=99, day_limit=100, minute=9, minute_limit=10))
    async with Client(assistant_of(settings, store).reading) as client:
        limits = await call_tool(client, "get_rate_limit_status")
    assert (limits["daily_limit"], limits["daily_remaining"]) == (100, 99)
    assert (limits["minute_limit"], limits["minute_remaining"]) == (10, 9)
    quota = await quota_of(store, settings)
    assert (quota["planLimit"], quota["minutePlanLimit"]) == (100, 10)


async def test_the_house_and_its_datasets(settings: Settings, store: Store) -> None:
    match = await fill(store)
    async with Client(assistant_of(settings, store).reading) as client:
        status = await call_tool(client, "get_job_status", job_name="auto_finish_verification")
        assert [one["name"] for one in status["items"]] == ["auto_finish_verification"]
        assert len((await call_tool(client, "get_job_status"))["items"]) > 15
        limits = await call_tool(client, "get_rate_limit_status")
        assert (limits["upstream"], limits["daily_limit"]) == ("football", 75_000)
        assert limits["daily_remaining"] == 75_000
        stats = await call_tool(client, "get_database_stats")
        records = {one["dataset"]: one["records"] for one in stats["datasets"]}
        assert (records["fixtures"], records["fixture_players"]) == (1, 24)
        changes = await call_tool(client, "get_recent_changes", dataset="fixtures", limit=5)
        assert [(one["kind"], one["key"]) for one in changes["items"]] == [("added", str(match.id))]
        past = await call_tool(client, "get_record_history", dataset="fixtures", key=str(match.id))
        assert len(past["items"]) == 1
        listed = await call_tool(
            client, "list_records", dataset="fixtures", filters={"league_id": "39"}, sort="-date"
        )
        assert ([one["key"] for one in listed["items"]], listed["next"]) == ([str(match.id)], None)
        one = await call_tool(client, "get_record", dataset="fixtures", key=str(match.id))
        assert one["items"] == listed["items"]
        players: list[str] = []
        after: dict[str, str] = {}
        while True:
            page = await call_tool(
                client, "list_records", dataset="fixture_players", sort="name", limit=7, **after
            )
            players += [item["key"] for item in page["items"]]
            if page["next"] is None:
                break
            after = {"after": page["next"]}
        assert len(set(players)) == len(players) == 24
        # A list by title would show the numbers of persons, which the search leaves out.
        assert "not listed" in await refused(
            client, "list_records", dataset="einvoice", filters={"title.prefix": "A"}
        )
        assert "league_id" in await refused(
            client, "list_records", dataset="fixtures", filters={"leage_id": "39"}
        )
        assert (await call_tool(client, "list_job_runs"))["items"] == []
        assert "Did you mean" in await refused(client, "get_job_status", job_name="daily_standing")
        assert "Known datasets:" in await refused(client, "get_recent_changes", dataset="nothing")
        assert "Known upstreams:" in await refused(
            client, "get_rate_limit_status", upstream="nobody"
        )


async def test_taxpayers_and_parcels_come_from_the_mirror(settings: Settings, store: Store) -> None:
    async with store.connection() as conn:
        square = [[[32.0, 39.0], [32.1, 39.0], [32.1, 39.1], [32.0, 39.1], [32.0, 39.0]]]
        feature = {
            "type": "Feature",
            "id": "1162/2705/15",
            "geometry": {"type": "Polygon", "coordinates": square},
            "properties": {"adaNo": "2705"},
            "bbox": [32.0, 39.0, 32.1, 39.1],
        }
        await conn.execute(
            "INSERT INTO core.parcels (key, body, digest) VALUES (%s, %s, '')",
            ["1162/2705/15", json.dumps(feature)],
        )
    async with Client(assistant_of(settings, store).reading) as client:
        found = await call_tool(client, "parcel_at_point", lat=39.05, lon=32.05)
        assert (found["key"], found["feature"]) == ("1162/2705/15", feature)
        by_number = await call_tool(
            client, "get_parcel", mahalle_id=1162, ada_no="2705", parsel_no="15"
        )
        assert by_number["feature"] == feature
        assert "no parcel at" in await refused(client, "parcel_at_point", lat=10, lon=10)
        assert (await call_tool(client, "get_scan_progress"))["items"] == []
        mangled = await refused(client, "lookup_taxpayer", identifier="864387")
        assert "Did you mean 0000864387?" in mangled
        assert (await call_tool(client, "get_taxpayer_lists_status"))["status"]["heldRuns"] == 0
        assert (await call_tool(client, "search_taxpayers", text="a"))["total"] == 0
    async with Client(assistant_of(settings, store).operating) as client:
        assert "no held run 7" in await refused(client, "approve_hold", run_id=7)
        assert "no held run 7" in await refused(client, "reject_hold", run_id=7)
        assert "no run 7" in await refused(client, "stop_run", run_id=7)
        assert "valid integer" in await refused(client, "stop_run", run_id=True)
        (queued,) = (await call_tool(client, "run_job", job_name="housekeeping"))["items"]
        (stopped,) = (await call_tool(client, "stop_run", run_id=queued["id"]))["items"]
        assert (stopped["id"], stopped["outcome"]) == (queued["id"], "interrupted")


@asynccontextmanager
async def over_http(address: str, token: str) -> AsyncIterator[Client]:
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as http:
        transport = streamable_http_client(f"{address}/mcp", http_client=http)
        async with Client(transport) as client:
            yield client


async def test_over_http_the_key_decides_what_there_is(settings: Settings, store: Store) -> None:
    locked = settings.authentication.model_copy(update={"enabled": True})
    settings = settings.model_copy(update={"authentication": locked})
    _, reader = await create_key(store, "reader")
    _, operator = await create_key(store, "operator", "operate")
    app = create_app(settings, store, build_catalogue(settings), all_sources())
    listening = bind("127.0.0.1", 0)
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    async with serve_streamable(app, assistant_of(settings, store), "/mcp"):
        listener = Listener(app, listening, on_drain=app.state.notifier.close)
        await listener.start()
        try:
            async with httpx2.AsyncClient() as anonymous:
                answer = await anonymous.post(f"{address}/mcp", json={})
                assert answer.status_code == 401
            async with over_http(address, reader) as client:
                names = {tool.name for tool in (await client.list_tools()).tools}
                assert SEED_TOOLS.keys() <= names
                assert not OPERATING & names
                assert (await call_tool(client, "get_database_stats"))["datasets"] is not None
                sentence = await refused(client, "run_job", job_name="daily_standings")
                assert "scope 'operate'" in sentence
            async with over_http(address, operator) as client:
                [run] = (await call_tool(client, "run_job", job_name="daily_standings"))["items"]
                assert (run["job"], run["state"]) == ("daily_standings", "queued")
                assert "Did you mean" in await refused(client, "run_job", job_name="daily_standin")
        finally:
            listener.drain()
            await listener.wait_closed()
    recorded = [
        (one.actor, one.actor_kind, one.address, one.action, one.outcome)
        for one in await list_audit(store)
    ]
    assert recorded == [
        ("operator", "mcp", "127.0.0.1", "run.queue", "refused"),
        ("operator", "mcp", "127.0.0.1", "run.queue", "done"),
        ("reader", "mcp", "127.0.0.1", "run.queue", "refused"),
    ]


def environment(settings: Settings, **more: str) -> dict[str, str]:
    assert settings.database.url is not None
    clean = {k: v for k, v in os.environ.items() if not k.startswith("HASAT_")}
    url = settings.database.url.get_secret_value()
    return clean | {"HASAT_HOME": str(settings.home), "HASAT_DATABASE_URL": url, **more}


async def test_over_stdio_it_reads_unless_told_otherwise(settings: Settings) -> None:
    for flags in ([], ["--operate"]):
        process = StdioServerParameters(
            command=sys.executable, args=["-m", "hasat", "mcp", *flags], env=environment(settings)
        )
        async with Client(stdio_client(process)) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert (names & OPERATING) == (OPERATING if flags else set())
            stats = await call_tool(client, "get_database_stats")
            assert stats["server_version"]


@pytest.mark.parametrize("flags", [[], ["--operate"]])
@pytest.mark.parametrize("transport", ["sse", "streamable-http"])
async def test_as_a_server_of_its_own(
    settings: Settings, installation: Installation, transport: str, flags: list[str]
) -> None:
    port = free_port()
    installation.environ = environment(settings, MCP_TRANSPORT=transport, FASTMCP_PORT=str(port))
    installation.home.parent.mkdir(parents=True, exist_ok=True)
    process = installation.start("mcp", *flags)
    eventually(lambda: "offers its tools at" in installation.output(), f"tools over {transport}")
    address = f"http://127.0.0.1:{port}"
    way: Any = (
        sse_client(f"{address}/sse", timeout=60)
        if transport == "sse"
        else streamable_http_client(f"{address}/mcp")
    )
    async with Client(way) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert SEED_TOOLS.keys() <= names
        assert (names & OPERATING) == (OPERATING if flags else set())
        assert (await call_tool(client, "auto_finish_stats", hours=24))["auto_finished"] == 0
    process.terminate()
    assert process.wait(60) == 0
