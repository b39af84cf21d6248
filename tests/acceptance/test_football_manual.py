"""The original's manual test with the real command: every job on a database without matches."""

import asyncio
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from hasat.sim import Simulation, simulate
from hasat.sim.clock import SettableClock
from hasat.sources.football.simulator.server import FOOTBALL, KEY
from hasat.testing.database import ThrowAwayDatabase
from support.forks import run_hasat

pytestmark = pytest.mark.anyio

# The table that each job fills on its own for a named league.
TABLES = {
    "bootstrap_timezones": "timezones",
    "bootstrap_countries": "countries",
    "bootstrap_teams": "teams",
    "daily_fixtures_by_date": "fixtures",
    "fixture_details_recent_finalize": "fixture_events",
    "daily_standings": "standings",
    "injuries_hourly": "injuries",
    "top_scorers_daily": "top_scorers",
    "team_statistics_refresh": "team_statistics",
    "fixtures_backfill_league_season": "fixtures",
    "standings_backfill_league_season": "standings",
    "fixture_details_backfill_90d": "fixture_players",
    "fixture_details_backfill_season": "fixture_lineups",
}
# These jobs need known matches: on a fresh database they report that there is none.
NEED_MATCHES = {
    "auto_finish_stale_fixtures": "No match that began",
    "stale_live_refresh": "No match in play",
    "auto_finish_verification": "No match marked as finished",
    "stale_scheduled_finalize": "No match that should have started",
}


class Shell:
    """A terminal whose environment follows one league."""

    def __init__(self, database: ThrowAwayDatabase, home: Path, address: str, season: int) -> None:
        self._environment = os.environ | {
            "HASAT_DATABASE_URL": database.url,
            "HASAT_HOME": str(home),
            "API_FOOTBALL_KEY": KEY,
            "HASAT_FOOTBALL_BASE_URL": address,
            "HASAT_FOOTBALL_TRACKED_LEAGUES": json.dumps([{"id": 39, "season": season}]),
            "HASAT_FOOTBALL_RATE_LIMITER_MINUTE_SOFT_LIMIT": "60000",
            "HASAT_FOOTBALL_RATE_LIMITER_TOKEN_BUCKET_PER_MINUTE": "60000",
            "HASAT_FOOTBALL_RATE_LIMITER_OPENING_MINUTES": "0",
        }
        self._url, self._home = database.url, home

    async def run(self, *arguments: str, **environment: str) -> tuple[int, str]:
        """Return the exit code and the output of `hasat jobs run`."""
        environ = self._environment | {"COLUMNS": "500"} | environment
        done = await asyncio.to_thread(
            run_hasat, "jobs", "run", *arguments, environ=environ, cwd=self._home
        )
        return done.returncode, done.stdout + done.stderr

    def count(self, table: str) -> int:
        with psycopg.connect(self._url) as conn:
            row = conn.execute(f"SELECT COUNT(*) FROM core.{table};".encode()).fetchone()
        assert row is not None
        return int(row[0])

    def last_message(self, job: str) -> str | None:
        query = "SELECT message FROM jobs.run WHERE job = %s ORDER BY id DESC LIMIT 1"
        with psycopg.connect(self._url) as conn:
            row = conn.execute(query, [job]).fetchone()
        assert row is not None
        message: str | None = row[0]
        return message


def world() -> tuple[Simulation, int]:
    now = datetime.now(UTC)
    start = now - timedelta(days=25)
    options: dict[str, Any] = {"leagues": 2, "teams": 6, "season_start": start.isoformat()}
    options |= {"minute": 60_000, "daily": 10_000_000}
    clock = SettableClock(now, speed=0)
    return Simulation(FOOTBALL, seed=5, clock=clock, options=options), start.year


@pytest.mark.parametrize("job", TABLES)
async def test_named_league_is_fetched_on_fresh_database(
    database: ThrowAwayDatabase, tmp_path: Path, job: str
) -> None:
    simulation, season = world()
    async with simulate(simulation) as address:
        shell = Shell(database, tmp_path, address, season)
        code, out = await shell.run(ONLY_LEAGUE_ID="39", JOB_ID=job)
        assert code == 0, out
        sent_before = simulation.requests.total()
        table = TABLES[job]
        # The world may have no injuries or matches on these days.
        assert shell.count(table) > 0 or job in ("injuries_hourly", "daily_fixtures_by_date"), out
        code, out = await shell.run(ONLY_LEAGUE_ID="39", JOB_ID=job)
        assert code == 0, out
        assert simulation.requests.total() > sent_before


async def test_run_without_requests_reports_why(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    simulation, season = world()
    async with simulate(simulation) as address:
        shell = Shell(database, tmp_path, address, season)
        for job, reason in NEED_MATCHES.items():
            code, out = await shell.run(ONLY_LEAGUE_ID="39", JOB_ID=job)
            assert code in (0, 3), out
            assert reason in out
            assert reason in (shell.last_message(job) or "")
        # Without a named league: fetched once, then not before a match ends.
        assert (await shell.run("top_scorers_daily"))[0] == 0
        assert shell.count("top_scorers") > 0
        code, out = await shell.run("top_scorers_daily")
        assert code == 3
        assert "No finished match is known yet" in out
        assert "Set only_league_id" in out
