"""The jobs against an API that answers oddly: too little, unreadably, or something else."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from hasat.cli.runtime import source_migrations
from hasat.errors import BrokenAnswerError
from hasat.jobs import RunContext
from hasat.sources.football.datasets import MAY_BE_OVER
from hasat.sources.football.ingest.rebuild import rebuild
from hasat.store import MigrationSet
from support.football_api import (
    DAY,
    GOAL,
    HOUR,
    NO_DETAILS,
    NOW,
    Collecting,
    Parameters,
    Reply,
    league,
    match,
    of_league,
    reply,
    telling,
)

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]


@pytest.fixture
def migrations() -> Sequence[MigrationSet]:
    return source_migrations()


async def test_a_match_that_an_answer_left_out_is_asked_for_again_a_day_later(
    collecting: Collecting,
) -> None:
    left_out = {2}
    matches = [match(n, NOW - 40 * DAY, "FT") for n in (1, 2)]

    def tell(path: str, asked: Parameters) -> Any:
        if path == "leagues":
            return [league(39)]
        if path == "fixtures" and "ids" in asked:
            wanted = {int(n) for n in asked["ids"].split("-")} - left_out
            told = [one for one in matches if one["fixture"]["id"] in wanted]
            return [one | NO_DETAILS | {"events": [GOAL]} for one in told]
        return of_league(matches, asked) if path == "fixtures" else []

    async with collecting(tell) as world:
        await world.run("fixtures_backfill_league_season")
        await world.run("fixture_details_backfill_season")
        with_events = "SELECT fixture_id FROM core.fixture_events ORDER BY 1"
        assert await world.rows(with_events) == [(1,)]
        # Not at once: what the API does not have must not fill every request.
        assert (await world.run("fixture_details_backfill_season")).kind == "nothing"
        left_out.clear()
        await world.database_clock.set_time(NOW + DAY + HOUR)
        await world.run("fixture_details_backfill_season")
        assert await world.rows(with_events) == [(1,), (2,)]
        assert world.api.asked[-1] == ("fixtures", {"ids": "2"})
        await world.database_clock.set_time(NOW + 3 * DAY)
        await world.run("bootstrap_leagues")
        assert (await world.run("fixture_details_backfill_season")).kind == "nothing"


async def test_a_match_of_which_the_api_says_nothing_is_marked_and_rests(
    collecting: Collecting,
) -> None:
    matches = [match(1, NOW - 2 * HOUR, "2H")]

    def tell(path: str, asked: Parameters) -> Any:
        if path == "leagues":
            return [league(39)]
        return of_league(matches, asked) if path == "fixtures" and "ids" not in asked else []

    async with collecting(tell) as world:
        await world.run("fixtures_backfill_league_season")
        await world.database_clock.set_time(NOW + 4 * HOUR)
        assert (await world.run("stale_live_refresh")).kind == "done"
        assert (await world.run("stale_live_refresh")).kind == "nothing"
        assert await world.rows("SELECT told_at < %s FROM football.fixture_told", NOW + HOUR) == [
            (True,)
        ]
        await world.run("auto_finish_stale_fixtures", try_fetch_first=True)
        assert await world.rows("SELECT fixture_id FROM core.fixture_inferences") == [(1,)]


async def test_details_are_asked_for_at_once_and_a_day_and_a_week_later(
    collecting: Collecting,
) -> None:
    over = match(1, NOW - 2 * HOUR, "FT")

    def tell(path: str, asked: Parameters) -> Any:
        if path == "leagues":
            return [league(39)]
        return [over | NO_DETAILS if "ids" in asked else over] if path == "fixtures" else []

    async with collecting(tell) as world:
        await world.run("fixtures_backfill_league_season")
        asked_at = []
        for hours in range(0, 24 * 9, 6):
            await world.database_clock.set_time(NOW + hours * HOUR)
            await world.run("fixture_details_recent_finalize")
            if world.api.asked[-1] == ("fixtures", {"ids": "1"}):
                asked_at.append(hours)
            await world.run("bootstrap_leagues")
        assert asked_at == [0, 24, 24 * 7]


async def test_a_result_that_is_decided_at_a_table_changes_the_table(
    collecting: Collecting,
) -> None:
    matches = [match(1, NOW - 3 * DAY, "FT")]

    async with collecting(telling(matches)) as world:
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
            before = len(world.api.asked)
            await world.run(name)
            assert len(world.api.asked) - before == requests, name


@pytest.mark.parametrize("name", ["daily_standings", "top_scorers_daily"])
async def test_by_the_clock_a_table_is_asked_for_when_it_has_settled_or_at_once(
    collecting: Collecting, name: str
) -> None:
    matches = [match(1, NOW - HOUR, "2H")]

    async with collecting(telling(matches)) as world:
        await world.run("fixtures_backfill_league_season")
        matches[:] = [match(1, NOW - HOUR, "FT")]
        # Known already, so that it is not asked for because nobody ever did.
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


async def test_only_the_league_that_was_named_is_marked(collecting: Collecting) -> None:
    matches = [match(n, NOW - 2 * HOUR, "2H", of=n) for n in (39, 40)]

    def tell(path: str, asked: Parameters) -> Any:
        if path == "leagues":
            return [league(39), league(40)]
        return of_league(matches, asked) if path == "fixtures" else []

    async with collecting(tell, 39, 40) as world:
        await world.run("fixtures_backfill_league_season")
        await world.database_clock.set_time(NOW + 4 * HOUR)
        await world.run("auto_finish_stale_fixtures", only_league_id=40)
        assert await world.rows("SELECT fixture_id FROM core.fixture_inferences") == [(40,)]


@pytest.mark.parametrize("hours", [-48.0, -1e9, 0.0])
async def test_what_has_not_begun_is_never_inferred_to_be_over(
    collecting: Collecting, hours: float
) -> None:
    """Also where a threshold below zero gets past every check: the condition is in the database."""
    later = [match(n, NOW + n * HOUR, status) for n, status in enumerate(MAY_BE_OVER, 1)]
    matches = [match(100, NOW - 2 * HOUR, "2H"), *later]

    async with collecting(telling(matches)) as world:
        await world.run("fixtures_backfill_league_season")
        await world.run("auto_finish_stale_fixtures", threshold_hours=hours, safety_lag_hours=hours)
        inferred = "SELECT fixture_id FROM core.fixture_inferences ORDER BY 1"
        # At the same moment nothing has been silent for any time at all.
        assert await world.rows(inferred) == []
        await world.database_clock.set_time(NOW + HOUR / 60)
        await world.run("auto_finish_stale_fixtures", threshold_hours=hours, safety_lag_hours=hours)
        assert await world.rows(inferred) == [(100,)]
        # Re-dated without a word from the API, as a rebuild may find out.
        async with world.store.connection() as conn:
            await conn.execute(
                "INSERT INTO core.fixture_inferences (fixture_id, inferred_status, reason,"
                " inferred_at) VALUES (5, 'FT', 'silence', now())"
            )
        await rebuild(world.store, world.settings)
        assert await world.rows(inferred) == [(100,)]


async def test_no_way_to_infer_takes_a_match_for_over_that_has_not_begun(
    collecting: Collecting,
) -> None:
    """Random states and kick-offs, moved both ways, and every job that infers or ends that."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    codes = [*MAY_BE_OVER, "TBD", "PST", "CANC", "SUSP", "ABD", "AWD", "FT", "??"]

    def moved(number: int, now: datetime) -> Any:
        # A kick-off that nobody knows is as possible as one far away.
        one = match(number, now + dice.randint(-96, 96) * HOUR / 4, dice.choice(codes))
        if dice.random() < 0.1:
            one["fixture"]["timestamp"] = None
        return one

    matches = {number: moved(number, NOW) for number in range(1, 31)}
    silent: set[int] = set()

    def tell(path: str, asked: Parameters) -> Any:
        if path == "leagues":
            return [league(39)]
        if path != "fixtures":
            return []
        wanted = asked.get("ids", "-".join(map(str, matches))).split("-")
        told = [matches[int(number)] for number in wanted if int(number) not in silent]
        return [one | NO_DETAILS for one in told] if "ids" in asked else told

    inferred = (
        "SELECT i.fixture_id, f.status_short, f.date <= clock_timestamp(), f.date"
        " FROM core.fixture_inferences AS i LEFT JOIN core.fixtures AS f USING (fixture_id)"
    )
    count = "SELECT count(*) FROM core.fixture_inferences"
    marked = 0
    async with collecting(tell) as world:
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


