"""Everything at work through a real PgBouncer in transaction mode, as operators run it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from anyio.from_thread import BlockingPortal

from hasat.api.app import create_app
from hasat.console.runtime import build_catalogue, source_migrations
from hasat.deliver.dispatcher import Dispatcher
from hasat.jobs import run_in_foreground
from hasat.jobs.platform_jobs import ARCHIVES_JOB
from hasat.replica import Replica
from hasat.settings import Settings, load_settings
from hasat.sim.simulation import serve_app
from hasat.source.installed import all_sources
from hasat.sources.gib.simulator.lists import Publisher
from hasat.store import Store, open_store
from hasat.testing.database import throw_away_database
from support.pgbouncers import pgbouncer
from support.processes import eventually
from support.receivers import Receiver, receiving

pytestmark = pytest.mark.anyio

TAXPAYERS = 200


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def settings(
    background: BlockingPortal, server_url: str, tmp_path: Path, receiver: Receiver
) -> Iterator[Settings]:
    """An installation whose only way to an empty database is PgBouncer."""
    empty = throw_away_database(server_url, None)
    with (
        background.wrap_async_context_manager(empty) as database,
        pgbouncer(tmp_path, database.url) as through,
    ):
        yield load_settings(
            environ={
                "HASAT_HOME": str(tmp_path / "home"),
                "HASAT_DATABASE_URL": through,
                "HASAT_WEBHOOKS_PRIVATE_NETWORKS": "127.0.0.0/8",
                "HASAT_WEBHOOKS_ENABLED": "true",
                "HASAT_WEBHOOKS_HTTP_ENABLED": "true",
                "HASAT_WEBHOOKS_HTTP_URL": receiver.url,
            }
        )


async def test_sync_changes_archive_webhook_and_replica(
    settings: Settings, receiver: Receiver, tmp_path: Path
) -> None:
    publisher = Publisher(TAXPAYERS, seed=4)

    async def synchronise(store: Store) -> None:
        folder = tmp_path / "lists"
        folder.mkdir(exist_ok=True)
        lists = {box.lower(): str(path) for box, path in publisher.write(folder).items()}
        run = await run_in_foreground(build_catalogue(settings), store, settings, "gib_sync", lists)
        assert (run.outcome, run.error) == ("done", None)

    async with (
        open_store(settings, source_migrations()) as store,
        Dispatcher(store, settings, first_pause_seconds=0.01).running(),
    ):
        await synchronise(store)
        archiving = await run_in_foreground(
            build_catalogue(settings), store, settings, ARCHIVES_JOB
        )
        assert (archiving.outcome, archiving.error) == ("done", None)
        app = create_app(settings, store, build_catalogue(settings), all_sources())
        async with serve_app(app) as address, httpx2.AsyncClient(base_url=address) as client:
            digest = (await client.get("/api/v1/einvoice/digest")).json()
            archives = (await client.get("/api/v1/einvoice/archives")).json()
            assert digest["count"] > 0.9 * TAXPAYERS
            assert archives
            replica = Replica("einvoice", address, f"sqlite:///{tmp_path / 'replica.db'}")
            async with replica:
                await replica.catch_up()
                # A waiting process notices the next run, although no NOTIFY comes through.
                waiting = asyncio.create_task(
                    client.get(
                        "/api/v1/einvoice/changes",
                        params={"after": digest["cursor"], "wait": 60},
                        timeout=90,
                    )
                )
                publisher.change(added=2, modified=3, removed=1)
                await synchronise(store)
                changes = (await waiting).json()["changes"]
                assert [change["seq"] for change in changes] == list(range(1, len(changes) + 1))
                assert len(changes) >= 3
                await replica.catch_up()
                verified = await replica.verify()
            assert verified.seq == len(changes)
            app.state.notifier.close()
        await asyncio.to_thread(
            eventually,
            lambda: sum(b"SyncCompleted" in one.body for one in receiver.received) == 2,
            "both synchronisations are reported",
        )
