"""Tables after a round, seasons of teams and players, and corrections, computed twice."""

import asyncio
import json
import os
import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from hasat.cli import app
from hasat.console.runtime import source_migrations
from hasat.sources.football.ingest.loader import load
from hasat.store import open_store
from hasat.testing.database import ThrowAwayDatabase
from support.football_api import (
    DAY,
    NO_DETAILS,
    NOW,
    StartCollector,
    api_response,
    league,
    match,
)

pytestmark = pytest.mark.anyio

SEED = int(os.environ.get("HASAT_TEST_SEED") or random.randrange(10**6))
TEAMS = range(1, 9)


def season(chance: random.Random) -> list[dict[str, Any]]:
    """Return the matches of a single round-robin, some not finished, one awarded."""
    circle = list(TEAMS)
    found = []
    for number in range(1, len(circle)):
        half = len(circle) // 2
        for home, away in zip(circle[:half], reversed(circle[half:]), strict=True):
            status = chance.choices(("FT", "PEN", "AWD", "NS", "2H"), (80, 5, 5, 5, 5))[0]
            one = match(len(found) + 1, NOW - 100 * DAY + number * DAY, status)
            one["league"]["round"] = f"Regular Season - {number}"
            one["teams"] = {
                "home": {"id": home, "name": f"T{home}"},
                "away": {"id": away, "name": f"T{away}"},
            }
            one["goals"] = {"home": chance.randrange(4), "away": chance.randrange(4)}
            found.append(one)
        circle.insert(1, circle.pop())
    final = match(len(found) + 1, NOW - DAY, "FT")
    final["league"]["round"] = "Final"
    return [*found, final]


def table_of(matches: list[dict[str, Any]], until: int) -> list[tuple[Any, ...]]:
    """Compute a table in the simplest way."""
    teams: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0, 0, 0, 0, 0])
    for one in matches:
        stage, _, number = one["league"]["round"].partition(" - ")
        over = one["fixture"]["status"]["short"] in ("FT", "AET", "PEN", "AWD", "WO")
        if stage != "Regular Season" or int(number) > until or not over:
            continue
        sides = [(one["teams"][side]["id"], one["goals"][side]) for side in ("home", "away")]
        for (team, scored), (_, conceded) in (sides, sides[::-1]):
            line = teams[team]
            line[0] += 1
            line[1 if scored > conceded else 2 if scored == conceded else 3] += 1
            line[4] += scored
            line[5] += conceded
    lines = [(team, *line, 3 * line[1] + line[2]) for team, line in teams.items()]
    return sorted(lines, key=lambda line: (-line[7], line[6] - line[5], -line[5], f"T{line[0]}"))


async def test_tables_match_a_second_computation(start_collector: StartCollector) -> None:
    print(f"HASAT_TEST_SEED={SEED}")
    matches = season(random.Random(SEED))

    def respond(path: str, parameters: dict[str, str]) -> list[Any]:
        if path == "leagues":
            return [league(39)]
        return matches if path == "fixtures" else []

    async with start_collector(respond, 39) as here:
        await here.run("fixtures_backfill_league_season")
        for until in range(1, len(TEAMS)):
            found = await here.rows(
                "SELECT team_id, played, won, drawn, lost, scored, conceded, points"
                " FROM mart.league_table(39, 2026, %s)",
                until,
            )
            assert found == table_of(matches, until)
        whole = await here.rows("SELECT team_id, played, form FROM mart.league_table(39, 2026)")
        for team, played, form in whole:
            assert len(form) == min(played, 5)
            [(total,)] = await here.rows(
                "SELECT played FROM mart.team_seasons WHERE team_id = %s", team
            )
            assert total == played + (1 if team in (1, 2) else 0)


async def test_corrections_after_the_final_whistle(start_collector: StartCollector) -> None:
    one = match(1, NOW - timedelta(hours=3), "2H") | NO_DETAILS

    def respond(path: str, parameters: dict[str, str]) -> list[Any]:
        if path == "leagues":
            return [league(39)]
        return [one] if path == "fixtures" else []

    async with start_collector(respond, 39) as here:
        for status, home in (("2H", 1), ("FT", 1), ("FT", 2), ("AWD", 3)):
            one["fixture"]["status"]["short"] = status
            one["goals"] = {"home": home, "away": 0}
            await here.run("fixtures_backfill_league_season", only_league_id=39)
        assert await here.rows(
            "SELECT status_before, status, home_before, goals_home"
            " FROM mart.corrections ORDER BY seq"
        ) == [("FT", "FT", 1, 2), ("FT", "AWD", 2, 3)]


async def test_player_seasons_are_sums_of_matches(start_collector: StartCollector) -> None:
    def line(player: int, minutes: int | None, goals: int | None) -> dict[str, Any]:
        figures = {"games": {"minutes": minutes}, "goals": {"total": goals, "assists": 1}}
        return {"player": {"id": player, "name": f"P{player}"}, "statistics": [figures]}

    matches = []
    for number in (1, 2):
        players = [{"team": {"id": 1}, "players": [line(7, 90, 2), line(8, None, None)]}]
        played = match(number, NOW - number * DAY, "FT")
        matches.append(played | NO_DETAILS | {"players": players})

    def respond(path: str, parameters: dict[str, str]) -> list[Any]:
        if path == "leagues":
            return [league(39)]
        return matches if path == "fixtures" else []

    async with start_collector(respond, 39) as here:
        await here.run("fixtures_backfill_league_season")
        await here.run("fixture_details_backfill_season")
        assert await here.rows(
            "SELECT player_id, matches, minutes, goals, assists FROM mart.player_seasons ORDER BY 1"
        ) == [(7, 2, 180, 4, 2), (8, 0, None, None, 2)]


def test_the_terminal_shows_a_match_and_how_sure_its_state_is(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    def call(*words: str, **more: str) -> Result:
        environ = {
            "HASAT_HOME": str(tmp_path),
            "HASAT_DATABASE_URL": database.url,
            "COLUMNS": "200",
            **more,
        }
        return CliRunner().invoke(app, ["football", *words], env=environ)

    async def fill() -> None:
        async with open_store(database.settings(tmp_path), source_migrations()) as store:
            one = match(7, datetime(2020, 1, 1, 12, tzinfo=UTC), "2H")
            one["teams"]["home"]["name"] = "Ev"
            season = {"league": "39", "season": "2026"}
            await load(
                store, [api_response("fixtures", [one], **season)], run=None, retention_days=9
            )
            async with store.connection() as conn:
                await conn.execute("UPDATE football.fixture_told SET told_at = '2020-01-01T13:00Z'")

    asyncio.run(fill())
    shown = call("match", "7").stdout
    assert "Ev 1:0 -  2H, last confirmed 01-01 16:00 +03" in shown
    assert "2020-01-01 15:00 +03" in shown
    assert json.loads(call("match", "7", "--json").stdout)["match"]["goals_home"] == 1
    assert "last confirmed" in call("fixtures", "39", "2026").stdout
    turkish = call("fixtures", "39", "2026", LANG="tr_TR.UTF-8").stdout
    heading, line, *_ = turkish.splitlines()
    assert heading.split() == ["kimlik", "başlama", "ev", "sahibi", "skor", "deplasman", "durum"]
    assert "2H, son doğrulama 01-01 16:00 +03" in line
    assert "last confirmed" in call("match", "7", "--json", LANG="tr_TR.UTF-8").stdout
    empty = call("table", "40", "2026")
    assert (empty.exit_code, "No results" in empty.stderr) == (0, True)
    missing = call("match", "8")
    assert missing.exit_code != 0
