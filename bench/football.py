"""Counts the requests for leagues against a simulated API that enforces its limits.

Scenarios, each with a separate database and world, over HTTP on loopback:

- `season`: one league's season of 380 matches, complete with details;
- `day`: 67 leagues through the days of a round with all jobs on: the cost of the most
  expensive day and the lateness of data;
- `catalogue`: 1,200 leagues through one day, as a share of 75,000 requests. Half of them are cups
  without a table and each plays once a week, as in the API's list;
- `free`, `pro`, `ultra`: the days of a round on a plan of 100, 7,500 and 75,000 requests with 2, 20
  and 67 leagues: requests by endpoint, and how late results are;
- `week`: seven days with every fault, and windows and leagues changed in the middle of a backfill:
  the mirror is compared with the published data (see test_simulated_week.py).

The database's clock skips idle time.

    python bench/football.py [season] [day] [catalogue] [free] [pro] [ultra] [week] [--seed N]

football_rebuild.py measures rebuilds.
"""

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from hasat.budget import Budget
from hasat.settings import Settings
from hasat.sim import Simulation, simulate
from hasat.sim.clock import SettableClock
from hasat.sources.football import client, source
from hasat.sources.football.jobs.catalogue import JOBS
from hasat.sources.football.simulator.matches import EXTRA_TIME, LATE_RESULT_AFTER, Moment
from hasat.sources.football.simulator.server import FOOTBALL, KEY, SimulatedApi
from hasat.store import open_store
from hasat.testing.database import database_server, fake_database_clock, throw_away_database
from hasat.testing.jobs import SimulatedWorker

QUOTA = 75_000
MIGRATIONS = [source.FOOTBALL.migration_set]
START = datetime(2026, 8, 1, tzinfo=UTC)
SEED = 3
# No requests are sent in the minutes after midnight, for longer than a job waits.
_LATER_SECONDS = 600.0
# The original fetches a match in play after 15 minutes without news, every 5 minutes.
SEED_MINUTES_LATE = 20.0
# It fetches a match that should have started after 60 minutes without news, every 30 minutes.
SEED_MINUTES_LATE_WITHOUT_LIVE = 90.0


@dataclass
class Bench:
    """Hasat on a simulated clock, and the simulated API."""

    worker: SimulatedWorker
    simulation: Simulation

    @property
    def api(self) -> SimulatedApi:
        inside: SimulatedApi = self.simulation.inside
        return inside

    @property
    def requests(self) -> Counter[str]:
        """The number of requests by endpoint."""
        return Counter(
            {path.removeprefix("GET /"): n for path, n in self.simulation.requests.items()}
        )

    async def exhaust(self, *names: str) -> None:
        """Run jobs manually until each has nothing to do; retry later if the budget is spent."""
        for name in names:
            while (outcome := await self.worker.run(name)) and outcome.kind != "nothing":
                if outcome.kind == "out_of_quota":
                    await self.worker.clock.sleep(_LATER_SECONDS)
            if outcome is None:
                raise RuntimeError(f"{name} failed.")

    def over_limits(self) -> int:
        return self.api.counter.over_day + self.api.counter.over_minute


@asynccontextmanager
async def bench(
    leagues: int, start: datetime, seed: int = SEED, **options: Any
) -> AsyncIterator[Bench]:
    world = {"leagues": leagues, "season_start": START.isoformat(), "minute": 300, "daily": QUOTA}
    # According to the API's documentation, tables follow an hour after a match.
    world["tables_after"] = 1
    simulation = Simulation(
        FOOTBALL, seed=seed, clock=SettableClock(start), options={**world, **options}
    )
    async with (
        database_server() as server,
        throw_away_database(server, MIGRATIONS) as database,
        simulate(simulation) as address,
        fake_database_clock(database.url, start, simulation.clock) as database_clock,
    ):
        with tempfile.TemporaryDirectory() as home:
            settings = _settings(database.settings(Path(home)), address, leagues)
            # Waiting for the budget uses the simulated clock, too.
            client.Budget = partial(Budget, sleep=database_clock.sleep)  # type: ignore[misc, assignment, attr-defined]
            async with open_store(settings, MIGRATIONS) as store:
                yield Bench(
                    SimulatedWorker(JOBS, store, settings, database_clock, start), simulation
                )


