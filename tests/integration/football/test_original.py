"""What was wrong in the original collector does not come back.

Its other defects are held by the tests of the budget (waiting, processes), of elements (groups,
events, World), of loading and retention (RAW), and of jobs (runs, windows).
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from hasat.cli.runtime import source_migrations
from hasat.sources.football.ingest.rebuild import rebuild
from hasat.store import MigrationSet, open_store
from support.football_api import (
    DAY,
    HOUR,
    NO_DETAILS,
    NOW,
    Collecting,
    Parameters,
    league,
    match,
    of_league,
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
    """Leagues and their matches, in every way in which they are asked for."""

    def __init__(self, *matches: Any) -> None:
        self.leagues = [league(39)]
        self.matches = list(matches)
        self.headers: dict[str, str] = {}

    def __call__(self, path: str, asked: Parameters) -> Any:
        return reply(self._rows(path, asked), **self.headers)

    def _rows(self, path: str, asked: Parameters) -> list[Any]:
        if path == "leagues":
            return self.leagues
        if path != "fixtures":
            return []
        if "ids" in asked:
            wanted = set(map(int, asked["ids"].split("-")))
            found = [one for one in self.matches if one["fixture"]["id"] in wanted]
            return [one | NO_DETAILS for one in found]
        if "date" in asked:
            return [one for one in self.matches if one["fixture"]["date"] == asked["date"]]
        return of_league(self.matches, asked)


async def test_what_stopped_a_day_does_not_stop_the_next(collecting: Collecting) -> None:
    world = World()
    world.headers = {"x_ratelimit_requests_limit": "100", "x_ratelimit_requests_remaining": "10"}
    async with collecting(world) as here:
        await here.run("bootstrap_timezones")
        assert (await here.run("bootstrap_countries")).kind == "out_of_quota"
        await here.database_clock.set_time((NOW + DAY).replace(hour=0, minute=30))
        # No answer came meanwhile from which a new count could have been learned.
        assert (await here.run("bootstrap_countries")).kind == "done"


async def test_in_the_first_minutes_of_a_day_who_asks_by_hand_is_answered(
    collecting: Collecting,
) -> None:
    async with collecting(World(match(1, NOW - DAY, "FT"))) as here:
        await here.database_clock.set_time((NOW + DAY).replace(hour=0, minute=3))
        assert (await here.run(BACKFILL, here.database_clock.now)).kind == "out_of_quota"
        assert (await here.run(BACKFILL)).kind == "done"
        assert (await here.run("fixture_details_backfill_90d")).kind == "done"


@pytest.mark.parametrize("status", [200, 429])
async def test_the_days_end_is_kept_without_headers_and_against_stale_ones(
    collecting: Collecting, status: int
) -> None:
    stale = {"x_ratelimit_requests_remaining": "7499"} if status == 200 else {}
    said = reply([], errors={"requests": USED_UP}, status=status, **stale)
    async with collecting(lambda *_: said) as here:
        assert (await here.run("bootstrap_timezones")).kind == "out_of_quota"
        asked = len(here.api.asked)
        assert (await here.run("bootstrap_countries")).kind == "out_of_quota"
        assert len(here.api.asked) == asked


async def test_a_completed_season_is_listed_anew_and_a_longer_one_is_completed(
    collecting: Collecting,
) -> None:
    world = World(match(1, NOW + 90 * DAY, "NS"))
    windows = {"fixtures_mode": "windows", "fixtures_window_days": 365}
    async with collecting(world, backfill=windows) as here:
        await here.run(BACKFILL)
        assert (await here.run(BACKFILL)).kind == "nothing"
        world.matches = [match(1, NOW + 91 * DAY, "NS"), match(2, NOW + 91 * DAY, "NS")]
        await here.database_clock.set_time(NOW + 8 * DAY)
        await here.run(BACKFILL)
        assert await here.rows("SELECT fixture_id FROM core.fixtures ORDER BY 1") == [(1,), (2,)]
        world.leagues[0]["seasons"][0]["start"] = "2026-07-01"
        await here.run("bootstrap_leagues")
        await here.run(BACKFILL)
        assert here.api.asked[-1][1]["from"] == "2026-07-01"


async def test_what_could_not_be_verified_stays_a_guess(collecting: Collecting) -> None:
    world = World(match(1, NOW - HOUR, "2H"))
    async with collecting(world) as here:
        await here.run(BACKFILL)
        await here.database_clock.set_time(NOW + 4 * HOUR)
        await here.run("auto_finish_stale_fixtures")
        told = await here.rows("SELECT body FROM core.fixtures")
        world.matches.clear()
        for days in range(1, 8):
            await here.database_clock.set_time(NOW + days * DAY)
            await here.run("auto_finish_verification")
        assert await here.rows(INFERRED) == [(1, True)]
        assert await here.rows("SELECT body FROM core.fixtures") == told


async def test_guesses_end_also_on_a_day_with_little_left(collecting: Collecting) -> None:
    world = World(match(1, NOW - HOUR, "2H"))
    world.headers = {
        "x_ratelimit_requests_limit": "75000",
        "x_ratelimit_requests_remaining": "20000",
    }
    async with collecting(world) as here:
        await here.run(BACKFILL)
        await here.database_clock.set_time(NOW + 4 * HOUR)
        await here.run("auto_finish_stale_fixtures")
        assert await here.rows(INFERRED) == [(1, True)]
        # What is kept for others is not spent on verification, but on matches being played it is.
        assert (await here.run("auto_finish_verification")).kind == "out_of_quota"
        world.matches = [match(1, NOW - HOUR, "FT")]
        assert (await here.run("stale_live_refresh")).kind == "done"
        assert await here.rows(INFERRED) == []
        assert await here.rows("SELECT status_short FROM core.fixtures") == [("FT",)]


async def test_only_the_apis_word_makes_a_match_fresh(collecting: Collecting) -> None:
    world = World(match(1, NOW - HOUR, "2H"))
    async with collecting(world) as here:
        await here.run(BACKFILL)
        await here.database_clock.set_time(NOW + 4 * HOUR)
        # Everything is written again, and a process starts: nothing of that is news of a match.
        async with here.store.connection() as conn:
            await conn.execute("TRUNCATE core.fixtures")
        await rebuild(here.store, here.settings)
        async with open_store(here.settings, source_migrations()) as store:
            assert await store.now() == here.database_clock.now
        assert await here.rows("SELECT status_short FROM core.fixtures") == [("2H",)]
        assert await here.rows(INFERRED) == []
        assert (await here.run("auto_finish_stale_fixtures")).rows_changed == 1


@pytest.mark.parametrize("mode", ["global_by_date", "per_tracked_leagues"])
async def test_a_match_moved_over_midnight_is_in_the_days_that_are_asked_for(
    collecting: Collecting, mode: str
) -> None:
    late = NOW.replace(hour=23, minute=30)

    def dated(moment: Any) -> Any:
        one = match(1, moment, "NS")
        return one | {"fixture": one["fixture"] | {"date": str(moment.date())}}

    world = World(dated(late))
    async with collecting(world, fixtures_fetch_mode=mode) as here:
        date = "SELECT date FROM core.fixtures"
        for shift in (timedelta(0), HOUR, -HOUR, -DAY):
            world.matches = [dated(late + shift)]
            await here.run("daily_fixtures_by_date")
            assert await here.rows(date) == [(late + shift,)]


@pytest.mark.parametrize("name", ["daily_standings", "stale_live_refresh", BACKFILL])
async def test_any_job_may_be_the_first(collecting: Collecting, name: str) -> None:
    async with collecting(World(match(1, NOW, "NS"))) as here:
        await here.run(name)
        assert here.api.asked[0] == ("leagues", {})
        if name == BACKFILL:
            assert [path for path, _ in here.api.asked] == ["leagues", "teams", "fixtures"]


async def test_what_is_said_to_be_nothing_is_not_asked_for_every_ten_minutes(
    collecting: Collecting,
) -> None:
    async with collecting(World()) as here:
        for minutes in range(0, 60, 10):
            await here.database_clock.set_time(NOW + timedelta(minutes=minutes))
            await here.run(BACKFILL, due=here.database_clock.now)
        asked = [path for path, _ in here.api.asked]
        assert (asked.count("timezone"), asked.count("countries")) == (1, 1)
