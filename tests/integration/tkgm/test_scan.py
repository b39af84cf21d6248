"""Scans over endpoints find every parcel, pay for nothing twice, and publish changes."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import shapely

from hasat.errors import OutOfQuotaError, UnavailableError, UsageError
from hasat.feed.holds import GuardError, get_hold, list_holds, reject_hold
from hasat.fetch import RequestContext, endpoint_store, health
from hasat.jobs import Catalogue, Run, RunContext, run_in_foreground
from hasat.jobs.approvals import apply_hold, hold_command
from hasat.settings import Settings, load_settings
from hasat.sim import Simulation, simulate
from hasat.sim.clock import SettableClock
from hasat.sources.tkgm.export import export_unknown
from hasat.sources.tkgm.queries import list_scans
from hasat.sources.tkgm.registry.client import RegistryClient, open_registry
from hasat.sources.tkgm.scan import runner
from hasat.sources.tkgm.scan.progress import ScanProgress, ScanRequest
from hasat.sources.tkgm.scan.runner import Scan
from hasat.sources.tkgm.simulator.server import TKGM, SimulatedRegistry
from hasat.sources.tkgm.source import SCAN
from hasat.store import MigrationSet, Store, open_store
from hasat.testing.database import ThrowAwayDatabase

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

MIGRATIONS = MigrationSet("tkgm", files("hasat.sources.tkgm") / "migrations")
CONTEXT = RequestContext("daily", "tkgm_scan")


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return [MIGRATIONS]


class Town:
    """A simulated town behind endpoints, and its mirror."""

    def __init__(self, store: Store, settings: Settings, sim: Simulation, workers: Path) -> None:
        self.store = store
        self.settings = settings
        self.sim = sim
        self.workers = workers

    @property
    def upstream(self) -> SimulatedRegistry:
        inside: SimulatedRegistry = self.sim.inside
        return inside

    @property
    def keys(self) -> set[str]:
        return {"/".join(map(str, parcel.key)) for parcel in self.upstream.cadastre.parcels}

    @property
    def area(self) -> Any:
        return json.loads(shapely.to_geojson(self.upstream.cadastre.area()))

    def job(self, database: ThrowAwayDatabase, home: Path) -> "ScanJob":
        """Return the scan as a job with the endpoints of the town."""
        named = {"HASAT_HOME": str(home), "HASAT_TKGM_WORKERS_FILE": str(self.workers)}
        return ScanJob(self, load_settings(environ=named | {"HASAT_DATABASE_URL": database.url}))

    def request(self, **more: Any) -> ScanRequest:
        return ScanRequest(self.upstream.cadastre.area(), **more)

    @asynccontextmanager
    async def registry(self) -> AsyncIterator[RegistryClient]:
        async with open_registry(self.store, self.settings, self.workers) as found:
            yield found

    async def scan(self, **more: Any) -> ScanProgress:
        async with self.registry() as registry:
            return await Scan(self.store, registry, self.request(**more), CONTEXT).run()

    async def scan_for(self, seconds: float) -> ScanProgress | None:
        """Run a scan that is cancelled after a while, unless it ends before."""
        async with self.registry() as registry:
            running = asyncio.ensure_future(
                Scan(self.store, registry, self.request(), CONTEXT).run()
            )
            done, _ = await asyncio.wait({running}, timeout=seconds)
            if done:
                return running.result()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            return None

    async def mirrored(self) -> set[str]:
        async with self.store.connection() as conn:
            cursor = await conn.execute("SELECT key FROM core.parcels")
            return {key for (key,) in await cursor.fetchall()}

    async def changes(self) -> list[tuple[int, int]]:
        async with self.store.connection() as conn:
            cursor = await conn.execute(
                "SELECT kind, count(*) FROM feed.change WHERE dataset = 'parcels'"
                " GROUP BY kind ORDER BY kind"
            )
            return await cursor.fetchall()


class ScanJob:
    """The scan of a town as a job, with its holds."""

    def __init__(self, place: Town, settings: Settings) -> None:
        self.settings = settings
        self._place = place
        self._catalogue = Catalogue.of([SCAN], settings)

    async def run(self) -> Run:
        return await run_in_foreground(
            self._catalogue, self._place.store, self.settings, SCAN.name, {"area": self._place.area}
        )

    async def approve(self, hold: int) -> Run:
        return await apply_hold(self._place.store, self.settings, self._catalogue, hold)


@asynccontextmanager
async def town(
    database: ThrowAwayDatabase, home: Path, *, entry: Any = None, **options: Any
) -> AsyncIterator[Town]:
    clock = SettableClock(datetime(2026, 11, 16, 9, tzinfo=UTC), speed=0)
    world = {"parcels": 50, "endpoints": 3, **options}
    simulation = Simulation(TKGM, seed=4, clock=clock, options=world)
    settings = database.settings(home)
    async with simulate(simulation) as address, open_store(settings, [MIGRATIONS]) as store:
        workers = home / "workers.json"
        more = {"min_interval_ms": 0, **(entry or {})}
        workers.write_text(json.dumps(simulation.inside.workers_json(address, **more)))
        yield Town(store, settings, simulation, workers)


async def test_a_scan_finds_all_parcels(database: ThrowAwayDatabase, tmp_path: Path) -> None:
    async with town(database, tmp_path) as place:
        progress = await place.scan()
        assert progress.complete
        missed = place.keys - await place.mirrored()
        assert len(missed) <= 0.01 * len(place.keys)
        assert progress.found == len(await place.mirrored())
        assert await place.changes() == [(1, progress.found)]
        assert max(place.upstream.points.values()) == 1


async def test_a_scan_stores_and_exports_what_it_claims(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with town(database, tmp_path) as place, place.registry() as registry:
        scan = Scan(place.store, registry, place.request(), CONTEXT)
        progress = await scan.run()
        claim = progress.completeness
        assert claim is not None
        assert claim["low"] <= progress.found / len(place.keys)
        assert claim["smallestSquareMetres"] == 60
        (stored,) = await list_scans(place.store, 1)
        assert stored.at_least == claim["low"]
        listed = [n for one in scan.missing_numbers() for n in one["numbers"]]
        assert stored.missing_numbers == claim["numbers"]["missing"] == len(listed)
        file = tmp_path / "unknown.geojson"
        export_unknown(scan.unknown_areas(), file, await place.store.now(), alone=True)
        features = json.loads(file.read_text())["features"]
        shown = [one["properties"]["numbers"] for one in features]
        assert any(shown) == bool(listed)


@pytest.mark.parametrize("area", ["2.3,48.8,2.4,48.9", "39.89,32.84,39.91,32.86", "27,37,42,41"])
async def test_a_scan_far_away_or_of_half_the_country_costs_nothing(
    database: ThrowAwayDatabase, tmp_path: Path, area: str
) -> None:
    async with town(database, tmp_path) as place:
        named = {"HASAT_HOME": str(tmp_path), "HASAT_TKGM_WORKERS_FILE": str(place.workers)}
        settings = load_settings(environ=named | {"HASAT_DATABASE_URL": database.url})
        context = RunContext(
            run_id=1,
            job=SCAN,
            params={"area": area},
            scheduled_for=None,
            settings=settings,
            store=place.store,
        )
        with pytest.raises(UsageError):
            await SCAN.run(context)
        assert place.sim.requests.total() == 0


async def test_a_scan_by_number_finds_all_parcels(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    entry = {"by_number": "/parsel/{mahalleId}/{adaNo}/{parselNo}"}
    async with town(database, tmp_path, entry=entry) as place:
        assert (await place.scan()).complete
        assert len(place.keys - await place.mirrored()) <= 0.01 * len(place.keys)


async def test_a_grid_scan(database: ThrowAwayDatabase, tmp_path: Path) -> None:
    async with town(database, tmp_path) as place:
        progress = await place.scan(method="grid", step=25.0)
        assert progress.complete
        assert 0 < progress.found <= len(place.keys)


# When it is cancelled while it loads the known state, psycopg leaves the cursor to the collector.
@pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <function ServerCursorMixin:"
    "pytest.PytestUnraisableExceptionWarning"
)
async def test_an_interrupted_scan_resumes_and_pays_for_nothing_twice(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    async with town(database, tmp_path, parcels=60) as place:
        undisturbed = await place.scan()
        expected = await place.mirrored()
        async with place.store.connection() as conn:
            await conn.execute("TRUNCATE core.parcels, tkgm.scan, tkgm.parcel_told CASCADE")
            await conn.execute("TRUNCATE feed.head, feed.change, feed.version_dataset")
        place.upstream.points.clear()
        progress = None
        for _ in range(20):
            progress = await place.scan_for(dice.uniform(0.02, 0.4))
            if progress is not None:
                break
        if progress is None:
            progress = await place.scan()
        assert progress.complete
        assert await place.mirrored() == expected
        assert progress.found == undisturbed.found
        twice = [point for point, times in place.upstream.points.items() if times > 1]
        # Only what was in flight when the scan was cancelled.
        assert len(twice) <= 20 * 3 * 20


async def test_a_scan_stops_when_the_quota_ends(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with town(database, tmp_path, daily=20) as place:
        with pytest.raises(OutOfQuotaError):
            await place.scan()
        first = await place.mirrored()
        assert first
        assert first < place.keys
        assert max(place.upstream.points.values()) == 1


async def test_the_limit_on_queries_is_respected(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with town(database, tmp_path) as place:
        progress = await place.scan(max_queries=60)
        assert not progress.complete
        assert progress.queries == sum(place.upstream.points.values()) == 60
        again = await place.scan()
        assert again.complete
        assert again.known_before >= progress.queries
        (shown,) = await list_scans(place.store, 1)
        assert shown.queries == sum(place.upstream.points.values())


async def test_failing_endpoints_cost_no_parcel(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with town(database, tmp_path, endpoints=4) as place:
        place.sim.faults.switch_on("partial", share=0.3)
        place.sim.faults.switch_on("broken", endpoint=2, share=0.2)
        place.sim.faults.switch_on("forbidden", endpoint=3, times=1)
        progress = await place.scan()
        assert progress.complete
        assert len(place.keys - await place.mirrored()) <= 0.01 * len(place.keys)


async def test_an_endpoint_that_misses_parcels_costs_none(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with town(database, tmp_path) as place:
        place.sim.faults.switch_on("lying", endpoint=2)
        progress = await place.scan()
        assert progress.complete
        assert len(place.keys - await place.mirrored()) <= 0.01 * len(place.keys)


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten cooldowns and waits."""
    monkeypatch.setattr(health, "_FAILING_SECONDS", 0.01)
    monkeypatch.setattr(endpoint_store, "_UPSTREAM_REST_SECONDS", 0.005)
    monkeypatch.setattr(runner, "_WAITS", (0.05,) * 12)
    monkeypatch.setattr(runner, "_CONTROL_WAITS", (0.2,) * 10)


