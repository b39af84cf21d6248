"""The jobs against unusual responses: incomplete, unreadable or unexpected ones."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from hasat.console.runtime import source_migrations
from hasat.errors import BrokenAnswerError
from hasat.jobs import RunContext
from hasat.sources.football.ingest.rebuild import rebuild
from hasat.sources.football.states import MAY_BE_OVER
from hasat.store import MigrationSet
from support.football_api import (
    DAY,
    GOAL,
    HOUR,
    NO_DETAILS,
    NOW,
    Parameters,
    Reply,
    StartCollector,
    league,
    match,
    matches_of_league,
    reply,
    respond_with_matches,
)

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]


@pytest.fixture
def migrations() -> Sequence[MigrationSet]:
    return source_migrations()


async def test_missing_match_is_fetched_again_after_a_day(
    start_collector: StartCollector,
) -> None:
    left_out = {2}
    matches = [match(n, NOW - 40 * DAY, "FT") for n in (1, 2)]

    def respond(path: str, parameters: Parameters) -> Any:
        if path == "leagues":
            return [league(39)]
        if path == "fixtures" and "ids" in parameters:
            wanted = {int(n) for n in parameters["ids"].split("-")} - left_out
            published = [one for one in matches if one["fixture"]["id"] in wanted]
            return [one | NO_DETAILS | {"events": [GOAL]} for one in published]
        return matches_of_league(matches, parameters) if path == "fixtures" else []

    async with start_collector(respond) as world:
        await world.run("fixtures_backfill_league_season")
        await world.run("fixture_details_backfill_season")
        with_events = "SELECT fixture_id FROM core.fixture_events ORDER BY 1"
        assert await world.rows(with_events) == [(1,)]
        # Not at once: missing matches must not fill every request.
        assert (await world.run("fixture_details_backfill_season")).kind == "nothing"
        left_out.clear()
        await world.database_clock.set_time(NOW + DAY + HOUR)
        await world.run("fixture_details_backfill_season")
        assert await world.rows(with_events) == [(1,), (2,)]
        assert world.api.requests[-1] == ("fixtures", {"ids": "2"})
        await world.database_clock.set_time(NOW + 3 * DAY)
        await world.run("bootstrap_leagues")
        assert (await world.run("fixture_details_backfill_season")).kind == "nothing"


async def test_match_missing_from_api_is_marked_and_rests(
    start_collector: StartCollector,
) -> None:
    matches = [match(1, NOW - 2 * HOUR, "2H")]

    def respond(path: str, parameters: Parameters) -> Any:
        if path == "leagues":
            return [league(39)]
        return (
            matches_of_league(matches, parameters)
            if path == "fixtures" and "ids" not in parameters
            else []
        )

    async with start_collector(respond) as world:
        await world.run("fixtures_backfill_league_season")
        await world.database_clock.set_time(NOW + 4 * HOUR)
        assert (await world.run("stale_live_refresh")).kind == "done"
        assert (await world.run("stale_live_refresh")).kind == "nothing"
        assert await world.rows("SELECT told_at < %s FROM football.fixture_told", NOW + HOUR) == [
            (True,)
        ]
        await world.run("auto_finish_stale_fixtures", try_fetch_first=True)
        assert await world.rows("SELECT fixture_id FROM core.fixture_inferences") == [(1,)]


async def test_details_are_fetched_at_once_after_a_day_and_after_a_week(
    start_collector: StartCollector,
) -> None:
    over = match(1, NOW - 2 * HOUR, "FT")

    def respond(path: str, parameters: Parameters) -> Any:
        if path == "leagues":
            return [league(39)]
        return [over | NO_DETAILS if "ids" in parameters else over] if path == "fixtures" else []

    async with start_collector(respond) as world:
        await world.run("fixtures_backfill_league_season")
        asked_at = []
        for hours in range(0, 24 * 9, 6):
            await world.database_clock.set_time(NOW + hours * HOUR)
            await world.run("fixture_details_recent_finalize")
            if world.api.requests[-1] == ("fixtures", {"ids": "1"}):
                asked_at.append(hours)
            await world.run("bootstrap_leagues")
        assert asked_at == [0, 24, 24 * 7]


async def test_awarded_match_refreshes_table(
    start_collector: StartCollector,
) -> None:
    matches = [match(1, NOW - 3 * DAY, "FT")]

    async with start_collector(respond_with_matches(matches)) as world:
        await world.run("fixtures_backfill_league_season")
        jobs = {"daily_standings": 1, "team_statistics_refresh": 2}
        for name in jobs:
            assert (await world.run(name)).kind == "done"
            assert (await world.run(name)).kind == "nothing"
        await world.database_clock.set_time(NOW + 2 * DAY)
        await world.run("bootstrap_leagues")
        matches[:] = [match(1, NOW - 3 * DAY, "AWD")]
        await world.run("daily_fixtures_by_date")
        for name, requests in jobs.items():
            before = len(world.api.requests)
            await world.run(name)
            assert len(world.api.requests) - before == requests, name


@pytest.mark.parametrize("name", ["daily_standings", "top_scorers_daily"])
async def test_scheduled_run_fetches_table_after_settling_or_at_once(
    start_collector: StartCollector, name: str
) -> None:
    matches = [match(1, NOW - HOUR, "2H")]

    async with start_collector(respond_with_matches(matches)) as world:
        await world.run("fixtures_backfill_league_season")
        matches[:] = [match(1, NOW - HOUR, "FT")]
        # Fetched before, so that it is not due as a new season.
        await world.run("daily_fixtures_by_date")
        await world.run(name)
        matches[:] = [match(1, NOW - HOUR, "AET")]
        await world.database_clock.set_time(NOW + HOUR / 60)
        await world.run("daily_fixtures_by_date")
        due = world.database_clock.now
        assert (await world.run(name, due)).kind == "nothing"
        assert (await world.run(name, due, at_once=True)).kind == "done"
        assert (await world.run(name, due, at_once=True)).kind == "nothing"
        await world.database_clock.set_time(due + HOUR)
        assert (await world.run(name, world.database_clock.now)).kind == "done"


async def test_only_named_league_is_marked(start_collector: StartCollector) -> None:
    matches = [match(n, NOW - 2 * HOUR, "2H", of=n) for n in (39, 40)]

    def respond(path: str, parameters: Parameters) -> Any:
        if path == "leagues":
            return [league(39), league(40)]
        return matches_of_league(matches, parameters) if path == "fixtures" else []

    async with start_collector(respond, 39, 40) as world:
        await world.run("fixtures_backfill_league_season")
        await world.database_clock.set_time(NOW + 4 * HOUR)
        await world.run("auto_finish_stale_fixtures", only_league_id=40)
        assert await world.rows("SELECT fixture_id FROM core.fixture_inferences") == [(40,)]


@pytest.mark.parametrize("hours", [-48.0, -1e9, 0.0])
async def test_match_that_has_not_begun_is_never_inferred_finished(
    start_collector: StartCollector, hours: float
) -> None:
    """The condition is in the database, so that even a negative threshold has no effect."""
    later = [match(n, NOW + n * HOUR, status) for n, status in enumerate(MAY_BE_OVER, 1)]
    # The other one has just begun and may still be in play.
    matches = [match(100, NOW - 2 * HOUR, "2H"), match(101, NOW - HOUR, "1H"), *later]

    async with start_collector(respond_with_matches(matches)) as world:
        await world.run("fixtures_backfill_league_season")
        await world.run("auto_finish_stale_fixtures", threshold_hours=hours, safety_lag_hours=hours)
        inferred = "SELECT fixture_id FROM core.fixture_inferences ORDER BY 1"
        # At the same moment no match is stale.
        assert await world.rows(inferred) == []
        await world.database_clock.set_time(NOW + HOUR / 60)
        await world.run("auto_finish_stale_fixtures", threshold_hours=hours, safety_lag_hours=hours)
        assert await world.rows(inferred) == [(100,)]
        # Moved without a response of the API, as a rebuild may do.
        async with world.store.connection() as conn:
            await conn.execute(
                "INSERT INTO core.fixture_inferences (fixture_id, inferred_status, reason,"
                " inferred_at) VALUES (5, 'FT', 'silence', now())"
            )
        await rebuild(world.store, world.settings)
        assert await world.rows(inferred) == [(100,)]


async def test_random_schedules_never_infer_unstarted_match_finished(
    start_collector: StartCollector,
) -> None:
    """Move random states and kick-offs, and run every job that makes or ends inferences."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    codes = [*MAY_BE_OVER, "TBD", "PST", "CANC", "SUSP", "ABD", "AWD", "FT", "??"]

    def moved(number: int, now: datetime) -> Any:
        # A kick-off may be unknown or far away.
        one = match(number, now + dice.randint(-96, 96) * HOUR / 4, dice.choice(codes))
        if dice.random() < 0.1:
            one["fixture"]["timestamp"] = None
        return one

    matches = {number: moved(number, NOW) for number in range(1, 31)}
    silent: set[int] = set()

    def respond(path: str, parameters: Parameters) -> Any:
        if path == "leagues":
            return [league(39)]
        if path != "fixtures":
            return []
        wanted = parameters.get("ids", "-".join(map(str, matches))).split("-")
        published = [matches[int(number)] for number in wanted if int(number) not in silent]
        return [one | NO_DETAILS for one in published] if "ids" in parameters else published

    inferred = (
        "SELECT i.fixture_id, f.status_short, f.date <= clock_timestamp(), f.date"
        " FROM core.fixture_inferences AS i LEFT JOIN core.fixtures AS f USING (fixture_id)"
    )
    count = "SELECT count(*) FROM core.fixture_inferences"
    marked = 0
    async with start_collector(respond) as world:
        for _ in range(40):
            for number in dice.sample(range(1, 31), 8):
                matches[number] = moved(number, world.database_clock.now)
            silent = set(dice.sample(range(1, 31), dice.randrange(15)))
            before = await world.rows(count)
            hours = {
                "threshold_hours": dice.choice((0, 0.25, 2, 6)),
                "safety_lag_hours": dice.choice((0, 0.25, 3)),
                "try_fetch_first": dice.random() < 0.3,
            }
            match dice.randrange(7):
                case 0 | 1:
                    await world.run("auto_finish_stale_fixtures", **hours)
                case 2:
                    await world.run("auto_finish_stale_fixtures", dry_run=True, **hours)
                    assert await world.rows(count) == before
                case 3:
                    await world.run("auto_finish_verification")
                case 4:
                    await world.run("stale_scheduled_finalize")
                    await world.run("stale_live_refresh")
                case 5:
                    silent.clear()
                    await world.run("fixtures_backfill_league_season", only_league_id=39)
                case _:
                    await world.run("fixture_details_backfill_90d")
            for number, status, has_begun, date in await world.rows(inferred):
                marked += 1
                assert has_begun, (number, status, date)
                assert status in MAY_BE_OVER, (number, status, date)
            await world.database_clock.set_time(
                world.database_clock.now + dice.choice((0, 1, 20, 120)) * HOUR / 20
            )
        await rebuild(world.store, world.settings)
        assert all(begun for _, _, begun, _ in await world.rows(inferred))
    assert marked, seed


