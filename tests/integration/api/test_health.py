"""Probes, metrics and status over a real database: there, gone, back, not migrated, frozen."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from structlog.testing import capture_logs

from hasat.api.app import create_app
from hasat.api.keys import create_key
from hasat.errors import HasatError
from hasat.jobs import Catalogue, Job, Outcome, RunContext, platform_jobs
from hasat.settings import Settings
from hasat.source import Source
from hasat.store import Store
from hasat.testing.http import app_client

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]


async def _nothing(_: RunContext) -> Outcome:
    return Outcome()


HOURLY = Job("hourly", _nothing, "Every hour", cron="0 * * * *", zone="UTC")
MANUAL = Job("manual", _nothing, "Manual only")


def reporting_source(name: str, title: str, *, says: Any) -> Source:
    """A source with a report; what it says comes from the test."""

    async def status(store: Store, _settings: Settings) -> Mapping[str, Any]:
        assert (await store.now()).tzinfo is not None
        if isinstance(says, Exception):
            raise says
        return dict(says)

    return Source(name, title, status=status)


@asynccontextmanager
async def serving(
    settings: Settings, store: Store, *sources: Source
) -> AsyncIterator[httpx2.AsyncClient]:
    catalogue = Catalogue.of((*platform_jobs(), HOURLY, MANUAL), settings)
    async with app_client(create_app(settings, store, catalogue, sources)) as client:
        yield client


@pytest.fixture
async def client(settings: Settings, store: Store) -> AsyncIterator[httpx2.AsyncClient]:
    async with serving(settings, store) as client:
        yield client


@asynccontextmanager
async def database_away(server_url: str, store: Store) -> AsyncIterator[None]:
    """Nobody gets a connection to the test's database, and those there were are cut."""
    store.pool.timeout = 1.0  # the wait itself is the store's promise, tested there
    name = str(conninfo_to_dict(store.url)["dbname"])
    async with await psycopg.AsyncConnection.connect(server_url, autocommit=True) as admin:
        allow = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
        await admin.execute(allow.format(sql.Identifier(name), sql.SQL("false")))
        await admin.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s",
            [name],
        )
        try:
            yield
        finally:
            await admin.execute(allow.format(sql.Identifier(name), sql.SQL("true")))


async def until(client: httpx2.AsyncClient, path: str, status: int) -> httpx2.Response:
    deadline = time.monotonic() + 60
    while (answer := await client.get(path)).status_code != status:
        assert time.monotonic() < deadline, answer.text
        await asyncio.sleep(0.05)
    return answer


async def test_the_database_goes_and_comes_back(
    client: httpx2.AsyncClient, store: Store, server_url: str
) -> None:
    assert (await client.get("/readyz")).json() == {"status": "ready"}
    assert "hasat_database_up 1.0" in (await client.get("/metrics")).text
    async with database_away(server_url, store):
        refused = await until(client, "/readyz", 503)
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.json()["code"] == "database-away"
        assert "not currently accepting connections" in refused.json()["detail"]
        assert (await client.get("/healthz")).status_code == 200
        metrics = await client.get("/metrics")
        assert metrics.status_code == 200
        assert "hasat_database_up 0.0" in metrics.text
        assert 'route="/readyz",status="503"' in metrics.text
        assert "hasat_jobs_queued" not in metrics.text
        assert (await client.get("/health")).json()["status"] == "Unhealthy"
        status = await client.get("/api/v1/status")
        assert (status.status_code, status.json()["code"]) == (503, "database-away")
    await until(client, "/readyz", 200)
    assert "hasat_database_up 1.0" in (await client.get("/metrics")).text
    assert (await client.get("/api/v1/status")).status_code == 200
    assert (await client.get("/health")).json()["status"] == "Healthy"


async def test_strangers_are_not_told_where_the_database_is(
    settings: Settings, store: Store, server_url: str
) -> None:
    _, operator = await create_key(store, "operator", "operate")
    serve = settings.serve.model_copy(update={"host": "192.0.2.10"})
    async with (
        serving(settings.model_copy(update={"serve": serve}), store) as client,
        database_away(server_url, store),
    ):
        refused = await until(client, "/readyz", 503)
        assert refused.json()["requestId"] in refused.json()["detail"]
        assert "accepting connections" not in refused.text
        described = (await client.get("/health")).json()["checks"]["postgresql"]["description"]
        assert "accepting connections" not in described
        # Nobody can be known without the database; the probe of life still answers.
        answer = await client.get("/api/v1/status", headers={"X-API-Key": operator})
        assert answer.status_code == 503
        assert (await client.get("/healthz")).status_code == 200


@pytest.mark.parametrize("missing", ["0003_serve.sql", "everything"])
async def test_a_database_that_is_not_migrated_is_not_ready(
    client: httpx2.AsyncClient, store: Store, missing: str
) -> None:
    async with store.connection() as conn:
        if missing == "everything":
            await conn.execute("DROP TABLE public.hasat_migration")
        else:
            await conn.execute("DELETE FROM public.hasat_migration WHERE name = %s", [missing])
    refused = await client.get("/readyz")
    assert refused.status_code == 503
    assert "migration" in refused.json()["detail"]
    assert refused.json()["remedy"] == "Apply them with `hasat db migrate`."


async def test_a_later_migration_does_not_stop_a_server_that_runs(
    client: httpx2.AsyncClient, store: Store
) -> None:
    async with store.connection() as conn:
        await conn.execute(
            "INSERT INTO public.hasat_migration (set_name, name, checksum, hasat_version)"
            " VALUES ('platform', '9999_later.sql', 'x', '9.9.9')"
        )
    assert (await client.get("/readyz")).status_code == 200


