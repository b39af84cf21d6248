"""Simulated days with all faults: the mirror equals what was published.

HASAT_WEEK_DAYS, HASAT_WEEK_LEAGUES, HASAT_WEEK_STEP_MINUTES and HASAT_WEEK_SEED change its length:
HASAT_WEEK_DAYS=7 HASAT_WEEK_STEP_MINUTES=5 simulates a whole week in steps of five minutes.
"""

import asyncio
import json
import os
import random
import signal
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from psycopg import sql

from hasat.budget import Budget
from hasat.console.runtime import source_migrations
from hasat.fetch import Fetcher
from hasat.settings import Settings, load_settings
from hasat.sim import Simulation, simulate
from hasat.sim.clock import SettableClock
from hasat.sources.football import client
from hasat.sources.football.jobs.catalogue import JOBS
from hasat.sources.football.simulator.matches import EXTRA, LATE_RESULT_AFTER, Match
from hasat.sources.football.simulator.server import FOOTBALL, KEY, SimulatedApi
from hasat.sources.football.states import MAY_BE_OVER
from hasat.store import MigrationSet, Store, open_store
from hasat.testing.database import FakeDatabaseClock, ThrowAwayDatabase, fake_database_clock
from hasat.testing.jobs import SimulatedWorker

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

DAYS = int(os.environ.get("HASAT_WEEK_DAYS", "2"))
LEAGUES = int(os.environ.get("HASAT_WEEK_LEAGUES", "6"))
STEP = timedelta(minutes=int(os.environ.get("HASAT_WEEK_STEP_MINUTES", "120")))
SEED = int(os.environ.get("HASAT_WEEK_SEED", "0")) or random.randrange(1, 10**6)
START = datetime(2026, 9, 1, tzinfo=UTC)
DAILY = 300
_BLOCKS = ("events", "lineups", "statistics", "players")
_Place = tuple[Any, ...]
KILLED = ("fixtures_backfill_league_season", "fixture_details_backfill_90d")


@pytest.fixture
def migrations() -> Sequence[MigrationSet]:
    return source_migrations()


@dataclass
class Season:
    """A simulated world and everything that it published.

    That is every version of a match, and of groups (a match's events, a table) the last version and
    those that a killed worker may have received.
    """

    simulation: Simulation
    address: str
    database_clock: FakeDatabaseClock
    environ: dict[str, str]
    published: dict[int, list[Any]] = field(default_factory=lambda: defaultdict(list))
    said: dict[_Place, list[Any]] = field(default_factory=dict)
    perhaps_lost: dict[_Place, list[list[Any]]] = field(default_factory=lambda: defaultdict(list))
    mortal: bool = False

    @property
    def api(self) -> SimulatedApi:
        inside: SimulatedApi = self.simulation.inside
        return inside

    def listen(self) -> None:
        """Record all published responses from now on."""
        respond = self.api._envelope

        def remember(endpoint: str, parameters: Any, response: Any = (), **more: Any) -> Any:
            if endpoint == "fixtures":
                for row in response:
                    body = {k: v for k, v in row.items() if k not in _BLOCKS}
                    if body not in self.published[row["fixture"]["id"]]:
                        self.published[row["fixture"]["id"]].append(body)
            for place, elements in _group_by_place(endpoint, parameters, response):
                if self.mortal:
                    self.perhaps_lost[place].append(elements)
                else:
                    self.said[place] = elements
                    self.perhaps_lost.pop(place, None)
            return respond(endpoint, parameters, response, **more)

        self.api._envelope = remember  # type: ignore[method-assign]

    def settings(self) -> Settings:
        return load_settings(environ=self.environ)

    async def worker(self, job: str, dice: random.Random) -> None:
        """Run a job in a process and kill it meanwhile."""
        sent_before = self.simulation.requests.total()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hasat", "jobs", "run", job),
            env=self.environ,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        enough = sent_before + dice.randint(1, 4)
        self.mortal = True
        ended = asyncio.create_task(process.wait())
        while not ended.done() and self.simulation.requests.total() < enough:
            # Time must pass: the process waits for the minute's budget and for killed workers.
            await self.database_clock.sleep(0.1)
            await asyncio.wait([ended], timeout=0.05)
        if not ended.done():
            process.send_signal(signal.SIGKILL)
        await ended
        self.mortal = False


