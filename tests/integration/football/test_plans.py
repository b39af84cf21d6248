"""Requests of low value become rarer on a small plan; results do not."""

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from hasat.sources.football.settings import football_upstream
from hasat.sources.football.status import status
from support.football_api import (
    DAY,
    HOUR,
    NOW,
    Collector,
    Parameters,
    Reply,
    StartCollector,
    league,
    match,
    matches_of_league,
    reply,
)

pytestmark = pytest.mark.anyio

LEAGUES = (39, 40)


class World:
    """Two leagues of twenty teams that played yesterday, on a plan that the headers state."""

    def __init__(self, daily: int) -> None:
        self.daily = daily
        self.matches: list[Any] = []
        for number in range(20):
            played = match(number + 1, NOW - 20 * HOUR, "FT", LEAGUES[number % 2])
            played["teams"] = {"home": {"id": 2 * number + 1}, "away": {"id": 2 * number + 2}}
            self.matches.append(played)

    def respond(self, path: str, parameters: Parameters) -> Reply:
        rows: list[Any] = []
        if path == "leagues":
            rows = [league(number) for number in LEAGUES]
        elif path == "fixtures" and "league" in parameters:
            rows = matches_of_league(self.matches, parameters)
        return reply(rows, x_ratelimit_requests_limit=str(self.daily))


async def hourly(here: Collector, job: str, hours: int) -> Counter[str]:
    """Run a job every hour, as scheduled, and count its requests."""
    before = len(here.api.requests)
    start = here.database_clock.now
    for hour in range(1, hours + 1):
        now = start + hour * HOUR
        await here.database_clock.set_time(now)
        await here.run(job, now)
    return Counter(path for path, _ in here.api.requests[before:])


@pytest.mark.parametrize(("daily", "rounds"), [(100, (2, 3)), (7_500, (23, 24))])
async def test_injuries_follow_the_plan(
    start_collector: StartCollector, daily: int, rounds: tuple[int, int]
) -> None:
    async with start_collector(World(daily).respond, *LEAGUES) as here:
        await here.run("fixtures_backfill_league_season")
        sent = await hourly(here, "injuries_hourly", 24)
        # Two leagues are two requests: fewer than those for today, tomorrow and the days ahead.
        assert rounds[0] * 2 <= sent["injuries"] <= rounds[1] * 2
        assert all("date" not in given for path, given in here.api.requests if path == "injuries")


@pytest.mark.parametrize(("daily", "most"), [(100, 10), (7_500, 40)])
async def test_team_statistics_follow_the_plan(
    start_collector: StartCollector, daily: int, most: int
) -> None:
    async with start_collector(World(daily).respond, *LEAGUES) as here:
        await here.run("fixtures_backfill_league_season")
        # The lane's needs must not stop the requests that this test counts.
        sent = await hourly(here, "team_statistics_refresh", 36)
        assert sent["teams/statistics"] <= most * 2
        first_day = [
            at
            for (at,) in await here.rows(
                "SELECT asked_at FROM football.season_asked WHERE endpoint = 'teams/statistics'"
            )
            if at <= NOW + DAY
        ]
        assert len(first_day) <= most


async def test_few_leagues_are_asked_for_a_range_of_days(start_collector: StartCollector) -> None:
    async with start_collector(World(100).respond, *LEAGUES) as here:
        await here.run("bootstrap_leagues")
        before = len(here.api.requests)
        await here.run("daily_fixtures_by_date", NOW)
        sent = [given for path, given in here.api.requests[before:] if path == "fixtures"]
        assert [(one["league"], one["from"], one["to"]) for one in sent] == [
            ("39", "2026-11-13", "2026-11-15"),
            ("40", "2026-11-13", "2026-11-15"),
        ]


async def test_leagues_a_run_leaves_are_due_in_the_next(start_collector: StartCollector) -> None:
    async with start_collector(World(7_500).respond, *LEAGUES) as here:
        await here.run("fixtures_backfill_league_season")
        mode = {"mode": {"max_leagues_per_run": 1}}
        asked = []
        for hours in (2, 4, 6):
            now = NOW + hours * HOUR
            await here.database_clock.set_time(now)
            await here.run("daily_standings", now, **mode)
            asked.append([g["league"] for path, g in here.api.requests if path == "standings"])
        assert [len(one) for one in asked] == [1, 2, 2]
        assert set(asked[-1]) == {"39", "40"}


