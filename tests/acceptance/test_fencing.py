"""A worker is frozen during a sync, and another one finishes its run."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal

from hasat.jobs import Catalogue, run_in_foreground
from hasat.jobs.queue import queue_run
from hasat.jobs.runs import get_run
from hasat.sources.gib.sync.declaration import SYNC
from hasat.store import open_store
from hasat.testing.database import ThrowAwayDatabase, throw_away_database
from support.gib_lists import MIGRATIONS
from support.pgbouncers import pgbouncer
from support.processes import eventually
from support.sync_workers import HOLD, Lists, check_feed, finished, settings_for, workers_on

pytestmark = pytest.mark.anyio


@pytest.fixture
def database(background: BlockingPortal, server_url: str) -> Iterator[ThrowAwayDatabase]:
    made = throw_away_database(server_url, MIGRATIONS)
    with background.wrap_async_context_manager(made) as database:
        yield database


@pytest.fixture(params=["direct", "pgbouncer"])
def url(request: pytest.FixtureRequest, database: ThrowAwayDatabase, tmp_path: Path) -> Any:
    if request.param == "direct":
        yield database.url
        return
    with pgbouncer(tmp_path, database.url) as through:
        yield through


@pytest.mark.parametrize("point", ["commit", "copy"])
async def test_another_worker_finishes_the_sync_of_a_frozen_one(
    url: str, tmp_path: Path, point: str
) -> None:
    home = tmp_path / "home"
    settings = settings_for(url, home)
    lists = Lists(tmp_path / "lists")
    catalogue = Catalogue.of([SYNC], settings)
    with workers_on(url, home) as workers:
        async with open_store(settings, MIGRATIONS) as store:
            first = await run_in_foreground(catalogue, store, settings, SYNC.name, lists.publish())
            assert first.outcome == "done"
            params = lists.publish()
            queued = await queue_run(store, catalogue, SYNC.name, params)
            # Its session does not end on its own: only its successor can end it in time.
            frozen = workers.start(**{HOLD: point, "HASAT_DATABASE_FROZEN_SECONDS": "300"})
            await asyncio.to_thread(workers.wait_for_entry, frozen)
            frozen.send_signal(signal.SIGSTOP)
            other = workers.start()
            run = await finished(store, queued.id)
            assert (run.outcome, run.attempt) == ("done", 2)
            assert (run.worker or "").endswith(f":{other.pid}")

            workers.open_gate()
            frozen.send_signal(signal.SIGCONT)
            await asyncio.to_thread(
                eventually,
                lambda: "run.result_discarded" in workers.log(frozen),
                "the thawed worker to find that it was replaced",
            )
            assert await get_run(store, queued.id) == run
            await check_feed(store, run, settings, params)
