"""Defects of the original collector do not come back.

Other tests cover the rest: budget (waiting, processes), elements (groups, events, World), loader
and rebuild (raw responses) and jobs (runs, windows).
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from hasat.console.runtime import source_migrations
from hasat.sources.football.ingest.rebuild import rebuild
from hasat.store import MigrationSet, open_store
from support.football_api import (
    DAY,
    HOUR,
    NO_DETAILS,
    NOW,
    Parameters,
    StartCollector,
    league,
    match,
    matches_of_league,
    reply,
)

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

BACKFILL = "fixtures_backfill_league_season"
INFERRED = "SELECT fixture_id, needs_score_verification FROM core.fixture_inferences"
USED_UP = "You have reached the request limit for the day."


@pytest.fixture
def migrations() -> Sequence[MigrationSet]:
    return source_migrations()


class World:
    """Leagues and their matches, for any parameters."""

    def __init__(self, *matches: Any) -> None:
        self.leagues = [league(39)]
        self.matches = list(matches)
        self.headers: dict[str, str] = {}

    def __call__(self, path: str, parameters: Parameters) -> Any:
        return reply(self._rows(path, parameters), **self.headers)

    def _rows(self, path: str, parameters: Parameters) -> list[Any]:
        if path == "leagues":
            return self.leagues
        if path != "fixtures":
            return []
        if "ids" in parameters:
            wanted = set(map(int, parameters["ids"].split("-")))
            found = [one for one in self.matches if one["fixture"]["id"] in wanted]
            return [one | NO_DETAILS for one in found]
        if "date" in parameters:
            return [one for one in self.matches if one["fixture"]["date"] == parameters["date"]]
        return matches_of_league(self.matches, parameters)


async def test_daily_limit_ends_with_the_day(start_collector: StartCollector) -> None:
    world = World()
    world.headers = {"x_ratelimit_requests_limit": "100", "x_ratelimit_requests_remaining": "10"}
    async with start_collector(world) as here:
        await here.run("bootstrap_timezones")
        assert (await here.run("bootstrap_countries")).kind == "out_of_quota"
        await here.database_clock.set_time((NOW + DAY).replace(hour=0, minute=30))
        # No response came meanwhile that could have corrected the count.
        assert (await here.run("bootstrap_countries")).kind == "done"


async def test_manual_run_works_in_first_minutes_of_day(
    start_collector: StartCollector,
) -> None:
    async with start_collector(World(match(1, NOW - DAY, "FT"))) as here:
        await here.database_clock.set_time((NOW + DAY).replace(hour=0, minute=3))
        assert (await here.run(BACKFILL, here.database_clock.now)).kind == "out_of_quota"
        assert (await here.run(BACKFILL)).kind == "done"
        assert (await here.run("fixture_details_backfill_90d")).kind == "done"


@pytest.mark.parametrize("status", [200, 429])
async def test_daily_limit_holds_without_and_against_stale_headers(
    start_collector: StartCollector, status: int
) -> None:
    stale = {"x_ratelimit_requests_remaining": "7499"} if status == 200 else {}
    said = reply([], errors={"requests": USED_UP}, status=status, **stale)
    async with start_collector(lambda *_: said) as here:
        assert (await here.run("bootstrap_timezones")).kind == "out_of_quota"
        sent_before = len(here.api.requests)
        assert (await here.run("bootstrap_countries")).kind == "out_of_quota"
        assert len(here.api.requests) == sent_before


async def test_complete_season_is_relisted_and_extended(
    start_collector: StartCollector,
) -> None:
    world = World(match(1, NOW + 90 * DAY, "NS"))
    windows = {"fixtures_mode": "windows", "fixtures_window_days": 365}
    async with start_collector(world, backfill=windows) as here:
        await here.run(BACKFILL)
        assert (await here.run(BACKFILL)).kind == "nothing"
        world.matches = [match(1, NOW + 91 * DAY, "NS"), match(2, NOW + 91 * DAY, "NS")]
        await here.database_clock.set_time(NOW + 8 * DAY)
        await here.run(BACKFILL)
        assert await here.rows("SELECT fixture_id FROM core.fixtures ORDER BY 1") == [(1,), (2,)]
        world.leagues[0]["seasons"][0]["start"] = "2026-07-01"
        await here.run("bootstrap_leagues")
        await here.run(BACKFILL)
        assert here.api.requests[-1][1]["from"] == "2026-07-01"


async def test_unverified_inference_stays_an_inference(start_collector: StartCollector) -> None:
    world = World(match(1, NOW - HOUR, "2H"))
    async with start_collector(world) as here:
        await here.run(BACKFILL)
        await here.database_clock.set_time(NOW + 4 * HOUR)
        await here.run("auto_finish_stale_fixtures")
        published = await here.rows("SELECT body FROM core.fixtures")
        world.matches.clear()
        for days in range(1, 8):
            await here.database_clock.set_time(NOW + days * DAY)
            await here.run("auto_finish_verification")
        assert await here.rows(INFERRED) == [(1, True)]
        assert await here.rows("SELECT body FROM core.fixtures") == published


async def test_inferences_end_with_little_quota_left(start_collector: StartCollector) -> None:
    world = World(match(1, NOW - HOUR, "2H"))
    world.headers = {
        "x_ratelimit_requests_limit": "75000",
        "x_ratelimit_requests_remaining": "20000",
    }
    async with start_collector(world) as here:
        await here.run(BACKFILL)
        await here.database_clock.set_time(NOW + 4 * HOUR)
        await here.run("auto_finish_stale_fixtures")
        assert await here.rows(INFERRED) == [(1, True)]
        # The reserve is not spent on verification, but on matches in play.
        assert (await here.run("auto_finish_verification")).kind == "out_of_quota"
        world.matches = [match(1, NOW - HOUR, "FT")]
        assert (await here.run("stale_live_refresh")).kind == "done"
        assert await here.rows(INFERRED) == []
        assert await here.rows("SELECT status_short FROM core.fixtures") == [("FT",)]


async def test_only_api_responses_make_a_match_fresh(start_collector: StartCollector) -> None:
    world = World(match(1, NOW - HOUR, "2H"))
    async with start_collector(world) as here:
        await here.run(BACKFILL)
        await here.database_clock.set_time(NOW + 4 * HOUR)
        # Rewritten rows and a restarted process are no news of a match.
        async with here.store.connection() as conn:
            await conn.execute("TRUNCATE core.fixtures")
        await rebuild(here.store, here.settings)
        async with open_store(here.settings, source_migrations()) as store:
            assert await store.now() == here.database_clock.now
        assert await here.rows("SELECT status_short FROM core.fixtures") == [("2H",)]
        assert await here.rows(INFERRED) == []
        assert (await here.run("auto_finish_stale_fixtures")).rows_changed == 1


@pytest.mark.parametrize("mode", ["global_by_date", "per_tracked_leagues"])
async def test_match_moved_over_midnight_is_fetched(
    start_collector: StartCollector, mode: str
) -> None:
    late = NOW.replace(hour=23, minute=30)

    def dated(moment: Any) -> Any:
        one = match(1, moment, "NS")
        return one | {"fixture": one["fixture"] | {"date": str(moment.date())}}

    world = World(dated(late))
    async with start_collector(world, fixtures_fetch_mode=mode) as here:
        date = "SELECT date FROM core.fixtures"
        for shift in (timedelta(0), HOUR, -HOUR, -DAY):
            world.matches = [dated(late + shift)]
            await here.run("daily_fixtures_by_date")
            assert await here.rows(date) == [(late + shift,)]


@pytest.mark.parametrize("name", ["daily_standings", "stale_live_refresh", BACKFILL])
async def test_any_job_may_run_first(start_collector: StartCollector, name: str) -> None:
    async with start_collector(World(match(1, NOW, "NS"))) as here:
        await here.run(name)
        assert here.api.requests[0] == ("leagues", {})
        if name == BACKFILL:
            assert [path for path, _ in here.api.requests] == ["leagues", "teams", "fixtures"]


async def test_empty_response_is_not_requested_every_ten_minutes(
    start_collector: StartCollector,
) -> None:
    async with start_collector(World()) as here:
        for minutes in range(0, 60, 10):
            await here.database_clock.set_time(NOW + timedelta(minutes=minutes))
            await here.run(BACKFILL, due=here.database_clock.now)
        paths = [path for path, _ in here.api.requests]
        assert (paths.count("timezone"), paths.count("countries")) == (1, 1)
