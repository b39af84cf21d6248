"""Optional data: fetched by their plan, once, within their price, and the same after a rebuild."""

import json
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from hasat.errors import UsageError
from hasat.sim import Simulation
from hasat.sim.clock import SettableClock
from hasat.sources.football.endpoints import DATASETS, OPTIONAL, find_endpoint
from hasat.sources.football.ingest.rebuild import rebuild
from hasat.sources.football.price import load_prices
from hasat.sources.football.simulator.optional import simulated_pages
from hasat.sources.football.simulator.server import FOOTBALL, SimulatedApi
from support.football_api import DAY, HOUR, NOW, Collector, Parameters, Reply, StartCollector

pytestmark = pytest.mark.anyio

JOB = "optional_data_refresh"
COLLECTED = [one for one in OPTIONAL if one.plan is not None and not one.plan.live]
NAMES = tuple(endpoint.option_name for endpoint in OPTIONAL)


class World:
    """The simulated API at the time that the test chooses."""

    def __init__(self) -> None:
        start = (NOW - 15 * DAY).isoformat()
        options = {"leagues": 1, "teams": 8, "season_start": start, "odd_percent": 0}
        self.api = SimulatedApi(
            Simulation(FOOTBALL, seed=5, clock=SettableClock(NOW), options=options)
        )
        self.now = NOW
        self.fail_after: int | None = None
        self.league = str(self.api.world.leagues[0].id)

    def respond(self, path: str, parameters: Parameters) -> Reply:
        if self.fail_after is not None:
            self.fail_after -= 1
            if self.fail_after < 0:
                return Reply(b"", 500)
        rows = self.api.read(path, parameters, self.now)
        declared = find_endpoint(path, parameters)
        page = int(parameters.get("page", "1"))
        pages = simulated_pages(declared) if declared else 1
        envelope = {
            "get": path,
            "parameters": parameters,
            "errors": [],
            "results": len(rows),
            "paging": {"current": page, "total": pages},
            "response": rows,
        }
        return Reply(json.dumps(envelope).encode())


async def catch_up(here: Collector) -> None:
    """Fetch the matches and their details, which name teams and players."""
    await here.run("fixtures_backfill_league_season")
    while (await here.run("fixture_details_backfill_season")).kind != "nothing":
        pass


async def collect(here: Collector, **params: Any) -> Counter[str]:
    """Run the job until nothing is due; return the requests by endpoint."""
    before = len(here.api.requests)
    while (await here.run(JOB, **params)).kind != "nothing":
        pass
    return Counter(
        endpoint.name
        for path, parameters in here.api.requests[before:]
        if (endpoint := find_endpoint(path, parameters)) is not None
    )


async def test_everything_is_fetched_once_within_its_price(start_collector: StartCollector) -> None:
    world = World()
    league = int(world.league)
    async with start_collector(world.respond, league, collect=NAMES) as here:
        await catch_up(here)
        prices = {one.path: one for one in await load_prices(here.store, here.settings)}
        sent = await collect(here)
        for endpoint in COLLECTED:
            assert endpoint.plan is not None
            price, cost = prices[f"/{endpoint.name}"], sent[endpoint.name]
            # The simulator has fewer pages than usual; squads add players while the job runs.
            per_unit = simulated_pages(endpoint)
            assert price.first == price.units * endpoint.plan.pages
            if endpoint.plan.unit == "player":
                assert cost >= price.units * per_unit
            else:
                assert cost == price.units * per_unit, endpoint.name
            [(rows,)] = await here.rows(f"SELECT count(*) FROM core.{endpoint.dataset.name}")
            assert rows, endpoint.name
        assert await collect(here) == {}
        [(incomplete,)] = await here.rows(
            "SELECT count(*) FROM mart.collection_status WHERE coverage IS DISTINCT FROM 100"
            " AND endpoint <> ALL (%s)",
            [one.name for one in COLLECTED if one.plan and one.plan.unit == "player"],
        )
        assert incomplete == 0
        before = await _mirror(here)
        await rebuild(here.store, here.settings)
        assert await _mirror(here) == before
        assert await here.rows("SELECT * FROM raw.set_aside") == []


async def test_old_units_are_fetched_again(start_collector: StartCollector) -> None:
    world = World()
    names = ("odds", "squads", "top_assists", "bookmakers")
    async with start_collector(world.respond, int(world.league), collect=names) as here:
        await catch_up(here)
        first = await collect(here)
        assert set(first) == {"odds", "players/squads", "players/topassists", "odds/bookmakers"}
        await here.database_clock.set_time(NOW + 4 * HOUR)
        again = await collect(here)
        assert set(again) <= {"odds", "players/topassists"}
        assert again["odds"] == first["odds"]
        await here.database_clock.set_time(NOW + 8 * DAY)
        later = await collect(here)
        assert {"players/squads", "odds/bookmakers"} <= set(later)


async def test_interrupted_pages_continue(start_collector: StartCollector) -> None:
    world = World()
    async with start_collector(
        world.respond, int(world.league), collect=("player_statistics",)
    ) as here:
        await catch_up(here)
        world.fail_after = 1
        with pytest.raises(Exception, match=r"500|API-Football"):
            await here.run(JOB)
        [(page,)] = await here.rows("SELECT next_page FROM football.collected")
        assert page == 2
        world.fail_after = None
        assert await collect(here) == {"players": 1}
        [(players,)] = await here.rows("SELECT count(*) FROM core.player_statistics")
        assert players == 40


async def test_live_mode_asks_once_for_all_leagues(start_collector: StartCollector) -> None:
    world = World()
    kick_off = min(
        match.kick_off for match in world.api.world.matches.values() if match.kick_off > NOW
    )
    async with start_collector(world.respond, int(world.league), collect=("live_odds",)) as here:
        await here.run("fixtures_backfill_league_season")
        assert (await here.run("live_refresh")).kind == "nothing"
        world.now = kick_off + timedelta(minutes=30)
        await here.database_clock.set_time(world.now)
        before = len(here.api.requests)
        await here.run("live_refresh")
        sent = [path for path, _ in here.api.requests[before:]]
        assert Counter(sent) - Counter(leagues=1) == {"fixtures": 1, "odds/live": 1}
        states = await here.rows("SELECT status_short FROM core.fixtures")
        assert ("1H",) in states
        [(odds,)] = await here.rows("SELECT count(*) FROM core.live_odds")
        assert odds


async def test_nothing_is_fetched_unless_switched_on(start_collector: StartCollector) -> None:
    world = World()
    async with start_collector(world.respond, int(world.league)) as here:
        outcome = await here.run(JOB)
        assert outcome.kind == "nothing"
        assert "football.collect" in str(outcome.message)
        await here.run(JOB, dataset="bookmakers")
        [(rows,)] = await here.rows("SELECT count(*) FROM core.bookmakers")
        assert rows
        with pytest.raises(UsageError, match="bookmaker"):
            await here.run(JOB, dataset="bookmaker")


async def _mirror(here: Collector) -> Mapping[str, Any]:
    return {
        name: await here.rows(f"SELECT key, body FROM core.{name} ORDER BY key")
        for name in DATASETS
    }