async def test_kick_off_moved_during_inference_ends_it(
    start_collector: StartCollector,
) -> None:
    """The run waits for a writer of matches, and then sees the new kick-off."""
    async with start_collector(respond_with_matches([match(1, NOW - 2 * HOUR, "2H")])) as world:
        await world.run("fixtures_backfill_league_season")
        await world.database_clock.set_time(NOW + 4 * HOUR)
        async with world.store.connection() as conn:
            await conn.execute("SELECT FROM feed.head WHERE dataset = 'fixtures' FOR UPDATE")
            await conn.execute(
                "UPDATE core.fixtures SET body = jsonb_set(body, '{fixture,timestamp}', %s)",
                [Jsonb(int((NOW + DAY).timestamp()))],
            )
            run = asyncio.create_task(world.run("auto_finish_stale_fixtures"))
            waits = (
                "SELECT FROM pg_locks WHERE NOT granted"
                " AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database())"
            )
            while not run.done() and not await world.rows(waits):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await run
        assert await world.rows("SELECT fixture_id FROM core.fixture_inferences") == []


async def test_detail_backfills_start_at_opposite_ends(start_collector: StartCollector) -> None:
    matches = [match(n, NOW - n * DAY, "FT") for n in range(1, 61)]

    def respond(path: str, parameters: Parameters) -> Any:
        if path == "leagues":
            return [league(39)]
        wanted = set(parameters.get("ids", "").split("-"))
        by_id = [one | NO_DETAILS for one in matches if str(one["fixture"]["id"]) in wanted]
        return (by_id if "ids" in parameters else matches) if path == "fixtures" else []

    async with start_collector(respond) as world:
        await world.run("fixtures_backfill_league_season")
        for name, first in (
            ("fixture_details_backfill_90d", range(1, 21)),
            ("fixture_details_backfill_season", range(60, 40, -1)),
        ):
            before = len(world.api.requests)
            await world.run(name)
            assert world.api.requests[before][1]["ids"] == "-".join(map(str, first))


