"""Malformed responses never stop a job, and the next good response repairs the mirror."""

import copy
import json
import os
import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from hasat.console.runtime import source_migrations
from hasat.errors import BrokenAnswerError, UnavailableError
from hasat.sources.football.endpoints import MIRRORED
from hasat.sources.football.ingest.rebuild import rebuild
from hasat.sources.football.jobs.catalogue import JOBS
from hasat.store import MigrationSet
from support.football_api import (
    DAY,
    GOAL,
    HOUR,
    NOW,
    Parameters,
    Reply,
    StartCollector,
    league,
    match,
    reply,
)
from support.mutations import Damage

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

SEED = int(os.environ.get("HASAT_TEST_SEED", random.SystemRandom().randrange(10**6)))
ROUNDS = 6
QUOTA = (
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-requests-limit",
    "x-ratelimit-requests-remaining",
    "retry-after",
    "date",
)


@pytest.fixture
def migrations() -> Sequence[MigrationSet]:
    return source_migrations()


def _team(number: int) -> dict[str, Any]:
    return {"id": number, "name": f"T{number}"}


def _details(one: dict[str, Any]) -> dict[str, Any]:
    player = {"player": {"id": 7, "name": "P"}, "statistics": [{"games": {"rating": "7.3"}}]}
    return one | {
        "events": [GOAL, GOAL | {"time": {"elapsed": 80, "extra": 2}, "detail": "Own Goal"}],
        "lineups": [{"team": _team(n), "formation": "4-4-2", "startXI": []} for n in (1, 2)],
        "statistics": [{"team": _team(n), "statistics": []} for n in (1, 2)],
        "players": [{"team": _team(n), "players": [player]} for n in (1, 2)],
    }


MATCHES = [
    match(1, NOW - 3 * DAY, "FT"),
    match(2, NOW - 2 * HOUR, "2H"),
    match(3, NOW + 20 * timedelta(minutes=1), "NS"),
    match(4, NOW - DAY, "FT"),
]


def good(path: str, parameters: Parameters) -> list[Any]:
    """Return the well-formed rows of an endpoint."""
    row = {"team": _team(1), "league": {"id": 39, "season": 2026}}
    match path:
        case "timezone":
            return ["UTC", "Europe/Istanbul", "Europe/London"]
        case "countries":
            return [{"name": name, "code": name[:2]} for name in ("England", "Turkey", "World")]
        case "leagues":
            return [league(number) for number in (39, 40, 41)]
        case "teams":
            return [{"team": _team(n), "venue": {"id": n}} for n in (1, 2)]
        case "fixtures" if "ids" in parameters:
            wanted = parameters["ids"].split("-")
            return [_details(one) for one in MATCHES if str(one["fixture"]["id"]) in wanted]
        case "fixtures":
            return MATCHES
        case "standings":
            lines = [{"rank": n, "team": _team(n), "points": 9, "group": "A"} for n in (1, 2)]
            return [{"league": {"id": 39, "season": 2026, "standings": [lines]}}]
        case "injuries":
            about = {"fixture": {"id": 3, "timestamp": int(NOW.timestamp())}}
            return [row | about | {"player": {"id": n, "name": "P"}} for n in (7, 8)]
        case "players/topscorers":
            return [{"player": {"id": n}, "statistics": [row]} for n in (7, 8)]
        case "teams/statistics":
            return [row | {"team": _team(int(parameters["team"])), "form": "WWD"}]
    return []


async def _run_all(world: Any) -> list[str]:
    """Run every job and return the reasons of failed ones."""
    ended = []
    for job in JOBS:
        try:
            await world.run(job.name)
        except (BrokenAnswerError, UnavailableError) as error:
            ended.append(f"{job.name}: {error}")
    return ended


async def _mirror(world: Any) -> dict[str, list[Any]]:
    return {
        name: await world.rows(f"SELECT key, body FROM core.{name} ORDER BY key")
        for name in (endpoint.dataset.name for endpoint in MIRRORED)
    }


@pytest.mark.parametrize("number", range(ROUNDS))
async def test_malformed_responses_never_stop_a_job_and_are_repaired(
    start_collector: StartCollector, number: int
) -> None:
    seed = SEED + number
    print(f"HASAT_TEST_SEED={seed}")
    damage, chance = Damage(seed), random.Random(seed)
    is_damaged = False

    def respond(path: str, parameters: Parameters) -> Any:
        rows = copy.deepcopy(good(path, parameters))
        if not is_damaged:
            return rows
        document = json.loads(reply(rows).body)
        nested = [row for row in document["response"] if isinstance(row, dict)]
        body = damage.values(document, nested) if nested else reply(rows).body
        headers: dict[str, str] = {}
        if chance.random() < 0.1:
            body, headers = damage.transport(body)
        return Reply(body, 200, damage.headers(QUOTA) | headers)

    async with start_collector(respond, 39) as world:
        await _run_all(world)
        before = await _mirror(world)
        assert all(before.values()), [name for name, rows in before.items() if not rows]
        is_damaged = True
        # A damaged header may end a day at its first response.
        for days in range(1, 9):
            await world.database_clock.set_time(NOW + days * DAY)
            await _run_all(world)
            if days > 1 and await world.rows("SELECT FROM raw.set_aside WHERE source = 'football'"):
                break
        else:
            pytest.fail("nothing was quarantined")
        damaged = await _mirror(world)
        await rebuild(world.store, world.settings, approving=10**9)
        assert await _mirror(world) == damaged
        is_damaged = False
        for days in (10, 20, 40):
            await world.database_clock.set_time(NOW + days * DAY)
            assert await _run_all(world) == []
        repaired = await _mirror(world)
        for name in ("timezones", "countries", "leagues", "teams", "fixtures", "standings"):
            kept = dict(repaired[name])
            assert {key: kept.get(key) for key, _ in before[name]} == dict(before[name]), name


async def test_league_with_impossible_date_is_mirrored(start_collector: StartCollector) -> None:
    odd = league(39)
    odd["seasons"][0]["end"] = "0000-00-00"
    odd["seasons"].append({"year": 10**15, "start": "2026-02-30", "current": True})

    def respond(path: str, parameters: Parameters) -> Any:
        return [odd, league(40)] if path == "leagues" else good(path, parameters)

    async with start_collector(respond, 39) as world:
        assert await _run_all(world) == []
        assert len(await world.rows("SELECT FROM core.leagues")) == 2
        assert len(await world.rows("SELECT FROM core.fixtures")) == len(MATCHES)
        reasons = await world.rows("SELECT reason FROM raw.set_aside WHERE key = '39'")
        assert any("0000-00-00" in reason for (reason,) in reasons)
