"""A database made by an earlier release is upgraded without loss, and its consumers do not notice.

tests/upgrade has one folder for each release, made by scripts/upgrade-dump.
"""

import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2
import pytest
import shapely
from anyio import to_thread
from anyio.from_thread import BlockingPortal

from hasat.api.app import create_app
from hasat.console.runtime import source_migrations
from hasat.jobs import Catalogue
from hasat.settings import Settings
from hasat.sim import Simulation, simulate
from hasat.source.installed import all_sources
from hasat.sources.football.simulator.server import FOOTBALL
from hasat.sources.football.simulator.server import KEY as FOOTBALL_KEY
from hasat.sources.tkgm.simulator.server import KEY as TKGM_KEY
from hasat.sources.tkgm.simulator.server import TKGM
from hasat.store import Store, open_store
from hasat.store.backup import Client
from hasat.store.store import connect, reach
from hasat.testing.database import ThrowAwayDatabase, throw_away_database
from hasat.testing.http import app_client
from support.feed_toys import state_digest
from support.processes import Installation

pytestmark = pytest.mark.anyio

SHAPE = """
    SELECT 'column', table_schema, table_name, column_name, data_type, is_nullable, column_default
    FROM information_schema.columns WHERE table_schema NOT IN ('pg_catalog', 'information_schema')
    UNION ALL
    SELECT 'constraint', conrelid::regclass::text, pg_get_constraintdef(oid), '', '', '', ''
    FROM pg_constraint WHERE conrelid > 16383
    UNION ALL
    SELECT 'index', indexdef, '', '', '', '', '' FROM pg_indexes WHERE schemaname !~ '^pg_'
    UNION ALL
    SELECT 'view', viewname, definition, '', '', '', '' FROM pg_views WHERE schemaname !~ '^pg_'
    UNION ALL
    SELECT 'function', oid::regprocedure::text, prosrc, '', '', '', ''
    FROM pg_proc WHERE oid > 16383
"""
RELEASES = sorted(Path(__file__).parents[2].joinpath("upgrade").glob("*/facts.json"))


@pytest.fixture(params=RELEASES, ids=lambda path: path.parent.name)
def release(request: pytest.FixtureRequest) -> Path:
    """The folder of an earlier release."""
    facts: Path = request.param
    return facts.parent


@pytest.fixture
def facts(release: Path) -> dict[str, Any]:
    """The reports of that release about its database."""
    read: dict[str, Any] = json.loads((release / "facts.json").read_text("utf-8"))
    return read


@pytest.fixture
def database(
    background: BlockingPortal, server_url: str, release: Path, tmp_path: Path
) -> Iterator[ThrowAwayDatabase]:
    """A database as that release left it: restored by PostgreSQL's own programs."""
    with background.wrap_async_context_manager(throw_away_database(server_url, None)) as database:
        client = background.call(_client, database.settings(tmp_path))
        script = subprocess.run(
            [client.program("pg_restore"), "--no-owner", "--file=-", release / "backup.dump"],
            check=True,
            capture_output=True,
        ).stdout
        subprocess.run(
            [
                client.program("psql"),
                *("--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1"),
                client.database,
            ],
            # Servers before PostgreSQL 17 do not know it.
            input=script.replace(b"SET transaction_timeout = 0;\n", b""),
            env=client.environment,
            check=True,
            capture_output=True,
        )
        yield database


async def _client(settings: Settings) -> Client:
    async with reach(settings) as reached:
        return await Client.of(reached, settings.database.binaries)


@pytest.fixture
async def store(settings: Settings) -> AsyncIterator[Store]:
    """The upgraded database."""
    async with open_store(settings, source_migrations()) as store:
        yield store


@asynccontextmanager
async def api(store: Store, settings: Settings) -> AsyncIterator[httpx2.AsyncClient]:
    app = create_app(settings, store, Catalogue.of([], settings), all_sources())
    async with app_client(app) as client:
        yield client


@pytest.fixture
async def client(store: Store, settings: Settings) -> AsyncIterator[httpx2.AsyncClient]:
    async with api(store, settings) as client:
        yield client