def _settings(base: Settings, address: str, leagues: int) -> Settings:
    """Return default settings with the followed leagues."""
    section = {
        **base.football.model_dump(),
        "api_key": KEY,
        "base_url": address,
        "tracked_leagues": [{"id": 39 + n, "season": START.year} for n in range(leagues)],
    }
    football = type(base.football).model_validate(section)
    return base.model_copy(update={"football": football})


@dataclass(frozen=True)
class Result:
    """The cost of a scenario and its goal."""

    scene: str
    requests: int
    goal: int
    by_endpoint: dict[str, int]
    over_limits: int
    seconds: float
    facts: dict[str, Any] = field(default_factory=dict)
    in_time: bool = True

    @property
    def reached(self) -> bool:
        return self.requests <= self.goal and not self.over_limits and self.in_time


async def season() -> Result:
    began = time.monotonic()
    async with bench(1, START + timedelta(days=200)) as here:
        jobs = ("fixtures_backfill_league_season", "standings_backfill_league_season")
        await here.exhaust(*jobs, "fixture_details_backfill_season")
        now = here.simulation.clock()
        moments = [match.at(now) for match in here.api.world.matches.values()]
        facts = {
            "matches": len(moments),
            "mirrored_as_published": await _mirrored(here, moments),
            "with_details": (
                await _column(here, "SELECT count(DISTINCT fixture_id) FROM core.fixture_players")
            )[0],
        }
        return _result("season", here, here.requests, 25, began, facts)


async def day() -> Result:
    async with bench(67, START + timedelta(days=18)) as here:
        return await _day("day", here, 1_500, days=4)


