"""Endpoints claimed by a killed process become free again."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

import hasat.fetch.endpoint_store
from hasat.settings import Settings
from hasat.store import Store
from support.endpoint_pool import FEATURE, open_pool
from support.faulty_server import ReceivedRequest, Reply

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

HOLDER = """
import asyncio, sys
from pathlib import Path
import hasat.fetch.endpoint_store
from support.endpoint_pool import CONTEXT, FakeBudget
from hasat.fetch import Client, Endpoint, EndpointPool, Request, HedgedFetcher, ClientOptions
from hasat.settings import load_settings
from hasat.sources.tkgm.registry.wire import classify
from hasat.store import open_store

hasat.fetch.endpoint_store.LEASE_GRACE_SECONDS = 0.5

async def main(url, home, address):
    settings = load_settings(environ={"HASAT_HOME": home, "HASAT_DATABASE_URL": url})
    rules = ClientOptions("Hasat", {"X-API-Key": "secret"})
    async with open_store(settings) as store, Client(rules) as client:
        pool = EndpointPool(store, FakeBudget(), "tkgm", [Endpoint(address, 10, 0.0)], key="secret")
        async with pool.opened():
            fetcher = HedgedFetcher(pool, client, classify)
            await fetcher.fetch(Request("/parsel/1/2", timeout=2.0), CONTEXT)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_the_endpoint_of_a_killed_process_is_usable_again(
    store: Store, settings: Settings
) -> None:
    arrived = asyncio.Event()

    async def handler(request: ReceivedRequest, reply: Reply) -> None:
        if request.number == 1:
            arrived.set()
            await asyncio.Event().wait()
        await reply.json(200, FEATURE)

    async with open_pool(store, [handler], daily=10, patience=60.0) as pool:
        assert settings.database.url
        process = subprocess.Popen(  # noqa: ASYNC220 - it is killed before it can be waited for
            [
                sys.executable,
                "-c",
                HOLDER,
                settings.database.url.get_secret_value(),
                str(settings.home),
                pool.servers[0].url,
            ],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        try:
            async with asyncio.timeout(60):
                await arrived.wait()
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        (state,) = pool.pool.states
        assert await pool.fetch() == FEATURE
        # The request of the killed process counts as spent.
        assert state.points == 2
    assert hasat.fetch.endpoint_store.LEASE_GRACE_SECONDS > 1