_FOUR_HOURS = timedelta(hours=4, minutes=30)
_UNFINISHED = ("NS", "1H", "HT", "2H", "ET")


def _group_by_place(
    endpoint: str, parameters: Mapping[str, str], response: Any
) -> Iterator[tuple[_Place, list[Any]]]:
    """Return the groups of a response: their place and elements."""
    league = int(parameters.get("league", "0"))
    match endpoint:
        case "fixtures":
            for row in response:
                number = row["fixture"]["id"]
                for block in _BLOCKS:
                    if elements := row.get(block):
                        if block == "players":
                            elements = [one for team in elements for one in team["players"]]
                        yield (f"fixture_{block}", number), elements
        case "standings":
            for row in response:
                yield ("standings", league), [*chain(*row["league"]["standings"])]
        case "players/topscorers" if response:
            yield ("top_scorers", league), list(response)
        case "teams/statistics" if response:
            yield ("team_statistics", league, int(parameters["team"])), [response]
        case "injuries":
            for row in response:
                yield ("injuries", row["fixture"]["id"]), [row]


_PLACES = {
    **{f"fixture_{block}": ("fixture_id",) for block in _BLOCKS},
    "injuries": ("fixture_id",),
    "standings": ("league_id",),
    "top_scorers": ("league_id",),
    "team_statistics": ("league_id", "team_id"),
}


async def _mirrored(store: Store) -> dict[_Place, list[Any]]:
    """Return the mirrored elements by place."""
    found: defaultdict[_Place, list[Any]] = defaultdict(list)
    for dataset, columns in _PLACES.items():
        query = sql.SQL("SELECT {}, body FROM core.{}").format(
            sql.SQL(", ").join(map(sql.Identifier, columns)), sql.Identifier(dataset)
        )
        for *place, body in await rows(store, query):
            found[dataset, *place].append(body)
    return found


def _sorted(elements: list[Any]) -> list[str]:
    return sorted(json.dumps(element, sort_keys=True) for element in elements)


@asynccontextmanager
async def season(
    database: ThrowAwayDatabase, home: Path, patch: pytest.MonkeyPatch, **options: Any
) -> AsyncIterator[Season]:
    world = {"leagues": LEAGUES, "teams": 6, "season_start": START.isoformat(), "minute": 300}
    world |= {"daily": DAILY, "cup_every": 3, "odd_percent": 30}
    clock = SettableClock(START)
    simulation = Simulation(FOOTBALL, seed=SEED, clock=clock, options={**world, **options})
    clean = {k: v for k, v in os.environ.items() if not k.startswith("HASAT_")}
    config = home / "config"
    (config / "jobs").mkdir(parents=True)
    async with (
        simulate(simulation) as address,
        fake_database_clock(database.url, START, clock) as database_clock,
    ):
        environ = clean | {
            "HASAT_HOME": str(home),
            "HASAT_CONFIG": str(config),
            "HASAT_DATABASE_URL": database.url,
            "HASAT_JOBS_HEARTBEAT_SECONDS": "0.5",
            "HASAT_JOBS_STALLED_SECONDS": "2",
            "API_FOOTBALL_KEY": KEY,
            "API_FOOTBALL_BASE_URL": address,
        }
        limits = {"daily_limit": int(simulation.options["daily"])}
        (config / "rate_limiter.yaml").write_text(json.dumps({"rate_limiter": limits}))
        made = Season(simulation, address, database_clock, environ)
        patch.setattr(client, "Budget", partial(Budget, sleep=database_clock.sleep))
        patch.setattr(client, "Fetcher", partial(Fetcher, sleep=database_clock.sleep))
        follow(made, range(LEAGUES))
        made.listen()
        yield made


def follow(here: Season, leagues: Collection[int]) -> None:
    """Set the followed leagues."""
    tracked = [{"id": 39 + n, "name": f"{n}", "season": START.year} for n in leagues]
    file = Path(here.environ["HASAT_CONFIG"], "jobs", "daily.yaml")
    file.write_text(json.dumps({"tracked_leagues": tracked}))