async def test_a_database_that_hangs_is_not_waited_for(
    client: httpx2.AsyncClient, store: Store
) -> None:
    async with store.connection() as conn:
        await conn.execute("LOCK TABLE public.hasat_migration, jobs.run IN ACCESS EXCLUSIVE MODE")
        refused, metrics = await asyncio.gather(client.get("/readyz"), client.get("/metrics"))
    assert refused.status_code == 503
    assert "did not respond within 3 seconds" in refused.json()["detail"]
    assert "hasat_database_up 0.0" in metrics.text
    await until(client, "/readyz", 200)
    assert "hasat_database_up 1.0" in (await client.get("/metrics")).text


async def test_many_probes_ask_the_database_once(client: httpx2.AsyncClient, store: Store) -> None:
    before = store.pool.get_stats().get("requests_num", 0)
    with capture_logs():
        answers = await asyncio.gather(*(client.get("/readyz") for _ in range(100)))
    assert {answer.status_code for answer in answers} == {200}
    # Once a second at most: on a slow machine the hundred may take more than one.
    assert store.pool.get_stats().get("requests_num", 0) - before < 10


async def _record_runs(store: Store, *runs: tuple[str, str, str | None]) -> None:
    async with store.connection() as conn, conn.cursor() as cursor:
        await cursor.executemany(
            "INSERT INTO jobs.run (job, trigger, state, outcome, finished_at, message, requests)"
            " VALUES (%s, 'hand', %s, %s,"
            " CASE WHEN %s::text IS NULL THEN NULL ELSE clock_timestamp() END, 'a remark', 3)",
            [(job, state, outcome, outcome) for job, state, outcome in runs],
        )


async def test_metrics_tell_how_the_jobs_are(client: httpx2.AsyncClient, store: Store) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    runs = [
        ("hourly", "finished", "done"),
        ("hourly", "finished", "done"),
        ("hourly", "finished", "failed"),
        ("manual", "finished", "set_aside"),
        ("manual", "queued", None),
        ("hourly", "queued", None),
        ("hourly", "running", None),
    ]
    chance.shuffle(runs)
    before = time.time()
    await _record_runs(store, *runs)
    lines = (await client.get("/metrics")).text.splitlines()
    for line in (
        'hasat_runs_total{job="hourly",outcome="done"} 2.0',
        'hasat_runs_total{job="hourly",outcome="failed"} 1.0',
        'hasat_runs_total{job="manual",outcome="set_aside"} 1.0',
        "hasat_jobs_queued 2.0",
        "hasat_jobs_running 1.0",
        "hasat_runs_set_aside 1.0",
        "hasat_database_up 1.0",
    ):
        assert line in lines
    name = 'hasat_job_last_finished_timestamp_seconds{job="hourly"} '
    (last,) = [float(line.removeprefix(name)) for line in lines if line.startswith(name)]
    assert abs(last - before) < 60


async def test_status_has_the_fields_of_the_original_on_top(
    client: httpx2.AsyncClient, store: Store
) -> None:
    await _record_runs(store, ("hourly", "finished", "failed"), ("hourly", "finished", "done"))
    status = (await client.get("/api/v1/status")).json()
    for field in (
        "lastSyncAt",
        "eInvoiceUserCount",
        "eDespatchUserCount",
        "lastSyncDuration",
        "lastSyncStatus",
        "lastSyncError",
        "lastAttemptAt",
        "lastFailureAt",
    ):
        assert status[field] is None
    assert status["name"] == "Hasat"
    assert status["database"]["embedded"] is False
    assert int(status["database"]["version"].split(".")[0]) >= 15
    jobs = {job["name"]: job for job in status["jobs"]}
    assert jobs["hourly"]["nextDue"].endswith(":00:00Z")
    assert jobs["hourly"]["lastRun"]["outcome"] == "done"
    assert jobs["hourly"]["lastRun"]["requests"] == 3
    assert jobs["hourly"]["lastRun"]["message"] == "a remark"
    assert jobs["manual"]["nextDue"] is None
    assert jobs["manual"]["lastRun"] is None


async def test_a_source_fills_the_status_and_the_health(settings: Settings, store: Store) -> None:
    report = {
        "lastSyncAt": "2026-01-02T03:04:05.123456Z",
        "eInvoiceUserCount": 17,
        "datasets": ["einvoice"],
        "checks": {"sync_freshness": {"status": "Degraded", "description": "30 hours old"}},
    }
    source = reporting_source("gib", "Taxpayers", says=report)
    async with serving(settings, store, source, Source("plain", "Plain")) as client:
        status = (await client.get("/api/v1/status")).json()
        assert status["lastSyncAt"] == "2026-01-02T03:04:05.123456Z"
        assert status["eInvoiceUserCount"] == 17
        assert status["lastFailureAt"] is None
        gib, plain = status["sources"]
        assert (gib["name"], gib["title"], gib["datasets"]) == ("gib", "Taxpayers", ["einvoice"])
        assert plain == {"name": "plain", "title": "Plain"}
        health = await client.get("/health")
        assert health.status_code == 200
        assert health.json() == {
            "status": "Degraded",
            "checks": {
                "postgresql": {"status": "Healthy", "description": None},
                "sync_freshness": {"status": "Degraded", "description": "30 hours old"},
            },
        }


async def test_a_source_that_cannot_say_how_it_is_is_degraded(
    settings: Settings, store: Store
) -> None:
    source = reporting_source("gib", "Taxpayers", says=HasatError("The disk is on fire."))
    async with serving(settings, store, source) as client:
        health = (await client.get("/health")).json()
        assert health["status"] == "Degraded"
        assert health["checks"]["gib"]["description"] == "The disk is on fire."