@pytest.mark.usefixtures("short_waits")
async def test_points_without_response_stop_no_scan_and_remove_no_parcel(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with town(database, tmp_path) as place:
        place.sim.faults.switch_on("unanswerable", of=30)
        progress = await place.scan()
        assert progress.complete
        assert progress.unanswered
        found = await place.mirrored()
        assert len(place.keys - found) <= 0.02 * len(place.keys)
        again = await place.scan()
        assert again.complete
        assert again.changes.removed == 0
        assert await place.mirrored() >= found


@pytest.mark.usefixtures("short_waits")
async def test_no_point_is_skipped_when_no_endpoint_responds(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with town(database, tmp_path) as place:
        await place.scan(max_queries=25)
        place.sim.faults.switch_on("broken")
        with pytest.raises(UnavailableError):
            await place.scan()
        place.sim.faults.switch_off()
        progress = await place.scan()
        assert progress.complete
        assert not progress.unanswered


async def test_a_second_scan_publishes_added_and_removed_parcels(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with town(database, tmp_path) as place:
        first = await place.scan()
        before = await place.mirrored()
        retired = place.upstream.merge_two()
        again = await place.scan()
        after = await place.mirrored()
        assert before - after == retired
        assert len(after - before) == 1
        assert dict(await place.changes())[3] == len(retired)
        assert again.complete
        assert again.queries < first.queries


async def test_a_second_scan_without_changes_sends_one_query_per_parcel(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with town(database, tmp_path) as place:
        first = await place.scan()
        changes = await place.changes()
        for _ in range(2):
            again = await place.scan()
            assert again.complete
            assert again.found == first.found
            # One point per parcel, a few empty ones, and the audit at the end.
            assert again.queries <= first.found + 20 + 20 + 20
        assert await place.changes() == changes


async def test_a_better_quality_continues_from_fresh_parcels(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with town(database, tmp_path) as place:
        fast = await place.scan(quality="fast")
        thorough = await place.scan(quality="thorough")
        assert thorough.complete
        assert thorough.queries < fast.queries
        assert len(place.keys - await place.mirrored()) <= 0.01 * len(place.keys)


async def test_a_grid_that_misses_parcels_removes_none(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with town(database, tmp_path) as place:
        await place.scan()
        before = await place.mirrored()
        progress = await place.scan(method="grid", step=60.0)
        assert progress.found < len(before)
        assert await place.mirrored() == before


async def test_many_missing_parcels_are_held_and_an_approval_removes_them(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with town(database, tmp_path, parcels=40) as place:
        await place.scan()
        before = await place.mirrored()
        place.sim.faults.switch_on("lying")
        job = place.job(database, tmp_path)
        held = await job.run()
        assert held.outcome == "held"
        assert "parcels: removed" in (held.message or "")
        assert await place.mirrored() == before
        [hold] = await list_holds(place.store)
        assert hold.preview["datasets"]["parcels"]["removed"] > 20
        # That scan is finished: the command sends the queries again, and its work is held too.
        with pytest.raises(GuardError) as error:
            await place.scan()
        params = {"area": place.area, "quality": "standard"}
        second = await hold_command(place.store, job.settings, SCAN, params, error.value)
        [*_, first] = await list_holds(place.store)
        assert first.state == ("waiting" if second == first.id else "superseded")
        hold = await get_hold(place.store, second)
        gone = hold.preview["datasets"]["parcels"]["removed"]
        assert hold.state == "waiting"
        # One of the parcels is received again before the decision, and stays.
        found = hold.preview["examples"]["parcels"]["removed"][0]["identifier"]
        async with place.store.connection() as conn:
            await conn.execute(
                "UPDATE tkgm.parcel_told SET told_at = clock_timestamp() WHERE key = %s", [found]
            )
        requests = place.sim.requests.total()
        applied = await job.approve(hold.id)
        assert (applied.outcome, applied.rows_changed) == ("done", gone - 1), applied
        assert place.sim.requests.total() == requests
        assert found in await place.mirrored()
        assert (await get_hold(place.store, hold.id)).state == "approved"
        place.sim.faults.switch_off("lying")
        # What was wrongly removed comes back.
        await place.scan()
        assert await place.mirrored() == before


async def test_a_rejected_hold_removes_nothing_and_the_next_scan_asks_again(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with town(database, tmp_path, parcels=40) as place:
        await place.scan()
        before = await place.mirrored()
        place.sim.faults.switch_on("lying")
        job = place.job(database, tmp_path)
        held = await job.run()
        await reject_hold(place.store, job.settings, held.id)
        assert await place.mirrored() == before
        place.sim.faults.switch_off("lying")
        again = await place.scan()
        assert again.complete
        assert again.found == len(before)


async def test_the_job_resumes_when_there_is_quota_again(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with town(database, tmp_path, parcels=40, daily=20) as place:
        named = {"HASAT_HOME": str(tmp_path), "HASAT_TKGM_WORKERS_FILE": str(place.workers)}
        settings = load_settings(environ=named | {"HASAT_DATABASE_URL": database.url})
        area = json.loads(shapely.to_geojson(place.upstream.cadastre.area()))

        def context() -> RunContext:
            return RunContext(
                run_id=1,
                job=SCAN,
                params={"area": area, "quality": "fast", "yes": True},
                scheduled_for=None,
                settings=settings,
                store=place.store,
            )

        first = context()
        ended = await SCAN.run(first)
        assert ended.kind == "out_of_quota"
        assert first.last_progress is not None
        assert "quota left" in first.last_progress["note"]
        # The total includes the queries that are left.
        assert first.last_progress["done"] < first.last_progress["total"]
        declared = json.loads(place.workers.read_text())
        for one, endpoint in zip(declared["workers"], place.upstream.endpoints, strict=True):
            one["daily"] = endpoint.daily = 2000
        place.workers.write_text(json.dumps(declared))
        done = await SCAN.run(context())
        assert done.kind == "done"
        assert done.detail["complete"]
        assert done.detail["knownBefore"] >= ended.detail["questions"]
        assert max(place.upstream.points.values()) == 1


async def test_the_job_needs_a_yes_for_more_than_a_day(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with town(database, tmp_path, parcels=150, daily=30) as place:
        named = {"HASAT_HOME": str(tmp_path), "HASAT_TKGM_WORKERS_FILE": str(place.workers)}
        settings = load_settings(environ=named | {"HASAT_DATABASE_URL": database.url})
        area = json.loads(shapely.to_geojson(place.upstream.cadastre.area()))

        def context(**params: Any) -> RunContext:
            return RunContext(
                run_id=1,
                job=SCAN,
                params={"area": area, **params},
                scheduled_for=None,
                settings=settings,
                store=place.store,
            )

        with pytest.raises(UsageError, match="more than the 90 of a day"):
            await SCAN.run(context())
        sampled = sum(place.upstream.points.values())
        assert 0 < sampled <= 60
        limited = await SCAN.run(context(max_queries=5))
        assert limited.kind == "done"
        ended = await SCAN.run(context(yes=True))
        assert ended.kind == "out_of_quota"
        assert max(place.upstream.points.values()) == 1
