"""Clients and scans over the published worker of the original, and its client's attributes."""

import json
import time
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from hasat.errors import UnavailableError
from hasat.fetch import RequestContext, read_endpoints, reset_rests
from hasat.settings import Settings, load_settings
from hasat.sources.tkgm import AsyncTKGMClient
from hasat.sources.tkgm.registry.client import open_registry
from hasat.sources.tkgm.scan.progress import ScanRequest
from hasat.sources.tkgm.scan.runner import Scan
from hasat.sources.tkgm.simulator.cadastre import Cadastre
from hasat.sources.tkgm.simulator.kinds import generate_cadastre
from hasat.store import MigrationSet, open_store
from hasat.testing.database import ThrowAwayDatabase
from support.endpoint_pool import respond_with
from support.faulty_server import FaultyServer
from support.published_worker import KEY, PublishedWorker, hang, workers

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

MIGRATIONS = MigrationSet("tkgm", files("hasat.sources.tkgm") / "migrations")
ROAD = (36.5, 33.5)


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return [MIGRATIONS]


@pytest.fixture(scope="module")
def cadastre() -> Cadastre:
    return generate_cadastre("town", 60, 3)


def declare(folder: Path, servers: Sequence[FaultyServer | str], **entry: Any) -> Path:
    path = folder / "workers.json"
    urls = [one if isinstance(one, str) else one.url for one in servers]
    entries = [{"url": url, "min_interval_ms": 0, **entry} for url in urls]
    path.write_text(json.dumps({"api_key": KEY, "workers": entries}))
    return path


def quick(database: ThrowAwayDatabase, home: Path, **more: str) -> Settings:
    """Settings with short time-outs, long enough for a loaded machine."""
    times = {"HASAT_TKGM_SINGLE_TIMEOUT": "3s", "HASAT_TKGM_BATCH_TIMEOUT": "4s"}
    environ = {"HASAT_HOME": str(home), "HASAT_DATABASE_URL": database.url}
    return load_settings(environ=environ | times | more)


async def test_a_scan_asks_no_empty_point_twice(
    database: ThrowAwayDatabase, tmp_path: Path, cadastre: Cadastre
) -> None:
    worker = PublishedWorker(cadastre)
    settings = database.settings(tmp_path)
    async with workers([worker] * 3) as servers, open_store(settings, [MIGRATIONS]) as store:
        file = declare(tmp_path, servers)
        async with open_registry(store, settings, file) as registry:
            request = ScanRequest(cadastre.area())
            progress = await Scan(store, registry, request, RequestContext("daily", "s")).run()
    assert progress.complete
    assert progress.found >= 0.99 * len(cadastre.parcels)
    empty = [point for point in worker.registry if cadastre.at(*point) is None]
    assert empty
    assert max(worker.registry.values()) == 1


async def test_a_road_is_empty_alone_and_in_a_batch(
    database: ThrowAwayDatabase, tmp_path: Path, cadastre: Cadastre
) -> None:
    worker = PublishedWorker(cadastre)
    inside = cadastre.parcels[0].ground.representative_point()
    async with workers([worker] * 3) as servers:
        client = AsyncTKGMClient(declare(tmp_path, servers), settings=database.settings(tmp_path))
        async with client:
            assert await client.get_parcel(*ROAD) is None
            batch = await client.get_batch([(inside.y, inside.x), (37.5, 33.5), (38.5, 33.5)])
    assert [one["status"] for one in batch["results"]] == ["found", "empty", "empty"]
    assert max(worker.registry.values()) == 1


async def test_a_worker_whose_batches_are_refused_rests(
    database: ThrowAwayDatabase, tmp_path: Path, cadastre: Cadastre
) -> None:
    spent = PublishedWorker(cadastre, limited=True)
    good = PublishedWorker(cadastre)
    settings = database.settings(tmp_path)
    async with (
        workers([spent, good, good]) as servers,
        AsyncTKGMClient(declare(tmp_path, servers), settings=settings) as client,
    ):
        for n in range(12):
            batch = await client.get_batch([(36.0 + n / 10, 34.5), (36.05 + n / 10, 34.5)])
            assert batch["stats"]["empty"] == 2
        assert list(client.cooldown_map) == [servers[0].url]
        assert len(servers[0].received) == 1