@pytest.mark.parametrize(
    ("daily", "leagues", "needs"), [(100, 2, 40), (100, 9, 50), (75_000, 67, 1_500)]
)
async def test_results_have_their_share_of_a_small_plan(
    start_collector: StartCollector, daily: int, leagues: int, needs: int
) -> None:
    ids = range(39, 39 + leagues)
    limits = {"daily_limit": daily}
    async with start_collector(World(daily).respond, *ids, rate_limiter=limits) as here:
        [finalise] = [
            lane for lane in football_upstream(here.settings).lanes if lane.name == "finalise"
        ]
        assert finalise.needs == needs


async def test_unlisted_leagues_are_reported_once_a_day_and_not_requested(
    start_collector: StartCollector,
) -> None:
    followed = (39, *range(900, 948))
    async with start_collector(World(75_000).respond, *followed) as here:
        for hour in range(24):
            now = NOW + hour * HOUR
            await here.database_clock.set_time(now)
            texts = [
                (await here.run(job, now)).message or ""
                for job in ("daily_standings", "injuries_hourly", "daily_fixtures_by_date")
            ]
            reported = [message for message in texts if "does not list" in message]
            # The run that fetches the list of leagues reports, and names five of 48.
            assert len(reported) == (1 if hour in (0, 21) else 0), hour
            for message in reported:
                assert message.count("does not list") == 5
                assert "43 more followed seasons are not listed." in message
        assert not [g for _, g in here.api.requests if int(g.get("league", 0)) >= 900]
        found = await status(here.store, here.settings)
        assert "The API does not list league 900 (season 2026)." in map(str, found["remarks"])


async def test_an_unlisted_league_with_matches_is_still_followed(
    start_collector: StartCollector,
) -> None:
    world = World(75_000)
    world.matches.append(match(900, NOW - 20 * HOUR, "FT", 900))
    async with start_collector(world.respond, 39, 900) as here:
        await here.run("fixtures_backfill_league_season", NOW)
        await here.run("daily_standings", NOW)
        assert ("standings", {"league": "900", "season": "2026"}) in here.api.requests


async def test_columns_of_the_original_exist(start_collector: StartCollector) -> None:
    async with start_collector(World(100).respond, *LEAGUES) as here:
        await here.run("fixtures_backfill_league_season")
        assert await here.rows("SELECT id FROM core.leagues ORDER BY 1") == [(39,), (40,)]
        jobs = await here.rows("SELECT DISTINCT job_id FROM core.backfill_progress")
        assert jobs == [("fixtures_backfill_league_season",)]
        [(counted,)] = await here.rows("SELECT sum(requests) FROM mart.request_rate")
        assert counted == len(here.api.requests)


@pytest.mark.parametrize(("daily", "most"), [(100, 15), (7_500, 5)])
@pytest.mark.parametrize("took", [106, 112, 119, 155])
async def test_end_of_a_match_is_known_soon(
    start_collector: StartCollector, daily: int, most: int, took: int
) -> None:
    """Whenever a match begins and however long it takes, also with extra time."""
    kick_off = NOW + timedelta(minutes=16)
    world = World(daily)

    async with start_collector(world.respond, *LEAGUES) as here:

        def respond(path: str, parameters: Parameters) -> Any:
            played = (here.database_clock.now - kick_off).total_seconds() / 60
            state = "FT" if played >= took else "ET" if played > 122 else "2H"
            row = match(1, kick_off, "NS" if played < 0 else state)
            return [row] if "ids" in parameters else world.respond(path, parameters)

        world.matches = [match(1, kick_off, "NS")]
        await here.run("fixtures_backfill_league_season")
        here.api.respond = respond
        before = len(here.api.requests)
        for minutes in range(20, 205, 5):
            now = NOW + timedelta(minutes=minutes)
            await here.database_clock.set_time(now)
            await here.run("stale_live_refresh", now)
            [(state,)] = await here.rows("SELECT status_short FROM core.fixtures")
            if state == "FT":
                break
        # The first look is 110 minutes after the kick-off, in the next run of the job.
        first = 114 - took
        assert minutes - 16 - took <= max(most, first)
        sent = [path for path, _ in here.api.requests[before:] if path == "fixtures"]
        assert len(sent) <= 2 + max(0, took - 105) // (most - 1)
