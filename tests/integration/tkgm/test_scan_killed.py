"""`hasat tkgm scan` killed at random moments ends with the same result, paid for once.

HASAT_TEST_KILLS sets how often it is killed; twice by default.
"""

import asyncio
import json
import os
import random
import signal
import sys
from collections import Counter
from importlib.resources import files
from pathlib import Path

import pytest
import shapely

from hasat.fetch import RequestContext
from hasat.sim import Simulation, simulate
from hasat.sources.tkgm.geometry import read_area
from hasat.sources.tkgm.registry.client import open_registry
from hasat.sources.tkgm.scan.progress import ScanRequest
from hasat.sources.tkgm.scan.runner import Scan
from hasat.sources.tkgm.simulator.server import TKGM
from hasat.store import MigrationSet, Store, open_store
from hasat.testing.database import ThrowAwayDatabase

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

KILLS = int(os.environ.get("HASAT_TEST_KILLS", "2"))
MIGRATIONS = MigrationSet("tkgm", files("hasat.sources.tkgm") / "migrations")
ENDPOINTS = 2
BATCH = 20


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return [MIGRATIONS]


async def answered(store: Store) -> set[str]:
    async with store.connection() as conn:
        cursor = await conn.execute("SELECT question FROM tkgm.told")
        return {text for (text,) in await cursor.fetchall()}


async def mirrored(store: Store) -> dict[str, bytes]:
    async with store.connection() as conn:
        cursor = await conn.execute("SELECT key, digest FROM core.parcels")
        return dict(await cursor.fetchall())


def received(points: Counter[tuple[float, float]], queries: set[str]) -> dict[str, int]:
    """Return how often each query has reached the registry."""
    return {one: points[tuple(map(float, one.split(",")))] for one in queries}  # type: ignore[index]


async def test_a_killed_scan_ends_like_an_undisturbed_one(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    world = {"parcels": max(60, 8 * KILLS), "endpoints": ENDPOINTS, "daily": 100_000}
    simulation = Simulation(TKGM, seed=4, options=world)
    settings = database.settings(tmp_path)
    area_file, workers = tmp_path / "area.geojson", tmp_path / "workers.json"
    async with simulate(simulation) as address, open_store(settings, [MIGRATIONS]) as store:
        upstream = simulation.inside
        workers.write_text(json.dumps(upstream.workers_json(address, min_interval_ms=0)))
        area_file.write_text(shapely.to_geojson(upstream.cadastre.area()))
        async with open_registry(store, settings, workers) as registry:
            request = ScanRequest(read_area(str(area_file)))
            whole = await Scan(store, registry, request, RequestContext("daily", "tkgm_scan")).run()
        queries, expected = await answered(store), await mirrored(store)
        async with store.connection() as conn:
            await conn.execute("TRUNCATE core.parcels, tkgm.scan, tkgm.parcel_told CASCADE")
            await conn.execute("TRUNCATE feed.head, feed.change, feed.version_dataset")
        upstream.points.clear()
        simulation.faults.switch_on("partial", share=0.2)
        simulation.faults.switch_on("broken", endpoint=2, share=0.1)

        async def scan() -> asyncio.subprocess.Process:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "hasat", "tkgm", "scan", str(area_file), "--json"),
                *("--workers", str(workers)),
                env=os.environ | {"HASAT_HOME": str(tmp_path), "HASAT_DATABASE_URL": database.url},
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )

        paid: list[dict[str, int]] = []
        for _ in range(KILLS):
            process = await scan()
            # Fewer in total than the scan needs: a complete scan would be started again.
            limit = int(0.7 * len(queries)) // KILLS
            enough = upstream.points.total() + dice.randrange(1, max(2, limit))
            ended = asyncio.ensure_future(process.communicate())
            while not ended.done() and upstream.points.total() < enough:
                await asyncio.wait([ended], timeout=0.005)
            if not ended.done():
                process.send_signal(signal.SIGKILL)
            await ended
            paid.append(received(upstream.points, await answered(store)))
        process = await scan()
        output, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
        result = json.loads(output)
        assert result["complete"]
        assert result["parcels"] == whole.found
        assert await answered(store) >= queries
        assert (await mirrored(store)).items() >= expected.items()
        for before in paid:
            assert received(upstream.points, set(before)) == before