@pytest.mark.parametrize("dry_run", [False, True])
async def test_try_fetch_first_counts_and_dry_run_sends_nothing(
    start_collector: StartCollector, dry_run: bool
) -> None:
    matches = [match(n, NOW - HOUR, "2H") for n in (1, 2)]

    def respond(path: str, parameters: Parameters) -> Any:
        if path == "leagues":
            return [league(39)]
        return [one | NO_DETAILS for one in matches] if path == "fixtures" else []

    async with start_collector(respond) as world:
        await world.run("fixtures_backfill_league_season")
        await world.database_clock.set_time(NOW + 5 * HOUR)
        # One match has ended, the other is missing.
        matches[:] = [match(1, NOW - HOUR, "FT")]
        parameters = len(world.api.requests)
        outcome = await world.run(
            "auto_finish_stale_fixtures", try_fetch_first=True, dry_run=dry_run
        )
        assert outcome.kind == "done"
        found = await world.rows("SELECT status_short FROM core.fixtures ORDER BY fixture_id")
        inferred = await world.rows("SELECT fixture_id FROM core.fixture_inferences")
        if dry_run:
            assert (outcome.rows_changed, len(world.api.requests) - parameters) == (2, 0)
            assert (found, inferred) == ([("2H",), ("2H",)], [])
        else:
            assert (outcome.rows_changed, outcome.detail) == (2, {"marked": 1})
            assert (found, inferred) == ([("FT",), ("2H",)], [(2,)])