async def test_a_kick_off_that_moves_while_a_run_infers_ends_what_it_infers(
    collecting: Collecting,
) -> None:
    """The run waits for a writer of matches, and then sees the new kick-off."""
    async with collecting(telling([match(1, NOW - 2 * HOUR, "2H")])) as world:
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


async def test_two_backfills_of_details_begin_at_both_ends(collecting: Collecting) -> None:
    matches = [match(n, NOW - n * DAY, "FT") for n in range(1, 61)]

    def tell(path: str, asked: Parameters) -> Any:
        if path == "leagues":
            return [league(39)]
        wanted = set(asked.get("ids", "").split("-"))
        by_id = [one | NO_DETAILS for one in matches if str(one["fixture"]["id"]) in wanted]
        return (by_id if "ids" in asked else matches) if path == "fixtures" else []

    async with collecting(tell) as world:
        await world.run("fixtures_backfill_league_season")
        for name, first in (
            ("fixture_details_backfill_90d", range(1, 21)),
            ("fixture_details_backfill_season", range(60, 40, -1)),
        ):
            before = len(world.api.asked)
            await world.run(name)
            assert world.api.asked[before][1]["ids"] == "-".join(map(str, first))


@pytest.mark.parametrize("dry_run", [False, True])
async def test_matches_that_are_asked_for_first_count_and_a_dry_run_asks_nobody(
    collecting: Collecting, dry_run: bool
) -> None:
    matches = [match(n, NOW - HOUR, "2H") for n in (1, 2)]

    def tell(path: str, asked: Parameters) -> Any:
        if path == "leagues":
            return [league(39)]
        return [one | NO_DETAILS for one in matches] if path == "fixtures" else []

    async with collecting(tell) as world:
        await world.run("fixtures_backfill_league_season")
        await world.database_clock.set_time(NOW + 5 * HOUR)
        # One has ended, and of the other nothing is told.
        matches[:] = [match(1, NOW - HOUR, "FT")]
        asked = len(world.api.asked)
        outcome = await world.run(
            "auto_finish_stale_fixtures", try_fetch_first=True, dry_run=dry_run
        )
        assert outcome.kind == "done"
        found = await world.rows("SELECT status_short FROM core.fixtures ORDER BY fixture_id")
        inferred = await world.rows("SELECT fixture_id FROM core.fixture_inferences")
        if dry_run:
            assert (outcome.rows_changed, len(world.api.asked) - asked) == (2, 0)
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
async def test_verification_leaves_what_it_is_told_to_leave(
    collecting: Collecting, setting: int, param: int | None, kind: str
) -> None:
    matches = [match(1, NOW - HOUR, "2H")]

    async with collecting(telling(matches), verification={"min_daily_quota": setting}) as world:
        await world.run("fixtures_backfill_league_season")
        await world.database_clock.set_time(NOW + 5 * HOUR)
        await world.run("auto_finish_stale_fixtures")
        asked = len(world.api.asked)
        told = await world.run("auto_finish_verification", min_daily_quota=param)
        assert told.kind == kind
        assert (len(world.api.asked) > asked) == (kind == "done")


