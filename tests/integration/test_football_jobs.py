"""The jobs against a world of leagues: what is mirrored is what was published, and it is cheap."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal

from hasat.errors import HasatError, SettingsError
from hasat.jobs import Outcome, RunContext
from hasat.settings import Settings, load_settings
from hasat.sim import Simulation, simulate
from hasat.sim.clock import TurnableClock
from hasat.sim.football import FOOTBALL, KEY, Football
from hasat.sources.football.datasets import DATASETS
from hasat.sources.football.jobs import JOBS
from hasat.sources.football.rebuild import rebuild
from hasat.store import MigrationSet, Store, open_store
from hasat.testing.database import ThrowAwayDatabase, throw_away_database

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

MIGRATIONS = MigrationSet("football", files("hasat.sources.football") / "migrations")
BY_NAME = {job.name: job for job in JOBS}
# How the minute and the day are shared out is the budget's own matter.
_MINUTE = ("minute_limit", "minute_soft_limit", "token_bucket_per_minute")
_FAST = 60_000
_MANY = 10_000_000


@pytest.fixture
def database(background: BlockingPortal, server_url: str) -> Any:
    made = throw_away_database(server_url, [MIGRATIONS])
    with background.wrap_async_context_manager(made) as database:
        yield database


@dataclass
class Collector:
    """Hasat, and a world that it collects from."""

    store: Store
    settings: Settings
    simulation: Simulation
    run_id: int = 0
    seen: set[str] = field(default_factory=set)

    @property
    def api(self) -> Football:
        inside: Football = self.simulation.inside
        return inside

    @property
    def requests(self) -> int:
        return self.simulation.requests.total()

    async def run(self, name: str, **params: Any) -> Outcome:
        self.run_id += 1
        job = BY_NAME[name]
        context = RunContext(
            run_id=self.run_id,
            job=job,
            params={**job.params, **params},
            scheduled_for=None,
            settings=self.settings,
            store=self.store,
        )
        return await job.run(context)

    async def rows(self, query: Any, values: Mapping[str, Any] | None = None) -> list[Any]:
        async with self.store.connection() as conn:
            return await (await conn.execute(query, values)).fetchall()

    async def fixtures(self) -> dict[int, Any]:
        return dict(await self.rows("SELECT fixture_id, body FROM core.fixtures"))


@asynccontextmanager
async def collecting(
    database: ThrowAwayDatabase,
    home: Path,
    *,
    leagues: int = 6,
    played_days: int = 25,
    options: Mapping[str, Any] | None = None,
    **football: Any,
) -> AsyncIterator[Collector]:
    """A season that began some days ago; the world's clock stands where the database's is."""
    now = datetime.now(UTC)
    start = now - timedelta(days=played_days)
    world = {"leagues": leagues, "teams": 6, "season_start": start.isoformat()}
    world |= {"minute": _FAST, "daily": _MANY}
    clock = TurnableClock(now, speed=0)
    simulation = Simulation(FOOTBALL, seed=5, clock=clock, options={**world, **(options or {})})
    async with simulate(simulation) as address:
        tracked = [{"id": 39 + n, "season": start.year} for n in range(leagues)]
        section = {"api_key": KEY, "base_url": address, "tracked_leagues": tracked, **football}
        section["rate_limiter"] = {**dict.fromkeys(_MINUTE, _FAST), "daily_limit": _MANY}
        base = database.settings(home)
        settings = base.model_copy(
            update={
                "football": type(base.football).model_validate(
                    {**base.football.model_dump(), **section}
                )
            }
        )
        async with open_store(settings, [MIGRATIONS]) as store:
            yield Collector(store, settings, simulation)


async def test_whole_seasons_with_details_equal_what_was_published(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with collecting(database, tmp_path) as world:
        assert (await world.run("fixtures_backfill_league_season")).kind == "done"
        for _ in range(12):
            if (await world.run("fixture_details_backfill_90d")).kind == "nothing":
                break
        now = world.simulation.clock()
        moments = [match.at(now) for match in world.api.world.matches.values()]
        assert await world.fixtures() == {m.match.id: m.body() for m in moments}
        detailed = [m for m in moments if m.is_finished and m.match.league.has_live]
        assert detailed
        events = await world.rows("SELECT fixture_id, count(*) FROM core.fixture_events GROUP BY 1")
        assert dict(events) == {m.match.id: len(m.goals) for m in detailed if m.goals}
        [(players,)] = await world.rows("SELECT count(*) FROM core.fixture_players")
        assert players == len(detailed) * 24
        # Leagues, teams and a season each, and twenty matches a request.
        assert world.requests <= 1 + 6 + 6 + len(detailed) // 20 + 2


async def test_a_second_time_asks_for_nothing(database: ThrowAwayDatabase, tmp_path: Path) -> None:
    names = ["fixtures_backfill_league_season", "fixture_details_backfill_90d", "daily_standings"]
    names += ["top_scorers_daily", "injuries_hourly", "team_statistics_refresh"]
    names += ["standings_backfill_league_season", "season_rollover_watch"]
    async with collecting(database, tmp_path) as world:
        for _ in range(15):
            for name in names:
                await world.run(name)
        asked = world.requests
        for name in names:
            outcome = await world.run(name)
            assert (outcome.kind, outcome.rows_changed) == ("nothing", 0), name
        assert world.requests == asked
        for table in ("standings", "top_scorers", "injuries", "team_statistics", "teams"):
            [(count,)] = await world.rows(f"SELECT count(*) FROM core.{table}")
            assert count, table


@pytest.mark.parametrize("mode", ["global_by_date", "per_tracked_leagues"])
async def test_a_days_matches_in_both_ways(
    database: ThrowAwayDatabase, tmp_path: Path, mode: str
) -> None:
    async with collecting(database, tmp_path, fixtures_fetch_mode=mode) as world:
        await world.run("daily_fixtures_by_date")
        today = world.simulation.clock().date()
        days = {today + timedelta(days=shift) for shift in (-1, 0, 1)}
        moments = [m.at(world.simulation.clock()) for m in world.api.world.matches.values()]
        wanted = {m.match.id: m.body() for m in moments if m.kick_off.date() in days}
        assert await world.fixtures() == wanted
        assert world.requests == 1 + (3 if mode == "global_by_date" else 18)


async def test_leagues_that_nobody_follows_do_not_enter(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    tracked = [{"id": 40, "season": (datetime.now(UTC) - timedelta(days=25)).year}]
    async with collecting(database, tmp_path, tracked_leagues=tracked) as world:
        await world.run("daily_fixtures_by_date")
        leagues = await world.rows("SELECT DISTINCT league_id FROM core.fixtures")
        assert set(leagues) <= {(40,)}


@pytest.mark.parametrize("mode", ["season", "windows"])
async def test_after_a_rebuild_of_everything_nothing_is_asked_for_again(
    database: ThrowAwayDatabase, tmp_path: Path, mode: str
) -> None:
    names = ["fixtures_backfill_league_season", "daily_standings", "fixture_details_backfill_90d"]
    names += ["injuries_hourly", "team_statistics_refresh", "standings_backfill_league_season"]
    how = {"fixtures_mode": mode, "fixtures_window_days": 60}
    async with collecting(database, tmp_path, leagues=1, backfill=how) as world:
        for _ in range(2):
            for name in names:
                await world.run(name)
        asked = world.requests
        tables = [f"core.{name}" for name in DATASETS]
        notes = ["core.backfill_progress", "core.team_bootstrap_progress"]
        notes += ["football.season_asked", "football.fixture_told"]
        before = [await world.rows(f"SELECT count(*) FROM {table}") for table in tables + notes]
        async with world.store.connection() as conn:
            await conn.execute(f"TRUNCATE {', '.join(tables + notes)}")
        done = await rebuild(world.store, world.settings)
        assert {one.how for one in done.datasets} <= {"mended", "intact"}
        after = [await world.rows(f"SELECT count(*) FROM {table}") for table in tables + notes]
        assert after == before
        for name in names:
            assert (await world.run(name)).kind == "nothing", name
        assert world.requests == asked


async def test_windows_of_changing_size_leave_no_gap(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with collecting(database, tmp_path, leagues=2) as world:
        football = world.settings.football
        for days in (3, 30, 1, 7, 14, 5, 30, 30, 30, 30):
            backfill = football.backfill.model_copy(
                update={
                    "fixtures_mode": "windows",
                    "fixtures_window_days": days,
                    "fixtures_max_pages_per_task": 1,
                }
            )
            section = football.model_copy(update={"backfill": backfill})
            world.settings = world.settings.model_copy(update={"football": section})
            await world.run("fixtures_backfill_league_season")
        now = world.simulation.clock()
        assert await world.fixtures() == {
            m.id: m.at(now).body() for m in world.api.world.matches.values()
        }
        assert await world.rows("SELECT DISTINCT completed FROM core.backfill_progress") == [
            (True,)
        ]


async def test_what_is_inferred_stands_beside_the_match_and_ends_with_the_apis_word(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with collecting(database, tmp_path) as world:
        clock = world.simulation.clock
        now = clock()
        # A match as it was told while it was played, hours ago.
        match = next(
            m
            for m in world.api.world.matches.values()
            if m.fate == "played" and m.league.has_live and m.kick_off < now - timedelta(days=3)
        )
        clock.turn_to(match.kick_off + timedelta(minutes=30))
        await world.run("fixtures_backfill_league_season")
        async with world.store.connection() as conn:
            await conn.execute(
                "UPDATE football.fixture_told SET told_at = told_at - interval '5 hours'"
            )
        before = await world.fixtures()
        assert (await world.run("auto_finish_stale_fixtures")).kind == "done"
        assert await world.fixtures() == before
        inferred = await world.rows(
            "SELECT fixture_id, inferred_status, needs_score_verification, status_short"
            " FROM core.fixture_inferences JOIN core.fixtures USING (fixture_id)"
        )
        assert (match.id, "FT", True, "1H") in inferred
        never = {"PST", "CANC", "ABD", "SUSP", "AWD", "FT"}
        assert not never & {status for *_, status in inferred}
        silent = {league.id for league in world.api.world.leagues if not league.has_live}
        quiet = await world.rows(
            "SELECT count(*) FROM core.fixture_inferences JOIN core.fixtures USING (fixture_id)"
            " WHERE league_id = ANY (%(silent)s)",
            {"silent": list(silent)},
        )
        assert quiet == [(0,)]
        clock.turn_to(now)
        await world.run("auto_finish_verification")
        assert await world.rows("SELECT * FROM core.fixture_inferences") == []
        assert (await world.fixtures())[match.id] == match.at(now).body()


async def test_a_dry_run_marks_nothing(database: ThrowAwayDatabase, tmp_path: Path) -> None:
    async with collecting(database, tmp_path) as world:
        world.simulation.clock.advance(-86400 * 10)
        await world.run("fixtures_backfill_league_season")
        async with world.store.connection() as conn:
            await conn.execute("UPDATE football.fixture_told SET told_at = now() - interval '9 h'")
        outcome = await world.run("auto_finish_stale_fixtures", dry_run=True)
        assert outcome.rows_changed > 0
        assert await world.rows("SELECT * FROM core.fixture_inferences") == []
        fetched = await world.run("auto_finish_stale_fixtures", try_fetch_first=True)
        assert fetched.kind in ("done", "nothing")


async def test_the_days_limit_ends_a_run_and_nothing_more_is_sent(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with collecting(database, tmp_path, options={"daily": 4}) as world:
        outcome = await world.run("fixtures_backfill_league_season")
        assert outcome.kind == "out_of_quota"
        sent = world.requests
        assert sent <= 5
        again = await world.run("daily_fixtures_by_date")
        assert again.kind == "out_of_quota"
        assert world.requests == sent


async def test_a_refused_key_is_said_and_asked_once(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with collecting(database, tmp_path, api_key="wrong") as world:
        with pytest.raises(HasatError, match="key"):
            await world.run("bootstrap_countries")
        assert world.requests == 1


async def test_without_a_key_nothing_is_sent(database: ThrowAwayDatabase, tmp_path: Path) -> None:
    async with collecting(database, tmp_path, api_key=None) as world:
        with pytest.raises(SettingsError, match="no key"):
            await world.run("bootstrap_countries")
        assert world.requests == 0


async def test_passing_errors_are_asked_again_and_refused_plans_are_not(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with collecting(database, tmp_path) as world:
        world.simulation.faults.switch_on("errors-in-200", times=1)
        assert (await world.run("bootstrap_countries")).kind == "done"
        assert world.requests == 2
        assert len(await world.rows("SELECT * FROM core.countries")) > 1
        world.simulation.faults.switch_on("not-in-plan")
        await world.run("bootstrap_timezones")
        assert world.requests == 3
        assert await world.rows("SELECT * FROM core.timezones") == []


def test_every_job_of_the_original_is_there() -> None:
    assert BY_NAME.keys() >= {
        "bootstrap_timezones",
        "bootstrap_countries",
        "daily_fixtures_by_date",
        "fixture_details_recent_finalize",
        "daily_standings",
        "injuries_hourly",
        "top_scorers_daily",
        "team_statistics_refresh",
        "fixtures_backfill_league_season",
        "standings_backfill_league_season",
        "fixture_details_backfill_90d",
        "auto_finish_stale_fixtures",
        "auto_finish_verification",
        "stale_live_refresh",
        "stale_scheduled_finalize",
    }
    assert load_settings(environ={}).football.tracked_leagues == ()


async def test_leagues_are_followed_by_name_and_what_is_not_clear_is_said(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    year = (datetime.now(UTC) - timedelta(days=25)).year
    tracked = [{"name": "league 2", "season": year}, {"name": "Lege 3", "season": year}]
    async with collecting(database, tmp_path, tracked_leagues=tracked) as world:
        outcome = await world.run("daily_fixtures_by_date")
        assert outcome.message is not None
        assert "Did you mean League" in outcome.message
        assert set(await world.rows("SELECT DISTINCT league_id FROM core.fixtures")) <= {(40,)}
        await world.run("fixtures_backfill_league_season")
        assert await world.rows("SELECT DISTINCT league_id FROM core.fixtures") == [(40,)]