async def rows(store: Store, query: Any, values: Mapping[str, Any] | None = None) -> list[Any]:
    async with store.connection() as conn:
        return await (await conn.execute(query, values)).fetchall()


async def test_week_with_faults_equals_published_data(
    database: ThrowAwayDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"HASAT_WEEK_SEED={SEED}")
    dice = random.Random(SEED)
    async with season(database, tmp_path, monkeypatch) as here:
        faults = here.simulation.faults
        for job in KILLED:
            await here.worker(job, dice)
        for number in range(DAYS):
            midnight = START + timedelta(days=number)
            # A process ends at midnight UTC, and the next one starts.
            async with open_store(here.settings(), source_migrations()) as store:
                worker = SimulatedWorker(
                    JOBS, store, here.settings(), here.database_clock, here.database_clock.now
                )
                faults.switch_on("errors-in-200", share=0.05)
                faults.switch_on("error", share=0.05)
                await worker.run_until(midnight + timedelta(hours=9), STEP)
                faults.switch_on("reset", times=2)
                faults.switch_on(dice.choice(["stale-headers", "no-headers"]))
                await worker.run_until(midnight + timedelta(hours=15, minutes=30), STEP)
                await here.worker(dice.choice(KILLED), dice)
                await worker.run_until(midnight + timedelta(hours=22), STEP)
                if number == 0:
                    # The subscription ends: no requests until the next day.
                    faults.switch_on("lapsed")
                await worker.run_until(midnight + timedelta(hours=23, minutes=59), STEP)
            faults.switch_off()
            await here.database_clock.set_time(midnight + timedelta(days=1))
        async with open_store(here.settings(), source_migrations()) as store:
            now = here.database_clock.now
            worker = SimulatedWorker(
                JOBS, store, here.settings(), here.database_clock, now - timedelta(days=1)
            )
            await worker.run_until(now + timedelta(hours=20), STEP)
            await _check(here, store)
        counter = here.api.counter
        assert (counter.over_day, counter.over_minute) == (0, 0)
        assert max(counter.days.values()) <= DAILY


async def _check(here: Season, store: Store) -> None:
    now = here.database_clock.now
    matches = here.api.world.matches
    mirrored = await rows(
        store,
        "SELECT fixture_id, body, told_at, details_at FROM core.fixtures"
        " JOIN football.fixture_told USING (fixture_id)",
    )
    assert {fixture for fixture, *_ in mirrored} == matches.keys()
    events = defaultdict(
        int, await rows(store, "SELECT fixture_id, count(*) FROM core.fixture_events GROUP BY 1")
    )
    overdue = []
    for fixture, body, told_at, details_at in mirrored:
        match = matches[fixture]
        assert body in _possible_bodies(match, told_at), (fixture, told_at, body)
        if _is_over(match, now) and body["fixture"]["status"]["short"] in _UNFINISHED:
            overdue.append((fixture, body["fixture"]["status"]["short"], told_at))
        settled = match.at(details_at) if details_at else None
        if settled and settled.is_finished and match.league.has_live:
            assert events[fixture] == len(settled.blocks()["events"]), fixture
    assert not overdue
    mirror = await _mirrored(store)
    assert {dataset for dataset, *_ in mirror} == _PLACES.keys()
    assert mirror.keys() <= here.said.keys() | here.perhaps_lost.keys()
    for place, elements in here.said.items():
        possible = [elements, *here.perhaps_lost[place]]
        assert _sorted(mirror.get(place, [])) in map(_sorted, possible), place
    # Every body that the mirror ever had was published.
    published = await rows(store, "SELECT key, body FROM feed.change WHERE dataset = 'fixtures'")
    assert published
    for key, body in published:
        assert body in here.published[int(key)]
    inferred = await rows(
        store,
        "SELECT status_short, league_id FROM core.fixture_inferences"
        " JOIN core.fixtures USING (fixture_id)",
    )
    silent = {league.id for league in here.api.world.leagues if not league.has_live}
    assert {status for status, _ in inferred} <= set(MAY_BE_OVER)
    assert not silent & {league for _, league in inferred}