async def test_a_match_of_nobody_knows_which_league_is_set_aside(collecting: Collecting) -> None:
    """In an answer about all leagues; it might be of one that is followed."""
    known, odd = match(1, NOW, "NS"), match(2, NOW, "NS")
    odd["league"]["id"] = "39"
    nameless = match(3, NOW, "NS")
    del nameless["league"]

    def tell(path: str, asked: Parameters) -> Any:
        if path == "leagues":
            return [league(39)]
        return [known, odd, nameless] if path == "fixtures" else []

    async with collecting(tell) as world:
        await world.run("daily_fixtures_by_date")
        assert await world.rows("SELECT fixture_id FROM core.fixtures") == [(1,)]
        reasons = await world.rows("SELECT DISTINCT reason FROM raw.set_aside ORDER BY 1")
        assert reasons == [("fixtures: its league is missing",)]
        before = await world.rows("SELECT key, body, digest, seq FROM core.fixtures")
        done = await rebuild(world.store, world.settings)
        assert {one.how for one in done.datasets} == {"intact"}
        assert await world.rows("SELECT key, body, digest, seq FROM core.fixtures") == before


@pytest.mark.parametrize("body", [b"<html></html>", b'{"get": "timezone", "respo', b""])
async def test_an_answer_that_cannot_be_read_is_said_and_set_aside(
    collecting: Collecting, body: bytes
) -> None:
    async with collecting(lambda *_: Reply(body)) as world:
        with pytest.raises(BrokenAnswerError) as failed:
            await world.run("bootstrap_timezones")
        assert failed.value.message == (
            "The response of /timezone cannot be read: this is not the envelope of API-Football."
        )
        assert await world.rows("SELECT DISTINCT origin, content FROM raw.set_aside") == [
            ("/timezone", body)
        ]
        assert await world.rows("SELECT DISTINCT outcome FROM budget.request") == [("broken",)]