@pytest.mark.parametrize(
    ("setting", "param", "kind"),
    [
        (75_000, None, "out_of_quota"),
        (60_000, None, "done"),
        (50_000, 75_000, "out_of_quota"),
        (50_000, 60_000, "done"),
    ],
)
async def test_verification_respects_min_daily_quota(
    start_collector: StartCollector, setting: int, param: int | None, kind: str
) -> None:
    matches = [match(1, NOW - HOUR, "2H")]

    async with start_collector(
        respond_with_matches(matches), verification={"min_daily_quota": setting}
    ) as world:
        await world.run("fixtures_backfill_league_season")
        await world.database_clock.set_time(NOW + 5 * HOUR)
        await world.run("auto_finish_stale_fixtures")
        parameters = len(world.api.requests)
        published = await world.run("auto_finish_verification", min_daily_quota=param)
        assert published.kind == kind
        assert (len(world.api.requests) > parameters) == (kind == "done")


async def test_match_without_league_is_quarantined(start_collector: StartCollector) -> None:
    """In a response about all leagues, it might belong to a followed one."""
    known, odd = match(1, NOW, "NS"), match(2, NOW, "NS")
    odd["league"]["id"] = "39"
    nameless = match(3, NOW, "NS")
    del nameless["league"]

    followed = (39, 40, 41)

    def respond(path: str, parameters: Parameters) -> Any:
        if path == "leagues":
            return [league(number) for number in followed]
        return [known, odd, nameless] if path == "fixtures" else []

    # Fewer leagues are asked for one by one.
    async with start_collector(respond, *followed) as world:
        await world.run("daily_fixtures_by_date")
        assert await world.rows("SELECT fixture_id FROM core.fixtures") == [(1,)]
        reasons = await world.rows("SELECT DISTINCT reason FROM raw.set_aside ORDER BY 1")
        assert reasons == [("fixtures: its league is missing",)]
        before = await world.rows("SELECT key, body, digest, seq FROM core.fixtures")
        done = await rebuild(world.store, world.settings)
        assert {one.how for one in done.datasets} == {"intact"}
        assert await world.rows("SELECT key, body, digest, seq FROM core.fixtures") == before