async def catalogue(leagues: int) -> Result:
    dense = {"round_days": 7, "stagger_days": 7, "cup_every": 2}
    async with bench(leagues, START + timedelta(days=16), **dense) as here:
        return await _day("catalogue", here, QUOTA // 20 - 1)


PLANS = {
    # Leagues, requests a day and a minute, the goal for lateness (median and worst, in minutes).
    "free": (2, 100, 10, (20, 45)),
    "pro": (20, 7_500, 300, (8, 20)),
    "ultra": (67, 75_000, 450, (8, 20)),
}


async def plan(name: str, seed: int = SEED) -> Result:
    """Follow leagues through a round on a plan, from the day after everything is known."""
    leagues, daily, minute, goal = PLANS[name]
    # Matches begin at any time, also late, and end when their referee wants.
    varied = {"varied": 1, "cup_every": 3, "odd_percent": 8}
    async with bench(leagues, START + timedelta(days=18), seed=seed, **varied) as here:

        def limit() -> None:
            here.api.counter.daily, here.api.counter.minute = daily, minute
            settings = here.worker.settings
            football = settings.football
            limits = football.rate_limiter.model_copy(
                update={"daily_limit": daily, "minute_limit": minute}
            )
            here.worker.settings = settings.model_copy(
                update={"football": football.model_copy(update={"rate_limiter": limits})}
            )

        result = await _day(name, here, int(0.9 * daily), days=4, after_catching_up=limit)
        late = result.facts["minutes_late"]
        result.facts["goal_minutes_late"] = goal
        in_time = late["median"] <= goal[0] and late["most"] <= goal[1]
        return replace(result, in_time=in_time and not result.facts["not_known_in_time"])


async def _day(
    scene: str,
    here: Bench,
    goal: int,
    days: int = 1,
    after_catching_up: Callable[[], None] = lambda: None,
) -> Result:
    """Fetch all seasons, simulate two days to reach a steady state, then count.

    The most expensive day counts.
    """
    began = time.monotonic()
    database_clock = here.worker.clock
    await here.exhaust("fixtures_backfill_league_season", "standings_backfill_league_season")
    await _take_as_known(here)
    after_catching_up()
    caught_up = here.requests.total()
    first = database_clock.now.replace(hour=0, minute=0, second=0, microsecond=0)
    counted_from = first + timedelta(days=2)
    await here.worker.run_until(counted_from)
    spent: list[Counter[str]] = []
    for number in range(1, days + 1):
        before = here.requests
        await here.worker.run_until(counted_from + timedelta(days=number))
        spent.append(here.requests - before)
    costliest = max(spent, key=Counter.total)
    facts = {
        "leagues_followed": len(here.api.world.leagues),
        "requests_by_day": [one.total() for one in spent],
        "share_of_75000_percent": round(100 * costliest.total() / QUOTA, 2),
        "requests_before": caught_up,
        **await _freshness(here, counted_from, days),
        **await _tables(here),
    }
    return _result(scene, here, costliest, goal, began, facts)


async def _take_as_known(here: Bench) -> None:
    """Fetch details and statistics of earlier matches, which is work of the first days."""
    async with here.worker.store.connection() as conn:
        await conn.execute(
            "UPDATE football.fixture_told SET details_at = told_at"
            " WHERE fixture_id IN (SELECT fixture_id FROM core.fixtures WHERE status_short = 'FT')"
        )
        await conn.execute(
            "INSERT INTO football.season_asked SELECT endpoint, league_id, season, team,"
            # Recent matches count as settled.
            " clock_timestamp() + CASE WHEN team > 0 THEN interval '13 h' ELSE '0 h' END FROM ("
            "   SELECT DISTINCT 'teams/statistics' AS endpoint, league_id, season, team"
            "     FROM core.fixtures, unnest(ARRAY[home_team_id, away_team_id]) AS team"
            "   UNION SELECT DISTINCT unnest(ARRAY['players/topscorers', 'injuries']),"
            "     league_id, season, 0 FROM core.fixtures) AS known"
        )


def _result(
    scene: str, here: Bench, spent: Counter[str], goal: int, began: float, facts: dict[str, Any]
) -> Result:
    took = round(time.monotonic() - began, 1)
    by_endpoint = dict(spent.most_common())
    return Result(scene, spent.total(), goal, by_endpoint, here.over_limits(), took, facts)


async def _freshness(here: Bench, since: datetime, days: int) -> dict[str, Any]:
    """Return how late the mirror had the end of each match, with and without live events."""
    rows = await _rows(
        here,
        "SELECT key::bigint, min(changed_at) FROM feed.change WHERE dataset = 'fixtures'"
        " AND body #>> '{fixture,status,short}' IN ('FT', 'AET', 'PEN') GROUP BY key",
    )
    known = dict(rows)
    late: dict[bool, list[float]] = {True: [], False: []}
    unknown = 0
    for match in here.api.world.matches.values():
        over = _over_at(match.at(since + timedelta(days=9)))
        if over is None or not since <= over < since + timedelta(days=days, hours=-2):
            continue
        if match.id in known:
            minutes = (known[match.id] - over).total_seconds() / 60
            late[match.league.has_live].append(minutes)
        else:
            unknown += 1
    return {
        "matches_that_ended": sum(map(len, late.values())) + unknown,
        "not_known_in_time": unknown,
        "minutes_late": _spread(late[True]),
        "minutes_late_of_the_original": SEED_MINUTES_LATE,
        "minutes_late_without_live_scores": _spread(late[False]),
        "minutes_late_without_live_scores_of_the_original": SEED_MINUTES_LATE_WITHOUT_LIVE,
    }


async def _tables(here: Bench) -> dict[str, int]:
    """Return how many mirrored tables are at most a day old: the original fetches once a day."""
    mirrored: defaultdict[int, list[Any]] = defaultdict(list)
    rows = await _rows(here, "SELECT league_id, body FROM core.standings ORDER BY rank")
    for league, line in rows:
        mirrored[league].append(line)
    now = here.simulation.clock()

    def is_fresh(league: int) -> bool:
        parameters = {"league": str(league), "season": str(START.year)}
        for hours in range(25):
            published = here.api.read("standings", parameters, now - timedelta(hours=hours))
            if published[0]["league"]["standings"] == [mirrored[league]]:
                return True
        return False

    return {"tables": len(mirrored), "tables_of_the_last_day": sum(map(is_fresh, mirrored))}


def _over_at(moment: Moment) -> datetime | None:
    """Return when the API first reported the end of a match."""
    if not moment.is_finished:
        return None
    if not moment.match.league.has_live:
        return moment.kick_off + LATE_RESULT_AFTER
    took = moment.match.full + (EXTRA_TIME if moment.code == "PEN" else timedelta(0))
    return moment.kick_off + took


def _spread(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    if not ordered:
        return {}
    return {"median": round(ordered[len(ordered) // 2], 1), "most": round(ordered[-1], 1)}


async def _mirrored(here: Bench, moments: list[Moment]) -> int:
    rows = dict(await _rows(here, "SELECT fixture_id, body FROM core.fixtures"))
    return sum(rows.get(moment.match.id) == moment.body() for moment in moments)


async def _rows(here: Bench, query: Any) -> list[Any]:
    async with here.worker.store.connection() as conn:
        return await (await conn.execute(query)).fetchall()


async def _column(here: Bench, query: str) -> list[Any]:
    return [value for (value,) in await _rows(here, query)]


@dataclass(frozen=True)
class Proof:
    """Return whether the mirror equalled the published data in a week with a fixed seed."""

    scene: str
    reached: bool
    seed: int
    seconds: float


async def week() -> Proof:
    began = time.monotonic()
    seed = random.randrange(1, 10**6)
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "tests/integration/football/test_simulated_week.py",
        ),
        env=os.environ | {"HASAT_WEEK_DAYS": "7", "HASAT_WEEK_SEED": str(seed)},
        cwd=Path(__file__).parent.parent,
        stdout=sys.stderr,
    )
    held = await process.wait() == 0
    return Proof("week", held, seed, round(time.monotonic() - began, 1))


def _tell(one: Result | Proof) -> None:
    if isinstance(one, Proof):
        verdict = "the mirror is what was published" if one.reached else "MISSED"
        print(f"{one.scene}: {verdict}; HASAT_WEEK_SEED={one.seed}; {one.seconds} s", flush=True)
        return
    verdict = "reached" if one.reached else "MISSED"
    print(
        f"{one.scene}: {one.requests} requests, goal {one.goal} {verdict}; "
        f"{one.over_limits} over a limit; {one.seconds} s"
    )
    for name, fact in {**one.by_endpoint, **one.facts}.items():
        print(f"  {name}: {fact}", flush=True)


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    scenes = ("season", "day", "catalogue", *PLANS, "week")
    parser.add_argument("scenes", nargs="*", choices=[*scenes, []], help="default: all")
    parser.add_argument("--leagues", type=int, default=1_200, help="size of the catalogue")
    parser.add_argument("--seed", type=int, default=SEED, help="of the plans' worlds")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    ways: dict[str, Callable[[], Awaitable[Result | Proof]]] = {
        "season": season,
        "day": day,
        "catalogue": lambda: catalogue(given.leagues),
        **{name: partial(plan, name, given.seed) for name in PLANS},
        "week": week,
    }
    results: list[Result | Proof] = []
    for scene in given.scenes or scenes:
        results.append(await ways[scene]())
        if not given.json:
            _tell(results[-1])
    if given.json:
        print(json.dumps([asdict(one) for one in results], indent=2))
    return 0 if all(one.reached for one in results) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
