"""The pages of a match and of a league's season, in both languages and with damaged details."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from hasat.testing.http import app_client
from support.complete_app import complete_app
from support.football_api import DAY, GOAL, HOUR, NOW, Collector, StartCollector, league, match

pytestmark = pytest.mark.anyio

BROWSER = {"Accept": "text/html"}
TURKISH = {**BROWSER, "Accept-Language": "tr"}


@asynccontextmanager
async def pages_of(here: Collector) -> AsyncIterator[httpx2.AsyncClient]:
    app = complete_app(here.settings, here.store)
    async with app_client(app) as client:
        yield client


def lineup(team: int, grid: Any = "1:1") -> dict[str, Any]:
    starting = [{"player": {"id": 1, "name": f"Keeper of {team}", "number": 1, "grid": grid}}]
    return {"team": {"id": team, "name": f"T{team}"}, "formation": "4-4-2", "startXI": starting}


def statistics(team: int, **values: Any) -> dict[str, Any]:
    listed = [{"type": name, "value": value} for name, value in values.items()]
    return {"team": {"id": team}, "statistics": listed}


def detailed(number: int, **blocks: Any) -> dict[str, Any]:
    played = match(number, NOW - 3 * HOUR, "FT")
    played["teams"] = {"home": {"id": 1, "name": "Ev"}, "away": {"id": 2, "name": "Konuk"}}
    card = {**GOAL, "team": {"id": 2}, "type": "Card", "detail": "Yellow Card"}
    whole = {
        "events": [GOAL, card],
        "lineups": [lineup(2), lineup(1)],
        "statistics": [
            statistics(1, **{"Ball Possession": "60%", "Fouls": 9, "Red Cards": None}),
            statistics(2, **{"Ball Possession": "40%", "Fouls": 3, "Red Cards": None}),
        ],
        "players": [],
    }
    return {**played, **whole, **blocks}


async def fill(here: Collector) -> None:
    await here.run("fixtures_backfill_league_season")
    await here.run("fixture_details_backfill_season")


async def test_a_match_with_all_details(start_collector: StartCollector) -> None:
    matches = [detailed(7)]

    def respond(path: str, parameters: dict[str, str]) -> list[Any]:
        if path == "leagues":
            return [league(39)]
        return matches if path == "fixtures" else []

    async with start_collector(respond, 39) as here:
        await fill(here)
        matches[0] = {**detailed(7), "goals": {"home": 0, "away": 0}}
        await here.run("fixtures_backfill_league_season", only_league_id=39)
        async with pages_of(here) as client:
            data = (await client.get("/football/matches/7.json")).json()
            page = (await client.get("/football/matches/7", headers=BROWSER)).text
            turkish = (await client.get("/football/matches/7", headers=TURKISH)).text
        assert [(one["side"], one["kind"]) for one in data["events"]] == [
            ("home", "goal"),
            ("away", "yellow"),
        ]
        # The home team comes first, whatever the order of the response.
        assert [one["team"] for one in data["lineups"]] == ["T1", "T2"]
        assert {one["name"]: one["share"] for one in data["statistics"]} == {
            "Ball Possession": 0.6,
            "Fouls": 0.75,
        }
        [correction] = data["corrections"]
        assert (correction["homeBefore"], correction["goalsHome"]) == (1, 0)
        for text in ("0 : 0", "Keeper of 1", "Possession", "Corrected after the final whistle"):
            assert text in page
        assert "Topa sahip olma" in turkish


@pytest.mark.parametrize(
    "blocks",
    [
        {"events": [], "lineups": [], "statistics": [], "players": []},
        {"lineups": [lineup(1, None), {"team": {"id": 2}, "startXI": None, "formation": None}]},
        {"statistics": [{"team": {"id": 1}, "statistics": None}, statistics(2, Fouls="many")]},
        {"events": [{**GOAL, "type": "New", "detail": "", "time": {"elapsed": 1, "extra": 2}}]},
        {"players": [{"team": {"id": 1}, "players": [{"player": {"id": 3}, "statistics": []}]}]},
    ],
)
async def test_details_may_be_missing_or_damaged(
    start_collector: StartCollector, blocks: dict[str, Any]
) -> None:
    def respond(path: str, parameters: dict[str, str]) -> list[Any]:
        if path == "leagues":
            return [league(39)]
        return [detailed(7, **blocks)] if path == "fixtures" else []

    async with start_collector(respond, 39) as here:
        await fill(here)
        async with pages_of(here) as client:
            page = await client.get("/football/matches/7", headers=BROWSER)
    assert page.status_code == 200
    assert "1 : 0" in page.text


async def test_inferred_and_unconfirmed_states_are_marked(start_collector: StartCollector) -> None:
    def respond(path: str, parameters: dict[str, str]) -> list[Any]:
        if path == "leagues":
            return [league(39)]
        return [match(7, NOW - 5 * HOUR, "2H")] if path == "fixtures" else []

    async with start_collector(respond, 39) as here:
        await here.run("fixtures_backfill_league_season")
        async with pages_of(here) as client:
            fresh = (await client.get("/football/matches/7.json")).json()["match"]
            assert (fresh["inferred"], fresh["unconfirmedSince"]) == (None, None)
            await here.database_clock.set_time(NOW + 4 * HOUR)
            await here.run("auto_finish_stale_fixtures", NOW + 4 * HOUR)
            found = (await client.get("/football/matches/7.json")).json()
            assert found["match"]["inferred"] == "FT"
            assert found["match"]["goalsHome"] == 1
            assert found["match"]["state"] == "live"
            assert found["match"]["unconfirmedSince"] == found["match"]["toldAt"]
            page = (await client.get("/football/matches/7", headers=BROWSER)).text
            assert "inferred: FT" in page
            assert "The score is the last one published." in page
            api = (await client.get("/api/v1/football/fixtures/7")).json()
            assert api["unconfirmedSince"] == api["toldAt"]
            day = (NOW - 5 * HOUR).date()
            listed = (await client.get(f"/football?day={day}", headers=BROWSER)).text
            assert "last confirmed" in listed
        assert await here.rows("SELECT unconfirmed_since = told_at FROM mart.live_score_panel") == [
            (True,)
        ]


def season() -> list[dict[str, Any]]:
    """Return three rounds of four teams; team 1 wins every match."""
    found = []
    for number, pairs in enumerate((((1, 2), (3, 4)), ((1, 3), (2, 4)), ((1, 4), (2, 3))), 1):
        for home, away in pairs:
            at = NOW - (10 - number) * DAY
            one = match(len(found) + 1, at, "FT" if number < 3 else "NS")
            one["league"] |= {"round": f"Regular Season - {number}", "name": "Lig"}
            one["teams"] = {
                "home": {"id": home, "name": f"T{home}"},
                "away": {"id": away, "name": f"T{away}"},
            }
            one["goals"] = {"home": 1, "away": int(home > 1)}
            found.append(one)
    return found


async def test_a_season_with_table_chart_and_rounds(start_collector: StartCollector) -> None:
    def respond(path: str, parameters: dict[str, str]) -> list[Any]:
        if path == "leagues":
            return [league(39)]
        return season() if path == "fixtures" else []

    async with start_collector(respond, 39) as here:
        await here.run("fixtures_backfill_league_season")
        async with pages_of(here) as client:
            data = (await client.get("/football/leagues/39/2026.json")).json()
            first = (await client.get("/football/leagues/39/2026.json?round=1")).json()
            page = (await client.get("/football/leagues/39/2026?team=4", headers=BROWSER)).text
            turkish = (await client.get("/football/leagues/39/2026", headers=TURKISH)).text
            missing = await client.get("/football/leagues/4000/2026", headers=BROWSER)
            wrong = await client.get("/football/leagues/x/2026", headers=BROWSER)
        assert [(one["team"], one["points"]) for one in data["table"]] == [
            ("T1", 6),
            ("T4", 2),
            ("T2", 1),
            ("T3", 1),
        ]
        assert (first["table"][0]["team"], first["table"][0]["played"]) == ("T1", 1)
        assert {one["round"] for one in first["matches"]} == {"Regular Season - 1"}
        assert [(one["number"], one["hasResults"]) for one in data["rounds"]] == [
            (1, True),
            (2, True),
            (3, False),
        ]
        assert data["chart"]["table"][0] == ["T1", [3, 6]]
        assert len(data["matches"]) == 6
        assert "Computed from the results" in page
        assert page.count("<polyline") == 4
        assert "Haftalara göre puan" in turkish
        assert (missing.status_code, wrong.status_code) == (404, 400)


async def test_awarded_matches_and_gaps_do_not_break_a_season(
    start_collector: StartCollector,
) -> None:
    """A round without number, teams without name or id, and matches without a date."""
    odd = match(9, NOW + timedelta(days=1), "NS")
    odd["league"]["round"] = None
    odd["teams"] = {"home": {"id": None, "name": None}, "away": {}}
    odd["fixture"]["timestamp"] = None

    def respond(path: str, parameters: dict[str, str]) -> list[Any]:
        if path == "leagues":
            return [league(39)]
        return [odd] if path == "fixtures" else []

    async with start_collector(respond, 39) as here:
        await here.run("fixtures_backfill_league_season")
        async with pages_of(here) as client:
            for path in ("leagues/39/2026", "matches/9"):
                page = await client.get(f"/football/{path}", headers=BROWSER)
                assert page.status_code == 200, path