@pytest.mark.parametrize("body", [b"<html></html>", b'{"get": "timezone", "respo', b""])
async def test_unreadable_response_is_reported_and_quarantined(
    start_collector: StartCollector, body: bytes
) -> None:
    async with start_collector(lambda *_: Reply(body)) as world:
        with pytest.raises(BrokenAnswerError) as failed:
            await world.run("bootstrap_timezones")
        assert failed.value.message == (
            "The response of /timezone cannot be read: this is not the envelope of API-Football."
        )
        assert await world.rows("SELECT DISTINCT origin, content FROM raw.set_aside") == [
            ("/timezone", body)
        ]
        assert await world.rows("SELECT DISTINCT outcome FROM budget.request") == [("broken",)]


async def test_new_season_of_followed_league_is_reported(start_collector: StartCollector) -> None:
    listed = league(39)
    listed["seasons"] += [{"year": 2027, "current": True}]
    async with start_collector(lambda *_: [listed]) as world:
        outcome = await world.run("season_rollover_watch")
        assert outcome.message == (
            "L39 (id 39) has started season 2027, but season 2026 is followed. "
            "Update tracked_leagues."
        )


@pytest.mark.parametrize("body", [b'{"response": [1]}', b'{"errors": [], "response": [NaN]}'])
async def test_unreadable_season_is_not_complete(
    start_collector: StartCollector, body: bytes
) -> None:
    def respond(path: str, _: Parameters) -> Any:
        return Reply(body) if path == "fixtures" else [league(39)] if path == "leagues" else []

    async with start_collector(respond) as world:
        await world.run("fixtures_backfill_league_season")
        progress = "SELECT completed, last_error FROM core.backfill_progress"
        assert await world.rows(progress) == [(False, "the response cannot be read")]
        assert (body,) in await world.rows("SELECT content FROM raw.set_aside")


async def test_wrong_daily_limit_response_pauses_jobs_for_15_minutes(
    start_collector: StartCollector,
) -> None:
    lapsed = True
    used = 75_000

    def respond(path: str, parameters: Parameters) -> Any:
        if path == "status":
            counts = {"requests": {"current": used, "limit_day": 75_000}}
            return Reply(json.dumps({"errors": [], "response": counts}).encode())
        if lapsed:
            return reply([], errors={"requests": "You have reached the request limit for the day"})
        return [league(39)] if path == "leagues" else []

    async with start_collector(respond) as world:
        assert (await world.run("bootstrap_leagues")).kind == "out_of_quota"
        lapsed = False
        await world.database_clock.set_time(NOW + HOUR / 5)
        assert (await world.run("bootstrap_leagues")).kind == "out_of_quota"
        assert [path for path, _ in world.api.requests] == ["leagues", "status"]
        # The free request reports that nothing is left: no other request is sent.
        await world.database_clock.set_time(NOW + HOUR / 3)
        assert (await world.run("bootstrap_leagues")).kind == "out_of_quota"
        assert [path for path, _ in world.api.requests] == ["leagues", "status", "status"]
        used = 10
        await world.database_clock.set_time(NOW + HOUR)
        assert (await world.run("bootstrap_leagues")).kind == "done"
        assert (await world.run("bootstrap_countries")).kind == "done"


async def test_run_releases_its_slot_while_api_requests_pause(
    start_collector: StartCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    @asynccontextmanager
    async def waiting(self: RunContext, seconds: float) -> AsyncIterator[None]:
        waits.append(seconds)
        yield

    monkeypatch.setattr(RunContext, "waiting", waiting)

    async with start_collector(lambda path, parameters: [league(39)]) as world:
        await world.run("bootstrap_leagues")
        async with world.store.connection() as conn:
            await conn.execute("SELECT budget.slow_down('football', 1, 120, NULL)")
        before = len(world.api.requests)
        assert (await world.run("bootstrap_leagues")).kind == "done"
        assert len(world.api.requests) == before + 1
    assert 100 < max(waits) <= 120
