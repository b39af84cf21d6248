"""Measures the rebuild of tables from raw responses, in fixtures per second.

    python bench/football_rebuild.py [SEASONS] [--json]

Loads league seasons of 380 matches each, as responses of /fixtures, into a temporary database and
rebuilds the tables from the raw responses.
"""

import argparse
import asyncio
import json
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import structlog

from hasat.sources.football import source
from hasat.sources.football.ingest.loader import load
from hasat.sources.football.ingest.raw_store import ApiResponse
from hasat.sources.football.ingest.rebuild import rebuild
from hasat.store import Store, open_store
from hasat.testing.database import database_server, throw_away_database

GOAL = 10_000
FOOTBALL = source.FOOTBALL.migration_set
_MEDIA = "https://media.api-sports.io/football"


def fixture(number: int, league: int, dice: random.Random) -> dict[str, Any]:
    """Return a finished match with every field of the API."""
    home, away = dice.sample(range(league * 20, league * 20 + 20), 2)
    score = {"home": dice.randrange(4), "away": dice.randrange(4)}
    at = 1_700_000_000 + number * 60
    nothing = {"home": None, "away": None}
    return {
        "fixture": {
            "id": number,
            "referee": "A. Taylor, England",
            "timezone": "UTC",
            "date": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(at)),
            "timestamp": at,
            "periods": {"first": at, "second": at + 3600},
            "venue": {"id": home, "name": f"Stadium of {home}", "city": "Manchester"},
            "status": {"long": "Match Finished", "short": "FT", "elapsed": 90, "extra": 4},
        },
        "league": {
            "id": league,
            "name": f"League {league}",
            "country": "England",
            "logo": f"{_MEDIA}/leagues/{league}.png",
            "flag": "https://media.api-sports.io/flags/gb-eng.svg",
            "season": 2024,
            "round": f"Regular Season - {number % 38 + 1}",
            "standings": True,
        },
        "teams": {"home": _team(home), "away": _team(away)},
        "goals": score,
        "score": {
            "halftime": {"home": 0, "away": 0},
            "fulltime": score,
            "extratime": nothing,
            "penalty": nothing,
        },
    }


def _team(number: int) -> dict[str, Any]:
    logo = f"{_MEDIA}/teams/{number}.png"
    return {"id": number, "name": f"Football Club {number}", "logo": logo, "winner": None}


def season(league: int, dice: random.Random) -> ApiResponse:
    first = league * 380
    matches = [fixture(first + n, league, dice) for n in range(380)]
    parameters = {"league": str(league), "season": "2024"}
    envelope = {
        "get": "fixtures",
        "parameters": parameters,
        "errors": [],
        "results": len(matches),
        "paging": {"current": 1, "total": 1},
        "response": matches,
    }
    return ApiResponse("fixtures", parameters, json.dumps(envelope).encode())


async def _count(store: Store) -> int:
    async with store.connection() as conn:
        row = await (await conn.execute("SELECT count(*) FROM core.fixtures")).fetchone()
    assert row is not None
    return int(row[0])


async def measure(seasons: int, folder: Path) -> tuple[int, dict[str, float]]:
    """Return the number of fixtures, and the seconds for an emptied and an intact table."""
    dice = random.Random(1)
    seconds: dict[str, float] = {}
    async with (
        database_server() as server,
        throw_away_database(server, [FOOTBALL]) as database,
    ):
        settings = database.settings(folder)
        async with open_store(settings, [FOOTBALL]) as store:
            for league in range(1, seasons + 1):
                await load(store, [season(league, dice)], run=None, retention_days=90)
            fixtures = await _count(store)
            async with store.connection() as conn:
                await conn.execute("TRUNCATE core.fixtures")
            for name in ("emptied", "intact"):
                started = time.perf_counter()
                done = await rebuild(store, settings)
                seconds[name] = time.perf_counter() - started
                [result] = [one for one in done.datasets if one.dataset == "fixtures"]
                assert result.how == ("repaired" if name == "emptied" else "intact"), result
                assert await _count(store) == fixtures
    return fixtures, seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "seasons", type=int, nargs="?", default=100, help="the number of league seasons"
    )
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    with tempfile.TemporaryDirectory() as folder:
        fixtures, seconds = asyncio.run(measure(args.seasons, Path(folder)))
    rates = {name: fixtures / took for name, took in seconds.items()}
    if args.json:
        print(json.dumps({"fixtures": fixtures, "seconds": seconds, "fixturesASecond": rates}))
    else:
        print(f"{fixtures:,} fixtures")
        for name, rate in rates.items():
            verdict = "kept" if rate >= GOAL else "MISSED"
            print(
                f"{name:8} {seconds[name]:6.2f} s {rate:9,.0f} a second  goal {GOAL:,}: {verdict}"
            )
    return int(min(rates.values()) < GOAL)


if __name__ == "__main__":
    raise SystemExit(main())