def _possible_bodies(match: Match, told_at: datetime) -> list[Any]:
    """Return the bodies around a time; a worker finishes some time after the response."""
    back = (timedelta(seconds=20 * n) for n in range(30))
    return [match.at(told_at - some).body() for some in back]


def _is_over(match: Match, now: datetime) -> bool:
    """Whether the API has reported the end of a match for hours."""
    if match.fate not in ("played", "cup"):
        return False
    took = EXTRA if match.league.has_live else LATE_RESULT_AFTER
    return now > match.kick_off + took + timedelta(hours=6)


async def test_data_published_later_arrives(
    database: ThrowAwayDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables, scorers and statistics follow hours after a match, and injuries come days ahead."""
    options = {"daily": 75_000, "leagues": 3, "cup_every": 9, "odd_percent": 0, "tables_after": 5}
    async with season(database, tmp_path, monkeypatch, **options) as here:
        follow(here, range(3))
        async with open_store(here.settings(), source_migrations()) as store:
            worker = SimulatedWorker(JOBS, store, here.settings(), here.database_clock, START)
            # The first round is played in two days; the second is two days away.
            await worker.run_until(START + timedelta(days=2, hours=12), timedelta(hours=1))
            mirror = await _mirrored(store)
        for league in here.api.world.leagues:
            season_scope = {"league": str(league.id), "season": str(START.year)}
            requests = [("standings", season_scope), ("players/topscorers", season_scope)]
            requests += [
                ("teams/statistics", {**season_scope, "team": str(t)}) for t in league.teams
            ]
            for endpoint, parameters in requests:
                response = here.api.read(endpoint, parameters, here.database_clock.now)
                for place, elements in _group_by_place(endpoint, parameters, response):
                    assert _sorted(mirror[place]) == _sorted(elements), place
        published = here.api.read(
            "injuries", {"season": str(START.year)}, here.database_clock.now - _FOUR_HOURS
        )
        assert {row["fixture"]["id"] for row in published} <= {
            number for dataset, number, *_ in mirror if dataset == "injuries"
        }
        assert max(row["fixture"]["date"] for row in published) > "2026-09-05"


async def test_changing_windows_and_leagues_leaves_no_gap(
    database: ThrowAwayDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(SEED)
    print(f"HASAT_WEEK_SEED={SEED}")
    lists = [[0, 1], [1, 2], [0, 2], [2], [0, 1, 2]]
    async with season(database, tmp_path, monkeypatch, daily=75_000, leagues=3) as here:
        for turn in range(40):
            follow(here, dice.choice(lists) if turn < 12 else lists[-1])
            here.environ |= {
                "HASAT_FOOTBALL_BACKFILL_FIXTURES_MODE": dice.choice(["windows"] * 9 + ["season"]),
                "BACKFILL_FIXTURES_WINDOW_DAYS": str(dice.choice([1, 3, 7, 14, 30])),
                "BACKFILL_FIXTURES_MAX_PAGES_PER_TASK": str(dice.choice([1, 2])),
                "BACKFILL_FIXTURES_MAX_TASKS_PER_RUN": str(dice.choice([1, 2, 6])),
            }
            if turn > 12:
                here.environ["BACKFILL_FIXTURES_WINDOW_DAYS"] = "30"
            async with open_store(here.settings(), source_migrations()) as store:
                worker = SimulatedWorker(JOBS, store, here.settings(), here.database_clock, START)
                # Every ten minutes, as scheduled.
                await here.database_clock.sleep(600)
                outcome = await worker.run(KILLED[0])
                left = await rows(
                    store, "SELECT count(*) FROM core.backfill_progress WHERE completed"
                )
            assert outcome is not None
            if turn > 12 and left == [(3,)]:
                break
        async with open_store(here.settings(), source_migrations()) as store:
            found = dict(await rows(store, "SELECT fixture_id, body FROM core.fixtures"))
        assert found.keys() == here.api.world.matches.keys()
        for match in here.api.world.matches.values():
            assert found[match.id] in here.published[match.id]