async def test_a_call_lasts_as_long_as_one_time_out(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    """The time-out is shared by all tries; before, three hanging endpoints took three of them."""
    async with workers([hang] * 6) as servers:
        settings = quick(database, tmp_path)
        async with AsyncTKGMClient(declare(tmp_path, servers), settings=settings) as client:
            with pytest.raises(UnavailableError, match="2 tried"):
                await client.get_parcel(*ROAD)
            assert sum(len(server.received) for server in servers) == 2


async def test_a_hanging_endpoint_does_not_fail_a_batch(
    database: ThrowAwayDatabase, tmp_path: Path, cadastre: Cadastre
) -> None:
    """Halfway to its time-out a batch goes to another endpoint, although it is never hedged."""
    good = PublishedWorker(cadastre)
    async with workers([hang, good, good]) as servers:
        settings = quick(database, tmp_path, HASAT_TKGM_HEDGE_PERCENT="0")
        async with AsyncTKGMClient(declare(tmp_path, servers), settings=settings) as client:
            for n in range(3):
                batch = await client.get_batch([(36.0 + n / 10, 34.5), (36.05 + n / 10, 34.5)])
                assert batch["stats"]["empty"] == 2
    assert len(servers[0].received) >= 1


async def test_corrected_endpoints_are_not_held_up(
    database: ThrowAwayDatabase, tmp_path: Path, cadastre: Cadastre
) -> None:
    settings = quick(database, tmp_path)
    good = PublishedWorker(cadastre)
    async with workers([respond_with(503), respond_with(503), good, good]) as servers:
        wrong = declare(tmp_path, servers[:2])
        async with AsyncTKGMClient(wrong, settings=settings) as client:
            for _ in range(4):
                with pytest.raises(UnavailableError):
                    await client.get_parcel(*ROAD)
        before = [len(server.received) for server in servers[:2]]
        async with AsyncTKGMClient(wrong, settings=settings) as client:
            with pytest.raises(UnavailableError, match="Every endpoint"):
                await client.get_parcel(*ROAD)
        assert [len(server.received) for server in servers[:2]] == before
        async with AsyncTKGMClient(declare(tmp_path, servers[2:]), settings=settings) as client:
            assert await client.get_parcel(*ROAD) is None
        async with AsyncTKGMClient(declare(tmp_path, servers[1:]), settings=settings) as client:
            assert await client.get_parcel(37.5, 33.5) is None


async def test_the_rest_of_an_upstream_is_reported_and_lifted(
    database: ThrowAwayDatabase, tmp_path: Path, cadastre: Cadastre
) -> None:
    settings = quick(database, tmp_path)
    async with (
        workers([respond_with(503)] * 2) as servers,
        open_store(settings, [MIGRATIONS]) as store,
    ):
        async with AsyncTKGMClient(declare(tmp_path, servers), settings=settings) as client:
            for _ in range(4):
                with pytest.raises(UnavailableError):
                    await client.get_parcel(*ROAD)
        reports = await read_endpoints(store, "tkgm")
        assert all(one.upstream_rest_until and one.upstream_rest_cause for one in reports)
        await reset_rests(store, "tkgm")
        reports = await read_endpoints(store, "tkgm")
        assert not any(one.upstream_rest_until or one.rest_until for one in reports)
        for server in servers:
            server.handler = PublishedWorker(cadastre)
        async with AsyncTKGMClient(declare(tmp_path, servers), settings=settings) as client:
            assert await client.get_parcel(*ROAD) is None


async def test_the_attributes_of_the_original_client(
    database: ThrowAwayDatabase, tmp_path: Path, cadastre: Cadastre
) -> None:
    good = PublishedWorker(cadastre)
    async with workers([good, respond_with(403), good]) as servers:
        urls = [server.url for server in servers]
        client = AsyncTKGMClient(declare(tmp_path, servers), settings=database.settings(tmp_path))
        assert (client.workers, client.api_key, client.parallel_tries) == (urls, KEY, 2)
        assert (client.cooldown_map, client.current_index) == ({}, 0)
        client.workers.clear()
        assert client.workers == urls
        with pytest.raises(AttributeError):
            client.api_key = "other"  # type: ignore[misc]
        async with client:
            await client.get_parcel(*ROAD)
            [used] = [n for n in (0, 2) if servers[n].received]
            assert client.current_index == (used + 1) % 3
            for n in range(5):
                await client.get_parcel(37.0 + n, 35.5)
            assert list(client.cooldown_map) == [urls[1]]
            assert time.time() + 200 < client.cooldown_map[urls[1]] <= time.time() + 300