async def test_a_new_season_of_a_followed_league_is_said(collecting: Collecting) -> None:
    listed = league(39)
    listed["seasons"] += [{"year": 2027, "current": True}]
    async with collecting(lambda *_: [listed]) as world:
        outcome = await world.run("season_rollover_watch")
        assert outcome.message == (
            "L39 (id 39) has started season 2027, but season 2026 is followed. "
            "Update tracked_leagues."
        )


@pytest.mark.parametrize("body", [b'{"response": [1]}', b'{"errors": [], "response": [NaN]}'])
async def test_a_season_that_could_not_be_read_is_not_complete(
    collecting: Collecting, body: bytes
) -> None:
    def tell(path: str, _: Parameters) -> Any:
        return Reply(body) if path == "fixtures" else [league(39)] if path == "leagues" else []

    async with collecting(tell) as world:
        await world.run("fixtures_backfill_league_season")
        progress = "SELECT completed, last_error FROM core.backfill_progress"
        assert await world.rows(progress) == [(False, "the response cannot be read")]
        assert (body,) in await world.rows("SELECT content FROM raw.set_aside")


async def test_a_wrong_word_about_the_day_stops_the_jobs_for_a_quarter_of_an_hour(
    collecting: Collecting,
) -> None:
    lapsed = True
    used = 75_000

    def tell(path: str, asked: Parameters) -> Any:
        if path == "status":
            counts = {"requests": {"current": used, "limit_day": 75_000}}
            return Reply(json.dumps({"errors": [], "response": counts}).encode())
        if lapsed:
            return reply([], errors={"requests": "You have reached the request limit for the day"})
        return [league(39)] if path == "leagues" else []

    async with collecting(tell) as world:
        assert (await world.run("bootstrap_leagues")).kind == "out_of_quota"
        lapsed = False
        await world.database_clock.set_time(NOW + HOUR / 5)
        assert (await world.run("bootstrap_leagues")).kind == "out_of_quota"
        assert [path for path, _ in world.api.asked] == ["leagues", "status"]
        # The free request says that nothing is left: nothing else is sent.
        await world.database_clock.set_time(NOW + HOUR / 3)
        assert (await world.run("bootstrap_leagues")).kind == "out_of_quota"
        assert [path for path, _ in world.api.asked] == ["leagues", "status", "status"]
        used = 10
        await world.database_clock.set_time(NOW + HOUR)
        assert (await world.run("bootstrap_leagues")).kind == "done"
        assert (await world.run("bootstrap_countries")).kind == "done"


async def test_a_run_leaves_its_slot_while_the_api_asks_for_a_pause(
    collecting: Collecting, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    @asynccontextmanager
    async def waiting(self: RunContext, seconds: float) -> AsyncIterator[None]:
        waits.append(seconds)
        yield

    monkeypatch.setattr(RunContext, "waiting", waiting)

    async with collecting(lambda path, asked: [league(39)]) as world:
        await world.run("bootstrap_leagues")
        async with world.store.connection() as conn:
            await conn.execute("SELECT budget.slow_down('football', 1, 120, NULL)")
        before = len(world.api.asked)
        assert (await world.run("bootstrap_leagues")).kind == "done"
        assert len(world.api.asked) == before + 1
    assert 100 < max(waits) <= 120
