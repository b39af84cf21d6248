"""The jobs against a simulated world: the mirror equals what was published, with few requests."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from hasat.errors import SettingsError
from hasat.feed.holds import get_hold, list_holds
from hasat.jobs import Outcome
from hasat.settings import Settings, load_settings
from hasat.sim import Simulation, simulate
from hasat.sim.clock import SettableClock
from hasat.sources.football import source
from hasat.sources.football.endpoints import DATASETS
from hasat.sources.football.ingest.loader import load
from hasat.sources.football.ingest.raw_store import ApiResponse
from hasat.sources.football.ingest.rebuild import rebuild
from hasat.sources.football.jobs.catalogue import JOBS
from hasat.sources.football.settings import FootballSettings
from hasat.sources.football.simulator.server import FOOTBALL, KEY, SimulatedApi
from hasat.store import MigrationSet, Store, open_store
from hasat.testing.database import ThrowAwayDatabase
from hasat.testing.jobs import perform

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

MIGRATIONS = source.FOOTBALL.migration_set
BY_NAME = {job.name: job for job in JOBS}
# The shares of the minute and the day are tested with the budget.
_MINUTE = ("minute_limit", "minute_soft_limit", "token_bucket_per_minute")
_FAST = 60_000
_MANY = 10_000_000


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return [MIGRATIONS]


@dataclass
class Collector:
    """Hasat with a simulated world."""

    store: Store
    settings: Settings
    simulation: Simulation
    run_id: int = 0
    seen: set[str] = field(default_factory=set)

    @property
    def api(self) -> SimulatedApi:
        inside: SimulatedApi = self.simulation.inside
        return inside

    @property
    def requests(self) -> int:
        return self.simulation.requests.total()

    async def run(self, name: str, *, due: datetime | None = None, **params: Any) -> Outcome:
        """Run a job, manually or as scheduled at `due`."""
        self.run_id += 1
        return await perform(
            BY_NAME[name], self.store, self.settings, params, run_id=self.run_id, due=due
        )

    async def rows(self, query: Any, values: Mapping[str, Any] | None = None) -> list[Any]:
        async with self.store.connection() as conn:
            return await (await conn.execute(query, values)).fetchall()

    async def fixtures(self) -> dict[int, Any]:
        return dict(await self.rows("SELECT fixture_id, body FROM core.fixtures"))


@asynccontextmanager
async def start_collector(
    database: ThrowAwayDatabase,
    home: Path,
    *,
    leagues: int = 6,
    played_days: int = 25,
    options: Mapping[str, Any] | None = None,
    **football: Any,
) -> AsyncIterator[Collector]:
    """Simulate a season that began some days ago; world and database have the same time."""
    now = datetime.now(UTC)
    start = now - timedelta(days=played_days)
    world = {"leagues": leagues, "teams": 6, "season_start": start.isoformat()}
    world |= {"minute": _FAST, "daily": _MANY}
    clock = SettableClock(now, speed=0)
    simulation = Simulation(FOOTBALL, seed=5, clock=clock, options={**world, **(options or {})})
    async with simulate(simulation) as address:
        tracked = [{"id": 39 + n, "season": start.year} for n in range(leagues)]
        section = {"api_key": KEY, "base_url": address, "tracked_leagues": tracked, **football}
        # Also when the tests run in the first minutes of a day.
        limits = {"daily_limit": _MANY, "opening_minutes": 0}
        section["rate_limiter"] = {**dict.fromkeys(_MINUTE, _FAST), **limits}
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


async def test_backfilled_seasons_equal_published_data(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with start_collector(database, tmp_path) as world:
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
        published = {m.match.id: len(m.blocks()["events"]) for m in detailed}
        assert dict(events) == {match: count for match, count in published.items() if count}
        [(players,)] = await world.rows("SELECT count(*) FROM core.fixture_players")
        assert players == len(detailed) * 24
        # Leagues, teams and a season each, and twenty matches a request.
        assert world.requests <= 1 + 6 + 6 + len(detailed) // 20 + 2


def _canonical(row: Any) -> str:
    return json.dumps(row, sort_keys=True)


async def test_details_per_match_equal_details_by_ids(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    details = {"fetch_mode": "per_fixture", "backfill_batch": 4}
    async with start_collector(
        database, tmp_path, leagues=1, played_days=9, details=details
    ) as world:
        await world.run("fixtures_backfill_league_season")
        before = world.requests
        # A match with a missing response is fetched again as a whole.
        world.simulation.faults.switch_on("not-in-plan", times=1)
        refused = await world.run("fixture_details_backfill_90d")
        assert "The API refused /fixtures/events" in (refused.message or "")
        for _ in range(4):
            last = await world.run("fixture_details_backfill_90d")
        assert last.kind == "nothing"
        now = world.simulation.clock()
        played = [m for m in (m.at(now) for m in world.api.world.matches.values()) if m.is_finished]
        assert 4 < len(played) <= 12
        assert world.requests - before == 1 + 4 * len(played)
        for block in ("events", "lineups", "statistics"):
            found = await world.rows(f"SELECT fixture_id, body FROM core.fixture_{block}")
            published = [(m.match.id, one) for m in played for one in m.blocks()[block]]
            assert sorted(map(_canonical, found)) == sorted(map(_canonical, published))
        [(players,)] = await world.rows("SELECT count(*) FROM core.fixture_players")
        assert players == len(played) * 24
        async with world.store.connection() as conn:
            await conn.execute("TRUNCATE football.fixture_told")
        await rebuild(world.store, world.settings)
        assert (await world.run("fixture_details_backfill_90d")).kind == "nothing"


async def test_previous_season_is_backfilled_if_listed(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with start_collector(database, tmp_path, leagues=2, options={"seasons": 3}) as world:
        for _ in range(3):
            await world.run("fixtures_backfill_league_season")
            await world.run("standings_backfill_league_season")
        year, now = world.api.world.season, world.simulation.clock()
        wanted = [m for m in world.api.world.matches.values() if m.season >= year - 1]
        assert await world.fixtures() == {m.id: m.at(now).body() for m in wanted}
        tables = await world.rows(
            "SELECT league_id, season, count(*) FROM core.standings GROUP BY 1, 2"
        )
        assert sorted(tables) == [(n, s, 6) for n in (39, 40) for s in (year - 1, year)]
        # The list of leagues, and teams, matches and table for two seasons of two leagues.
        assert world.requests == 1 + 3 * 4


async def test_list_with_many_removals_is_held_until_approved(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with start_collector(database, tmp_path, leagues=1) as world:
        await world.run("fixtures_backfill_league_season")
        before = await world.fixtures()
        async with world.store.connection() as conn:
            await conn.execute("UPDATE core.backfill_progress SET updated_at = 'epoch'")
        matches = world.api.world.by_league[39]
        found_again, gone = matches[12], matches[13:]
        del matches[12:]
        due = world.simulation.clock()
        run = await world.run("fixtures_backfill_league_season", due=due)
        assert run.kind == "held"
        assert "removed 60.00 % (limit 10 %)" in (run.message or "")
        assert "league=39" in (run.message or "")
        assert await world.fixtures() == before
        [hold] = await list_holds(world.store)
        assert hold.preview["datasets"]["fixtures"]["removed"] == 18
        # A scheduled run skips it; a rebuild is not affected.
        assert (await world.run("fixtures_backfill_league_season", due=due)).kind == "nothing"
        await rebuild(world.store, world.settings)
        assert await world.fixtures() == before
        # One of the matches is received in the meantime; the held response is older.
        body = {"errors": [], "results": 1, "response": [found_again.at(due).body()]}
        newer = ApiResponse("fixtures", {"ids": str(found_again.id)}, json.dumps(body).encode())
        assert await load(world.store, [newer], run=99, retention_days=30) is not None
        requests = world.requests
        applied = await world.run("fixtures_backfill_league_season", approve=hold.id)
        assert applied.kind == "done"
        assert world.requests == requests
        assert (await world.fixtures()).keys() == before.keys() - {match.id for match in gone}
        assert (await get_hold(world.store, hold.id)).state == "approved"
        result = await rebuild(world.store, world.settings)
        assert {one.how for one in result.datasets} == {"intact"}


async def test_injuries_of_one_league_leave_other_leagues(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with start_collector(database, tmp_path, leagues=3) as world:
        await world.run("injuries_hourly", only_league_id=40)
        assert await world.rows("SELECT DISTINCT league_id FROM core.injuries") == [(40,)]
        await world.run("injuries_hourly")
        leagues = await world.rows("SELECT DISTINCT league_id FROM core.injuries ORDER BY 1")
        assert leagues == [(39,), (40,), (41,)]


async def test_missing_details_stay_missing_after_rebuild(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with start_collector(database, tmp_path, leagues=1) as world:
        await world.run("fixtures_backfill_league_season")
        lost = min(world.api.world.matches)
        del world.api.world.matches[lost]
        while (await world.run("fixture_details_backfill_90d")).kind != "nothing":
            pass
        times = "SELECT fixture_id, details_at IS NULL FROM football.fixture_told ORDER BY 1"
        before = await world.rows(times)
        assert dict(before)[lost]
        async with world.store.connection() as conn:
            await conn.execute("TRUNCATE football.fixture_told")
        await rebuild(world.store, world.settings)
        assert await world.rows(times) == before


async def test_second_run_sends_no_requests(database: ThrowAwayDatabase, tmp_path: Path) -> None:
    names = ["fixtures_backfill_league_season", "fixture_details_backfill_90d", "daily_standings"]
    names += ["top_scorers_daily", "injuries_hourly", "team_statistics_refresh"]
    names += ["standings_backfill_league_season", "season_rollover_watch"]
    async with start_collector(database, tmp_path) as world:
        for _ in range(15):
            for name in names:
                await world.run(name)
        sent_before = world.requests
        for name in names:
            outcome = await world.run(name)
            assert (outcome.kind, outcome.rows_changed) == ("nothing", 0), name
        assert world.requests == sent_before
        for table in ("standings", "top_scorers", "injuries", "team_statistics", "teams"):
            [(count,)] = await world.rows(f"SELECT count(*) FROM core.{table}")
            assert count, table


@pytest.mark.parametrize("mode", ["global_by_date", "per_tracked_leagues"])
async def test_matches_of_a_day_in_both_fetch_modes(
    database: ThrowAwayDatabase, tmp_path: Path, mode: str
) -> None:
    async with start_collector(database, tmp_path, fixtures_fetch_mode=mode) as world:
        await world.run("daily_fixtures_by_date")
        today = world.simulation.clock().date()
        days = {today + timedelta(days=shift) for shift in (-1, 0, 1)}
        moments = [m.at(world.simulation.clock()) for m in world.api.world.matches.values()]
        wanted = {m.match.id: m.body() for m in moments if m.kick_off.date() in days}
        assert await world.fixtures() == wanted
        assert world.requests == 1 + (3 if mode == "global_by_date" else 18)


async def test_unfollowed_leagues_are_not_mirrored(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    tracked = [{"id": 40, "season": (datetime.now(UTC) - timedelta(days=25)).year}]
    async with start_collector(database, tmp_path, tracked_leagues=tracked) as world:
        await world.run("daily_fixtures_by_date")
        leagues = await world.rows("SELECT DISTINCT league_id FROM core.fixtures")
        assert set(leagues) <= {(40,)}


@pytest.mark.parametrize(("mode", "zone"), [("season", "Europe/Istanbul"), ("windows", "UTC")])
async def test_no_requests_are_repeated_after_full_rebuild(
    database: ThrowAwayDatabase, tmp_path: Path, mode: str, zone: str
) -> None:
    names = ["fixtures_backfill_league_season", "daily_standings", "fixture_details_backfill_90d"]
    names += ["injuries_hourly", "team_statistics_refresh", "standings_backfill_league_season"]
    how = {"fixtures_mode": mode, "fixtures_window_days": 60}
    more: dict[str, Any] = {"backfill": how, "default_timezone": zone}
    async with start_collector(database, tmp_path, leagues=1, **more) as world:
        for _ in range(2):
            for name in names:
                await world.run(name)
        sent_before = world.requests
        # A match in another time zone would change with each response.
        zones = "SELECT DISTINCT requested_params->>'timezone' FROM raw.api_responses"
        assert await world.rows(f"{zones} WHERE endpoint = '/fixtures'") == [
            (None if zone == "UTC" else zone,)
        ]
        tables = [f"core.{name}" for name in DATASETS]
        notes = ["core.backfill_progress", "core.team_bootstrap_progress"]
        notes += ["football.season_asked", "football.fixture_told"]
        before = [await world.rows(f"SELECT count(*) FROM {table}") for table in tables + notes]
        async with world.store.connection() as conn:
            await conn.execute(f"TRUNCATE {', '.join(tables + notes)}")
        done = await rebuild(world.store, world.settings)
        assert {one.how for one in done.datasets} <= {"repaired", "intact"}
        after = [await world.rows(f"SELECT count(*) FROM {table}") for table in tables + notes]
        assert after == before
        for name in names:
            assert (await world.run(name)).kind == "nothing", name
        assert world.requests == sent_before


async def test_changing_window_size_leaves_no_gap(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with start_collector(database, tmp_path, leagues=2) as world:
        football = world.settings.section(FootballSettings)
        days_in = []
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
            days_in += await world.rows("SELECT DISTINCT next_page FROM core.backfill_progress")
        assert days_in[:3] == [(1 + 3,), (1 + 33,), (1 + 34,)]
        now = world.simulation.clock()
        assert await world.fixtures() == {
            m.id: m.at(now).body() for m in world.api.world.matches.values()
        }
        assert await world.rows("SELECT DISTINCT completed FROM core.backfill_progress") == [
            (True,)
        ]


async def test_inference_is_separate_and_ends_when_api_reports(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with start_collector(database, tmp_path) as world:
        clock = world.simulation.clock
        now = clock()
        # A match as reported in play, hours ago.
        match = next(
            m
            for m in world.api.world.matches.values()
            if m.fate == "played" and m.league.has_live and m.kick_off < now - timedelta(days=3)
        )
        clock.set_time(match.kick_off + timedelta(minutes=30))
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
        clock.set_time(now)
        # Only followed leagues are fetched.
        assert (await world.run("auto_finish_verification", only_league_id=7)).kind == "nothing"
        await world.run("auto_finish_verification")
        assert await world.rows("SELECT * FROM core.fixture_inferences") == []
        assert (await world.fixtures())[match.id] == match.at(now).body()


async def test_dry_run_marks_nothing(database: ThrowAwayDatabase, tmp_path: Path) -> None:
    async with start_collector(database, tmp_path) as world:
        world.simulation.clock.advance(-86400 * 10)
        await world.run("fixtures_backfill_league_season")
        async with world.store.connection() as conn:
            await conn.execute("UPDATE football.fixture_told SET told_at = now() - interval '9 h'")
        outcome = await world.run("auto_finish_stale_fixtures", dry_run=True)
        assert outcome.rows_changed > 0
        assert await world.rows("SELECT * FROM core.fixture_inferences") == []
        # Without the API, matches are marked nevertheless.
        world.simulation.faults.switch_on("error")
        fetched = await world.run("auto_finish_stale_fixtures", try_fetch_first=True)
        assert (fetched.kind, fetched.rows_changed) == ("done", outcome.rows_changed)
        assert fetched.message is not None
        assert "did not respond to /fixtures" in fetched.message


async def test_daily_limit_ends_run_without_further_requests(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with start_collector(database, tmp_path, options={"daily": 4}) as world:
        outcome = await world.run("fixtures_backfill_league_season")
        assert outcome.kind == "out_of_quota"
        sent = world.requests
        assert sent <= 5
        again = await world.run("daily_fixtures_by_date")
        assert again.kind == "out_of_quota"
        assert world.requests == sent


async def test_ended_subscription_is_distinguished_from_used_up_day(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with start_collector(database, tmp_path) as world:
        world.simulation.faults.switch_on("lapsed")
        outcome = await world.run("daily_fixtures_by_date")
        assert outcome.kind == "out_of_quota"
        assert outcome.message is not None
        ended = world.simulation.clock() - timedelta(days=1)
        expected = f"/status reports that the subscription ended on {ended:%Y-%m-%d}: renew it."
        assert outcome.message.endswith(expected)
        assert dict(world.simulation.requests) == {"GET /leagues": 1, "GET /status": 1}


async def test_no_content_counts_as_response(database: ThrowAwayDatabase, tmp_path: Path) -> None:
    async with start_collector(database, tmp_path, leagues=1) as world:
        await world.run("injuries_hourly")
        [(before,)] = await world.rows("SELECT count(*) FROM core.injuries")
        async with world.store.connection() as conn:
            await conn.execute("DELETE FROM football.season_asked WHERE endpoint = 'injuries'")
        world.simulation.faults.switch_on("error", status=204)
        await world.run("injuries_hourly")
        assert await world.rows("SELECT DISTINCT outcome FROM budget.request ORDER BY 1") == [
            ("empty",),
            ("ok",),
        ]
        [(after,)] = await world.rows("SELECT count(*) FROM core.injuries")
        # An empty list of injuries is not fetched again.
        assert (before > 0, after) == (True, 0)
        assert (await world.run("injuries_hourly")).kind == "nothing"
        assert (await rebuild(world.store, world.settings)).datasets


async def test_first_backfill_fetches_monthly_data(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    for wanted, expected in ((False, 0), (True, 1), (True, 1)):
        async with start_collector(
            database, tmp_path, leagues=1, bootstrap_static_on_start=wanted
        ) as world:
            await world.run("fixtures_backfill_league_season", due=now)
            [(there,)] = await world.rows("SELECT count(*) FROM core.countries")
            assert bool(there) == wanted
            sent = world.simulation.requests
            assert sent["GET /countries"] + sent["GET /timezone"] in (0, 2 * expected)


async def test_unknown_state_is_fetched_again(database: ThrowAwayDatabase, tmp_path: Path) -> None:
    async with start_collector(database, tmp_path, leagues=1) as world:
        await world.run("fixtures_backfill_league_season")
        await world.run("stale_scheduled_finalize")
        [(number,)] = await world.rows(
            "UPDATE core.fixtures SET body = jsonb_set(body, '{fixture,status,short}', '\"AWA\"')"
            " WHERE fixture_id = (SELECT min(fixture_id) FROM core.fixtures) RETURNING fixture_id"
        )
        assert (await world.run("stale_scheduled_finalize")).kind == "nothing"
        async with world.store.connection() as conn:
            await conn.execute(
                "UPDATE football.fixture_told SET told_at = told_at - interval '2 days'"
            )
        assert (await world.run("stale_scheduled_finalize")).kind == "done"
        recent = (
            "SELECT fixture_id FROM football.fixture_told WHERE told_at > now() - interval '1 d'"
        )
        assert (number,) in await world.rows(recent)


async def test_line_ups_are_fetched_once_before_kick_off(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with start_collector(database, tmp_path, leagues=6) as world:
        await world.run("fixtures_backfill_league_season")
        await world.run("stale_live_refresh")
        # One league of the six has no line-ups.
        changed = await world.rows(
            "UPDATE core.fixtures SET body = jsonb_set(jsonb_set(body, '{fixture,timestamp}',"
            " to_jsonb(extract(epoch FROM now() + interval '10 minutes')::bigint)),"
            " '{fixture,status,short}', '\"NS\"')"
            " WHERE fixture_id IN (SELECT min(fixture_id) FROM core.fixtures GROUP BY league_id)"
            " RETURNING fixture_id"
        )
        sent_before = world.requests
        assert (await world.run("stale_live_refresh")).kind == "done"
        assert world.requests == sent_before + 1
        detailed = await world.rows(
            "SELECT fixture_id FROM football.fixture_told WHERE details_at"
            " > now() - interval '10 minutes'"
        )
        assert len(set(detailed) & set(changed)) == 5
        assert (await world.run("stale_live_refresh")).kind == "nothing"


async def test_refused_key_is_reported_and_tried_once(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with start_collector(database, tmp_path, api_key="wrong") as world:
        now = datetime.now(UTC)
        for due, expected in ((now, 1), (now, 1), (None, 2)):
            # Scheduled runs wait an hour; a manual run tries it.
            with pytest.raises(SettingsError, match="key"):
                await world.run("bootstrap_countries", due=due)
            assert world.requests == expected
        football = world.settings.section(FootballSettings).model_copy(
            update={"api_key": SecretStr(KEY)}
        )
        world.settings = world.settings.model_copy(update={"football": football})
        assert (await world.run("bootstrap_countries", due=now)).kind == "done"


async def test_no_request_without_key(database: ThrowAwayDatabase, tmp_path: Path) -> None:
    async with start_collector(database, tmp_path, api_key=None) as world:
        with pytest.raises(SettingsError, match="No API key"):
            await world.run("bootstrap_countries")
        assert world.requests == 0


async def test_transient_errors_are_retried_and_refusals_are_not(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with start_collector(database, tmp_path) as world:
        world.simulation.faults.switch_on("errors-in-200", times=1)
        assert (await world.run("bootstrap_countries")).kind == "done"
        assert world.requests == 2
        assert len(await world.rows("SELECT * FROM core.countries")) > 1
        world.simulation.faults.switch_on("not-in-plan")
        await world.run("bootstrap_timezones")
        assert world.requests == 3
        assert await world.rows("SELECT * FROM core.timezones") == []


@pytest.mark.parametrize("mode", ["season", "windows"])
async def test_plan_refusal_is_not_an_empty_response(
    database: ThrowAwayDatabase, tmp_path: Path, mode: str
) -> None:
    names = ["fixtures_backfill_league_season", "standings_backfill_league_season"]
    names += ["injuries_hourly", "fixture_details_backfill_90d"]
    how = {"fixtures_mode": mode, "fixtures_window_days": 90}
    async with start_collector(database, tmp_path, leagues=1, backfill=how) as world:
        for name in ("bootstrap_leagues", "bootstrap_countries"):
            await world.run(name)
        world.simulation.faults.switch_on("not-in-plan")
        outcome = await world.run(names[0])
        assert outcome.message == (
            "The API refused /fixtures: Free plans do not have access to this season. "
            "The API refused /teams: Free plans do not have access to this season."
        )
        for name in names[1:]:
            await world.run(name)
        progress = "SELECT job, completed, next_date, last_error FROM core.backfill_progress"
        reason = "Free plans do not have access to this season."
        assert {(False, reason)} == {(done, why) for _, done, _, why in await world.rows(progress)}
        assert {day for job, _, day, _ in await world.rows(progress) if job == names[0]} <= {
            None,
            world.api.world.start,
        }
        # Scheduled runs wait a day; a manual run tries again.
        now = datetime.now(UTC)
        message = (await world.run(names[0], due=now)).message
        assert message == (
            f"The API refused /timezone: {reason} "
            "The API refused the matches of 1 seasons less than a day ago."
        )
        sent_before = world.requests
        for name in names:
            idle = await world.run(name, due=now)
            assert idle.kind == "nothing", name
            assert idle.message, name
        assert world.requests == sent_before
        world.simulation.faults.switch_off("not-in-plan")
        for name in names:
            assert (await world.run(name)).kind == "done", name
        assert {(True, None)} == {(done, why) for _, done, _, why in await world.rows(progress)}
        now = world.simulation.clock()
        assert await world.fixtures() == {
            m.id: m.at(now).body() for m in world.api.world.matches.values()
        }


async def test_refused_details_stay_due_and_inferences_stay(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with start_collector(database, tmp_path, leagues=1) as world:
        await world.run("fixtures_backfill_league_season")
        [(number,)] = await world.rows(
            "INSERT INTO core.fixture_inferences (fixture_id, inferred_status, reason, inferred_at)"
            " SELECT fixture_id, 'FT', 'silence', now() FROM core.fixtures"
            " ORDER BY date LIMIT 1 RETURNING fixture_id"
        )
        world.simulation.faults.switch_on("not-in-plan")
        sent_before = world.requests
        await world.run("fixture_details_backfill_90d")
        await world.run("auto_finish_verification")
        # One refused request ends the run.
        assert world.requests == sent_before + 2
        world.simulation.faults.switch_off("not-in-plan")
        # A match that the API does not know is not reported either.
        hidden = world.api.world.matches.pop(number)
        await world.run("auto_finish_verification")
        await world.run("fixture_details_backfill_90d")
        assert await world.rows("SELECT fixture_id FROM core.fixture_inferences") == [(number,)]
        [(detailed,)] = await world.rows(
            "SELECT count(*) FROM football.fixture_told WHERE details_at IS NOT NULL"
        )
        assert detailed > 1
        # A season without the match ends its inference.
        world.api.world.by_league[39].remove(hidden)
        async with world.store.connection() as conn:
            await conn.execute("DELETE FROM core.backfill_progress")
        await world.run("fixtures_backfill_league_season")
        assert number not in await world.fixtures()
        assert await world.rows("SELECT fixture_id FROM core.fixture_inferences") == []


async def test_unlisted_followed_leagues_are_reported(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    tracked = [{"id": 39, "season": 2091}, {"id": 777, "season": 2026}]
    async with start_collector(database, tmp_path, leagues=1, tracked_leagues=tracked) as world:
        outcome = await world.run("daily_standings")
        year = world.api.world.season
        assert outcome.message == (
            "The API does not list league 777 (season 2026). The API does not list season 2091"
            f" of league 39; its latest season is {year}."
        )
        outcome = await world.run("daily_standings", only_league_id=5)
        assert (outcome.kind, outcome.message) == (
            "nothing",
            "League 5 is not in tracked_leagues, and its current season is unknown. "
            "Set only_season.",
        )


def test_jobs_include_those_of_the_original() -> None:
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


async def test_leagues_are_found_by_name_and_ambiguity_is_reported(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    year = (datetime.now(UTC) - timedelta(days=25)).year
    tracked = [{"name": "league 2", "season": year}, {"name": "Lege 3", "season": year}]
    async with start_collector(database, tmp_path, tracked_leagues=tracked) as world:
        outcome = await world.run("daily_fixtures_by_date")
        assert outcome.message is not None
        assert "Did you mean League" in outcome.message
        assert set(await world.rows("SELECT DISTINCT league_id FROM core.fixtures")) <= {(40,)}
        await world.run("fixtures_backfill_league_season")
        assert await world.rows("SELECT DISTINCT league_id FROM core.fixtures") == [(40,)]
