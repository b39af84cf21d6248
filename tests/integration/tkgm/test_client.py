"""The Python client: the form of its results, retries, and reuse of stored responses."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any

import psycopg
import pytest

from hasat.errors import OutOfQuotaError, SettingsError, UsageError
from hasat.settings import load_settings
from hasat.sim import Simulation, simulate
from hasat.sim.clock import SettableClock
from hasat.sources.tkgm import AsyncTKGMClient, TKGMClient
from hasat.sources.tkgm.simulator.server import TKGM, SimulatedRegistry
from hasat.store import MigrationSet, open_store
from hasat.testing.database import ThrowAwayDatabase
from support.faulty_server import ReceivedRequest, Reply, faulty_server

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

MIGRATIONS = MigrationSet("tkgm", files("hasat.sources.tkgm") / "migrations")
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "tkgm.md"
NOWHERE = (37.5, 43.5)
# The example of the published original, verbatim: it omits the id of the neighbourhood.
EXAMPLE = {
    "type": "Feature",
    "geometry": {
        "type": "Polygon",
        "coordinates": [[[32.0, 39.99], [32.001, 39.99], [32.001, 39.991], [32.0, 39.99]]],
    },
    "properties": {
        "ilAd": "Ankara",
        "ilceAd": "Beypazari",
        "mahalleAd": "Dikmen",
        "adaNo": "101",
        "parselNo": "5",
        "ozet": "Dikmen-101/5",
        "alan": "1234.56",
        "nitelik": "Tarla",
    },
}
BY_NUMBER = {"by_number": "/parsel/{mahalleId}/{adaNo}/{parselNo}"}


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return [MIGRATIONS]


class Town:
    """A simulated town and clients for it."""

    def __init__(self, sim: Simulation, database: ThrowAwayDatabase, home: Path) -> None:
        self.sim = sim
        self.workers = home / "workers.json"
        self._environ = {"HASAT_HOME": str(home), "HASAT_DATABASE_URL": database.url}

    def client(self, **settings: str) -> AsyncTKGMClient:
        return AsyncTKGMClient(
            self.workers, settings=load_settings(environ=self._environ | settings)
        )

    def blocking_client(self) -> TKGMClient:
        return TKGMClient(str(self.workers), settings=load_settings(environ=self._environ))

    @property
    def upstream(self) -> SimulatedRegistry:
        inside: SimulatedRegistry = self.sim.inside
        return inside

    def points(self, count: int) -> list[tuple[float, float]]:
        """Return one point in each of the first `count` parcels."""
        grounds = [one.ground.representative_point() for one in self.upstream.cadastre.parcels]
        return [(place.y, place.x) for place in grounds[:count]]

    @property
    def received(self) -> int:
        return self.upstream.points.total()


@asynccontextmanager
async def town(
    database: ThrowAwayDatabase, home: Path, *, entry: Any = None, **options: Any
) -> AsyncIterator[Town]:
    clock = SettableClock(datetime(2026, 11, 16, 9, tzinfo=UTC), speed=0)
    world = {"parcels": 60, "endpoints": 3, **options}
    simulation = Simulation(TKGM, seed=4, clock=clock, options=world)
    async with simulate(simulation) as address:
        more = {"min_interval_ms": 0, **(entry or {})}
        declared = simulation.inside.workers_json(address, **more)
        place = Town(simulation, database, home)
        place.workers.write_text(json.dumps(declared))
        yield place


def statuses(batch: dict[str, Any]) -> list[str]:
    return [result["status"] for result in batch["results"]]


def numbers(batch: dict[str, Any]) -> list[tuple[str, str]]:
    features = [result["data"]["properties"] for result in batch["results"]]
    return [(one["adaNo"], one["parselNo"]) for one in features]


async def test_a_parcel_has_the_form_of_an_endpoint_response(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with town(database, tmp_path) as place, place.client() as client:
        [(lat, lon)] = place.points(1)
        feature = await client.get_parcel(lat, lon)
        assert feature is not None
        assert feature.keys() == {"type", "geometry", "properties"}
        sent = place.upstream.cadastre.parcels[0].feature()
        assert feature["geometry"]["type"] == sent["geometry"]["type"]
        properties = dict(feature["properties"])
        assert datetime.fromisoformat(properties.pop("fetchedAt")).tzinfo is not None
        assert float(properties.pop("alan")) == float(
            sent["properties"].pop("alan").replace(",", "")
        )
        assert properties == sent["properties"]
        assert await client.get_parcel(*NOWHERE) is None


async def test_a_batch_keeps_the_order_and_is_sent_in_twenties(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with town(database, tmp_path) as place, place.client() as client:
        points: Sequence[tuple[float, float]] = place.points(45)
        batch = await client.get_batch([NOWHERE, *points, points[0]])
        assert statuses(batch) == ["empty", *["found"] * 46]
        assert batch["results"][0] == {"status": "empty", "data": None}
        assert batch["stats"] == {"found": 46, "empty": 1, "error": 0, "total": 47}
        parcels = [(one.ada, one.parsel) for one in place.upstream.cadastre.parcels[:45]]
        assert numbers({"results": batch["results"][1:]}) == [*parcels, parcels[0]]
        assert max(place.upstream.points.values()) == 1
        assert await client.get_batch([]) == {
            "results": [],
            "stats": {"found": 0, "empty": 0, "error": 0, "total": 0},
        }


async def test_responses_are_stored_as_sent_for_a_time(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with town(database, tmp_path) as place, place.client() as client:
        await client.get_batch(place.points(20))
        await client.get_parcel(*NOWHERE)
        requests = (
            "SELECT request, status, sha256 = sha256(content) FROM raw.response"
            " WHERE source = 'tkgm' ORDER BY id"
        )
        async with await psycopg.AsyncConnection.connect(database.url, autocommit=True) as conn:
            stored = await (await conn.execute(requests)).fetchall()
            assert [one[0].split()[0].split("/")[1] for one in stored] == ["batch", "parsel"]
            assert all(is_verbatim for _, _, is_verbatim in stored)
            await conn.execute(
                "UPDATE raw.response SET last_received_at = now() - interval '31 days'"
            )
            async with place.client() as later:
                await later.get_parcel(*place.points(21)[20])
            assert len(await (await conn.execute(requests)).fetchall()) == 1


async def test_only_points_without_response_are_sent_again(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with town(database, tmp_path) as place, place.client() as client:
        place.sim.faults.switch_on("partial", times=2)
        batch = await client.get_batch(place.points(20))
        assert batch["stats"] == {"found": 20, "empty": 0, "error": 0, "total": 20}
        # The simulator also counts the points that it leaves out.
        assert place.received == 20 + 6 + 2


async def test_one_bad_point_does_not_affect_others(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    bad = 39.9902

    async def handler(request: ReceivedRequest, reply: Reply) -> None:
        single = request.method == "GET"
        points = [] if single else json.loads(request.body)["coordinates"]
        if f"/{bad}/" in request.path or any(one["lat"] == bad for one in points):
            await reply.json(400, {"error": "what?"})
        elif single:
            await reply.json(200, EXAMPLE)
        else:
            results = [{"status": "found", "data": EXAMPLE} for _ in points]
            await reply.json(200, {"results": results, "stats": {}})

    async with faulty_server(handler) as server:
        workers = tmp_path / "workers.json"
        entry = {"url": server.url, "min_interval_ms": 0}
        workers.write_text(json.dumps({"api_key": "k", "workers": [entry]}))
        async with AsyncTKGMClient(workers, settings=database.settings(tmp_path)) as client:
            batch = await client.get_batch([(round(39.99 + n / 1e5, 5), 32.0) for n in range(30)])
        assert batch["stats"] == {"found": 29, "empty": 0, "error": 1, "total": 30}
        assert batch["results"][20] == {"status": "error", "coord": {"lat": bad, "lon": 32.0}}
        data = batch["results"][0]["data"]
        del data["properties"]["fetchedAt"]
        assert data["properties"] == EXAMPLE["properties"]
        sizes = [len(json.loads(one.body)["coordinates"]) for one in server.received if one.body]
        assert max(sizes) == 20


async def test_recent_responses_are_reused(database: ThrowAwayDatabase, tmp_path: Path) -> None:
    async with town(database, tmp_path, entry=BY_NUMBER) as place:
        [(lat, lon)] = place.points(1)
        async with place.client() as client:
            first = await client.get_parcel(lat, lon)
            await client.get_parcel(*NOWHERE)
        assert place.received == 2
        async with place.client() as client:
            assert await client.get_parcel(lat, lon) == first
            assert await client.get_parcel(*NOWHERE) is None
            batch = await client.get_batch([(lat, lon), NOWHERE])
            assert statuses(batch) == ["found", "empty"]
            # Well inside the same parcel, though at another point.
            nearby = await client.get_parcel(lat + 1e-6, lon)
            assert nearby == first
            assert first is not None
            number = first["properties"]
            key = number["mahalleId"], number["adaNo"], number["parselNo"]
            assert await client.get_parcel_by_number(*key) == first
            assert place.received == 2
            again = await client.get_parcel(lat, lon, fresh=True)
            assert again is not None
            assert again["properties"]["fetchedAt"] > first["properties"]["fetchedAt"]
            assert place.received == 3


async def test_parcels_and_empty_responses_expire_separately(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with town(database, tmp_path) as place:
        [inside] = place.points(1)
        async with place.client() as client:
            await client.get_batch([inside, NOWHERE])
        await _age(place, timedelta(hours=2))
        async with place.client() as client:
            await client.get_batch([inside, NOWHERE])
        assert place.upstream.points == {inside: 1, NOWHERE: 2}
        async with place.client(HASAT_TKGM_PARCEL_AGE="1h") as client:
            await client.get_batch([inside, NOWHERE])
        assert place.upstream.points == {inside: 2, NOWHERE: 2}


async def _age(place: Town, by: timedelta) -> None:
    settings = load_settings(environ=place._environ)
    async with open_store(settings, [MIGRATIONS]) as store, store.connection() as conn:
        await conn.execute("UPDATE tkgm.answer SET told_at = told_at - %s", [by])


async def test_a_point_near_an_edge_is_queried(database: ThrowAwayDatabase, tmp_path: Path) -> None:
    async with town(database, tmp_path) as place, place.client() as client:
        [(lat, lon)] = place.points(1)
        first = await client.get_parcel(lat, lon)
        assert first is not None
        corner_lon, corner_lat = first["geometry"]["coordinates"][0][0]
        await client.get_parcel(corner_lat, corner_lon)
        assert place.received == 2


async def test_the_daily_budget_is_used_to_the_last_point(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with town(database, tmp_path, daily=14) as place, place.client() as client:
        batch = await client.get_batch(place.points(50))
        assert batch["stats"] == {"found": 42, "empty": 0, "error": 8, "total": 50}
        missing = [one["coord"] for one in batch["results"] if one["status"] == "error"]
        assert missing[0].keys() == {"lat", "lon"}
        with pytest.raises(OutOfQuotaError):
            await client.get_batch(missing)
        with pytest.raises(OutOfQuotaError):
            await client.get_parcel(37.25, 43.25)


async def test_invalid_arguments_are_rejected(database: ThrowAwayDatabase, tmp_path: Path) -> None:
    async with town(database, tmp_path) as place, place.client() as client:
        for wrong in [(91.0, 1.0), (float("nan"), 1.0), (1.0,), "ab", {"lat": 1}]:
            with pytest.raises(UsageError):
                await client.get_batch([wrong])  # type: ignore[list-item]
        with pytest.raises(SettingsError, match="Cannot read"):
            AsyncTKGMClient(tmp_path / "none.json")
        assert place.received == 0


async def test_the_blocking_client_serves_threads(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with town(database, tmp_path) as place:
        client = place.blocking_client()
        assert client.workers == json_urls(place.workers)
        assert client.parallel_tries == 2
        points = place.points(6)
        try:
            found = await asyncio.gather(
                *(asyncio.to_thread(client.get_parcel, lat, lon) for lat, lon in points)
            )
            assert all(found)
            batch = await asyncio.to_thread(client.get_batch, points)
            assert batch["stats"]["found"] == 6
        finally:
            await asyncio.to_thread(client.close)
        assert place.received == 6
        with client:
            again = await asyncio.to_thread(client.get_parcel, *points[0])
        assert again in found


def json_urls(path: Path) -> list[str]:
    return [entry["url"] for entry in json.loads(path.read_text())["workers"]]


async def test_the_example_in_the_docs_runs(database: ThrowAwayDatabase, tmp_path: Path) -> None:
    """Run it as a program that does not close the client."""
    [example] = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    async with town(database, tmp_path) as place:
        [(lat, lon)] = place.points(1)
        program = example.replace("39.9, 32.85", f"{lat!r}, {lon!r}")
        assert program != example
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-W", "error", "-c", program],
            env=os.environ | place._environ,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert (done.returncode, done.stderr) == (0, "")
        parcel = place.upstream.cadastre.parcels[0]
        assert f"{parcel.ada}/{parcel.parsel}" in done.stdout