async def _get(client: httpx2.AsyncClient, path: str, **query: Any) -> Any:
    answer = await client.get(f"/api/v1/{path}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def _records(client: httpx2.AsyncClient, dataset: str, after: str) -> list[list[Any]]:
    page = await _get(client, f"{dataset}/changes", after=after, limit=1000, include="record")
    return [[one["seq"], one["changeType"], one["key"], one["body"]] for one in page["changes"]]


async def _mirrored(store: Store, dataset: str) -> dict[str, Any]:
    async with store.connection() as conn:
        rows = await conn.execute(f"SELECT key, body FROM core.{dataset}")
        return dict(await rows.fetchall())


async def test_every_dataset_goes_on_where_it_was(
    client: httpx2.AsyncClient, store: Store, facts: dict[str, Any]
) -> None:
    assert {"einvoice", "parcels", "fixtures"} <= facts["datasets"].keys()
    for name, fact in facts["datasets"].items():
        found = await _get(client, f"{name}/digest")
        for fixed in ("digest", "count", "head", "cursor", "epoch", "version"):
            assert found[fixed] == fact[fixed], (name, fixed)
        assert state_digest(await _mirrored(store, name)).hex() == fact["digest"], name


async def test_a_follower_reads_on_from_its_old_cursor(
    client: httpx2.AsyncClient, facts: dict[str, Any]
) -> None:
    for name, fact in facts["datasets"].items():
        records = await _records(client, name, fact["follower"])
        assert len(records) == fact["changes"], name
        seen = sha256(json.dumps(records, sort_keys=True).encode()).hexdigest()
        assert seen == fact["changes_sha256"], name


async def test_a_sync_after_the_upgrade_adds_to_the_same_feed(
    client: httpx2.AsyncClient,
    store: Store,
    hosted: Installation,
    facts: dict[str, Any],
    release: Path,
) -> None:
    done = hosted.call(
        *("gib", "sync", "--pk", str(release / "pk.zip"), "--gb", str(release / "gb.zip"))
    )
    assert done.returncode == 0, done.stderr
    before = facts["datasets"]["einvoice"]
    after = await _get(client, "einvoice/digest")
    assert after["epoch"] == before["epoch"]
    assert after["head"] > before["head"]
    seqs = [record[0] for record in await _records(client, "einvoice", before["cursor"])]
    assert seqs == list(range(before["head"] + 1, after["head"] + 1))
    assert state_digest(await _mirrored(store, "einvoice")).hex() == after["digest"]


async def test_a_held_run_of_the_release_still_waits(
    store: Store, hosted: Installation, facts: dict[str, Any], release: Path
) -> None:
    [held] = [run for run, _, outcome in facts["runs"] if outcome == "held"]
    [hold] = hosted.json("holds", "list")
    if release.name == "cc6f873":
        # It did not record what the stored lists were, so that they cannot be verified.
        assert (hold["id"], hold["state"]) == (held, "superseded")
        return
    assert (hold["id"], hold["state"], hold["source"]) == (held, "waiting", "gib")
    assert {measure["exceeded"] for measure in hold["preview"]["measures"]} == {True, False}
    before = await _mirrored(store, "einvoice")
    # Its lists are on the machine that ran it, so the approval waits for a worker there.
    done = await to_thread.run_sync(lambda: hosted.call("holds", "approve", str(held), "--json"))
    approval = json.loads(done.stdout)
    assert (done.returncode, approval["outcome"]) == (0, "queued"), done.stderr
    assert hold["machine"] in approval["message"]
    assert await _mirrored(store, "einvoice") == before
    assert hosted.json("holds", "reject", str(held))["state"] == "rejected"


async def test_keys_runs_and_deliveries_are_still_there(
    client: httpx2.AsyncClient, hosted: Installation, facts: dict[str, Any]
) -> None:
    path = "/api/v1/einvoice/digest"
    known = await client.get(path, headers={"Authorization": f"Bearer {facts['key']['key']}"})
    assert known.status_code == 200, known.text
    wrong = facts["key"]["key"][:-1] + "_"
    unknown = await client.get(path, headers={"Authorization": f"Bearer {wrong}"})
    assert unknown.status_code == 401
    runs = [[run["id"], run["job"], run["outcome"]] for run in hosted.json("jobs", "history")]
    assert runs == facts["runs"]
    deliveries = hosted.json("webhooks", "deliveries")
    assert {one["messageId"] for one in deliveries} == set(facts["deliveries"])


async def test_a_backup_of_an_earlier_release_can_be_restored(
    server_url: str,
    tmp_path: Path,
    release: Path,
    facts: dict[str, Any],
    installation: Installation,
) -> None:
    async with throw_away_database(server_url, None) as empty:
        installation.environ["HASAT_DATABASE_URL"] = empty.url
        done = installation.call("db", "restore", str(release / "backup.dump"))
        assert done.returncode == 0, done.stderr
        settings = empty.settings(tmp_path)
        async with (
            open_store(settings, source_migrations()) as store,
            api(store, settings) as client,
        ):
            for name, fact in facts["datasets"].items():
                found = await _get(client, f"{name}/digest")
                assert (found["digest"], found["count"]) == (fact["digest"], fact["count"])
                assert found["epoch"] != fact["epoch"]


async def test_an_upgraded_database_has_all_that_a_new_one_has(
    store: Store, server_url: str
) -> None:
    async with throw_away_database(server_url, source_migrations()) as fresh:
        expected = await _shape(fresh.url)
        assert not expected - await _shape(store.url)


async def _shape(url: str) -> set[tuple[str, ...]]:
    """Columns with their types, constraints, indexes, views and functions."""
    async with await connect(url) as connection:
        rows = await connection.execute(SHAPE)
        return {tuple(map(str, row)) for row in await rows.fetchall()}


@pytest.mark.any_server
async def test_the_other_sources_work_on(
    store: Store, hosted: Installation, facts: dict[str, Any], tmp_path: Path
) -> None:
    football = Simulation(FOOTBALL, options={"leagues": 1, "teams": 4})
    tkgm = Simulation(TKGM, options={"parcels": 12, "endpoints": 1})
    async with simulate(football) as matches, simulate(tkgm) as parcels:
        hosted.environ |= {
            "HASAT_FOOTBALL_BASE_URL": matches,
            "HASAT_FOOTBALL_API_KEY": FOOTBALL_KEY,
        }
        endpoint = {"url": f"{parcels}/e1", "daily": 2000, "min_interval_ms": 0}
        workers = {"api_key": TKGM_KEY, "workers": [endpoint]}
        (tmp_path / "workers.json").write_text(json.dumps(workers))
        area = ",".join(map(str, shapely.bounds(tkgm.inside.cadastre.area())))
        for command in (
            ["football", "rebuild"],
            ["jobs", "run", "bootstrap_leagues"],
            ["tkgm", "scan", area, "--workers", str(tmp_path / "workers.json")],
        ):
            done = await to_thread.run_sync(lambda words=command: hosted.call(*words))
            assert done.returncode == 0, done.stderr
    known = facts["datasets"]["parcels"]["count"]
    assert len(await _mirrored(store, "parcels")) >= known


@pytest.mark.any_server
async def test_a_database_that_cannot_be_upgraded_can_be_saved_and_stays_as_it_is(
    database: ThrowAwayDatabase, hosted: Installation, tmp_path: Path
) -> None:
    """Before the first release migrations were edited in place; such databases exist."""
    async with await connect(database.url) as connection:
        await connection.execute(
            "UPDATE public.hasat_migration SET checksum = md5(checksum)"
            " WHERE name IN ('0008_budget.sql', '0002_search.sql')"
        )
        before = await _shape(database.url)
        for command in (["jobs", "list"], ["gib", "sync"], ["db", "migrate"], ["doctor"]):
            done = hosted.call(*command)
            printed = " ".join((done.stdout + done.stderr).split())
            assert done.returncode == 1, command
            assert "cannot be upgraded: its migration platform/0008_budget.sql" in printed
            assert "hasat db backup FILE" in printed
            assert "HASAT_HOME to a new folder" in printed
            assert "Traceback" not in printed
        saved = tmp_path / "saved.dump"
        assert hosted.call("db", "backup", str(saved)).returncode == 0
        assert saved.stat().st_size > 100_000
        assert await _shape(database.url) == before


@pytest.mark.any_server
async def test_a_backup_that_cannot_be_upgraded_replaces_nothing(
    database: ThrowAwayDatabase, hosted: Installation, tmp_path: Path, release: Path
) -> None:
    saved = tmp_path / "saved.dump"
    async with await connect(database.url) as connection:
        await connection.execute("UPDATE public.hasat_migration SET checksum = md5(checksum)")
    assert hosted.call("db", "backup", str(saved)).returncode == 0
    assert hosted.call("db", "restore", str(release / "backup.dump"), "--yes").returncode == 0
    done = hosted.call("db", "restore", str(saved), "--yes")
    assert (done.returncode, "cannot be upgraded" in done.stderr) == (1, True)
    assert hosted.call("jobs", "list").returncode == 0
