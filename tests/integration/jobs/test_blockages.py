"""Stuck sessions and jobs that only skip are reported, and nothing else is."""

import pytest

from hasat.api.app import create_app
from hasat.api.diagnostics import check_database
from hasat.jobs import Catalogue, Job, Outcome, RunContext
from hasat.jobs import recovery as blockage_module
from hasat.jobs.recovery import Blockages, find_blockages
from hasat.settings import Settings
from hasat.store import Store
from hasat.store.store import connect
from hasat.testing.http import app_client

pytestmark = pytest.mark.anyio


async def found(store: Store) -> Blockages:
    async with store.connection() as conn:
        return await find_blockages(conn)


async def add_runs(store: Store, *outcomes: str, started: bool = True) -> None:
    async with store.connection() as conn:
        await conn.execute(
            "INSERT INTO jobs.schedule (job, lane, zone, enabled, fired_until)"
            " VALUES ('mirror', 'daily', 'UTC', true, now()) ON CONFLICT DO NOTHING"
        )
        for outcome in outcomes:
            await conn.execute(
                "INSERT INTO jobs.run (job, trigger, state, outcome, started_at, finished_at)"
                " VALUES ('mirror', 'retry', 'finished', %s, CASE WHEN %s THEN now() END, now())",
                [outcome, started],
            )


async def test_a_job_that_only_skips_is_reported_until_a_run_works(
    store: Store, settings: Settings
) -> None:
    await add_runs(store, "done", "skipped", "skipped")
    await add_runs(store, "skipped", "skipped", started=False)
    assert not await found(store)
    await add_runs(store, "skipped")
    assert (await found(store)).skipped_jobs == ("mirror",)

    async def work(context: RunContext) -> Outcome:
        return Outcome()

    app = create_app(settings, store, Catalogue.of([Job("mirror", work, "Works.")], settings), [])
    async with app_client(app) as client:
        health = (await client.get("/health")).json()
        metrics = (await client.get("/metrics")).text
    assert health["status"] == "Degraded"
    assert "mirror" in health["checks"]["jobs"]["description"]
    assert 'hasat_job_repeatedly_skipped{job="mirror"} 1.0' in metrics
    assert "hasat_stuck_sessions 0.0" in metrics
    (finding,) = [one for one in await check_database(store, settings, []) if one.check == "locks"]
    assert finding.grade == "warning"

    await add_runs(store, "nothing")
    assert not await found(store)


async def test_a_session_that_holds_locks_and_does_nothing_is_reported(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blockage_module, "STUCK_SECONDS", 0)
    async with await connect(store.url) as reader, reader.transaction():
        await reader.execute("SELECT 1")
        assert not (await found(store)).sessions
        await reader.execute("SELECT pg_advisory_xact_lock(8370142691)")
        (session,) = (await found(store)).sessions
        assert f"process {reader.info.backend_pid}" in session
    assert not await found(store)
