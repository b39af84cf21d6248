"""Records responses of the simulators, in the form of their upstreams, for the recorded tests."""

import asyncio
import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2

from hasat.sim import Simulation, simulate
from hasat.sim.clock import SettableClock
from hasat.sources.football.simulator.server import FOOTBALL
from hasat.sources.football.simulator.server import KEY as FOOTBALL_KEY
from hasat.sources.gib.simulator.lists import Publisher
from hasat.sources.gib.simulator.taxpayers import LAYOUTS
from hasat.sources.tkgm.simulator.server import API, TKGM

DATA = Path(__file__).parents[1] / "tests" / "recorded" / "data"
NOW = datetime(2026, 11, 14, 21, tzinfo=UTC)
START = NOW - timedelta(days=30)
TAXPAYERS = 60
PARCELS = 40
SAMPLED_PARCELS = 6


def write(path: Path, body: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)


async def record_football() -> None:
    options: dict[str, Any] = {"leagues": 2, "teams": 6, "season_start": START.isoformat()}
    simulation = Simulation(FOOTBALL, seed=5, clock=SettableClock(NOW, speed=0), options=options)
    season = {"league": "39", "season": str(START.year)}
    matches = simulation.inside.world.by_league[39]
    played = [match for match in matches if match.goals and match.at(NOW).is_finished]
    ids = "-".join(str(match.id) for match in (*played[:4], matches[-1]))
    requests: list[tuple[str, dict[str, str]]] = [
        ("status", {}),
        ("timezone", {}),
        ("countries", {}),
        ("leagues", {}),
        ("teams", season),
        ("fixtures", season),
        ("fixtures", {"ids": ids}),
        *(
            (f"fixtures/{block}", {"fixture": str(played[0].id)})
            for block in played[0].at(NOW).blocks()
        ),
        ("standings", season),
        ("injuries", season),
        ("players/topscorers", season),
        ("teams/statistics", {**season, "team": str(played[0].home)}),
    ]
    async with (
        simulate(simulation) as address,
        httpx2.AsyncClient(headers={"x-apisports-key": FOOTBALL_KEY}) as client,
    ):
        for endpoint, parameters in requests:
            response = await client.get(f"{address}/{endpoint}", params=parameters)
            name = "_".join(parameters) or "all"
            path = DATA / "football" / endpoint.replace("/", "_") / f"{name}.json"
            write(path, response.content)
        for fault in ("lapsed", "errors-in-200", "not-in-plan", "address-refused"):
            simulation.faults.switch_on(fault)
            response = await client.get(f"{address}/fixtures", params=season)
            simulation.faults.switch_off(fault)
            write(DATA / "football" / "errors" / f"{fault}.json", response.content)


def record_gib() -> None:
    for name, layout in LAYOUTS.items():
        publisher = Publisher(TAXPAYERS, 1, layout)
        publisher.change(added=10, modified=30, removed=5)
        for box in ("PK", "GB"):
            body = b"".join(publisher.xml(box))
            write(DATA / "gib" / f"{name}_{box.lower()}.xml", body)


async def record_tkgm() -> None:
    simulation = Simulation(TKGM, seed=4, options={"parcels": PARCELS})
    parcels = simulation.inside.cadastre.parcels[:SAMPLED_PARCELS]
    async with simulate(simulation) as address, httpx2.AsyncClient() as client:

        async def record(path: str, name: str) -> None:
            response = await client.get(f"{address}{API}{path}")
            write(DATA / "tkgm" / f"{name}.json", response.content)

        for number, parcel in enumerate(parcels):
            point = parcel.ground.representative_point()
            await record(f"/parsel/{point.y:.6f}/{point.x:.6f}", f"point_{number}")
            await record("/parsel/" + "/".join(map(str, parcel.key)), f"number_{number}")
        await record("/parsel/36.5/28.5", "not_found_point")
        for name in ("ilListe", "ilceListe/56", "mahalleListe/521"):
            await record(f"/idariYapi/{name}", f"places_{name.partition('/')[0]}")


def main() -> None:
    shutil.rmtree(DATA, ignore_errors=True)
    asyncio.run(record_football())
    record_gib()
    asyncio.run(record_tkgm())
    files = [path for path in DATA.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    print(json.dumps({"files": len(files), "bytes": size}))


if __name__ == "__main__":
    main()
