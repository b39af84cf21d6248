"""Scans over real endpoints: every parcel is found, nothing is paid for twice, changes are told."""

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

from hasat.errors import HeldError, OutOfQuotaError, UnavailableError
from hasat.fetch import RequestContext, health
from hasat.fetch import endpoint_store as shared
from hasat.jobs import RunContext
from hasat.settings import Settings, load_settings
from hasat.sim import Simulation, simulate
from hasat.sim.clock import SettableClock
from hasat.sources.tkgm.density import scans
from hasat.sources.tkgm.registry.client import Registry, registry
from hasat.sources.tkgm.scan import runner
from hasat.sources.tkgm.scan.runner import Course, Scan
from hasat.sources.tkgm.scan.scan_request import Wish
from hasat.sources.tkgm.simulator.server import TKGM
from hasat.sources.tkgm.simulator.server import Registry as Simulated
from hasat.sources.tkgm.source import SCAN
from hasat.store import MigrationSet, Store, open_store
from hasat.testing.database import ThrowAwayDatabase

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

MIGRATIONS = MigrationSet("tkgm", files("hasat.sources.tkgm") / "migrations")
ASKER = RequestContext("daily", "tkgm_scan")


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return [MIGRATIONS]


class Town:
    """A town behind endpoints, and what Hasat knows of it."""

    def __init__(self, store: Store, settings: Settings, sim: Simulation, workers: Path) -> None:
        self.store = store
        self.settings = settings
        self.sim = sim
        self.workers = workers

    @property
    def upstream(self) -> Simulated:
        inside: Simulated = self.sim.inside
        return inside

    @property
    def keys(self) -> set[str]:
        return {"/".join(map(str, parcel.key)) for parcel in self.upstream.cadastre.parcels}

    def wish(self, **more: Any) -> Wish:
        return Wish(self.upstream.cadastre.area(), **more)

    @asynccontextmanager
    async def registry(self) -> AsyncIterator[Registry]:
        async with registry(self.store, self.settings, self.workers) as found:
            yield found

    async def scan(self, **more: Any) -> Course:
        async with self.registry() as asked:
            return await Scan(self.store, asked, self.wish(**more), ASKER).run()

    async def scan_for(self, seconds: float) -> Course | None:
        """A scan that is cut off after a while, unless it ends before."""
        async with self.registry() as asked:
            running = asyncio.ensure_future(Scan(self.store, asked, self.wish(), ASKER).run())
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


async def test_a_town_is_found_whole(database: ThrowAwayDatabase, tmp_path: Path) -> None:
    async with town(database, tmp_path) as place:
        course = await place.scan()
        assert course.complete
        missed = place.keys - await place.mirrored()
        assert len(missed) <= 0.01 * len(place.keys)
        assert course.found == len(await place.mirrored())
        assert await place.changes() == [(1, course.found)]
        assert max(place.upstream.points.values()) == 1


async def test_by_number_too(database: ThrowAwayDatabase, tmp_path: Path) -> None:
    entry = {"by_number": "/parsel/{mahalleId}/{adaNo}/{parselNo}"}
    async with town(database, tmp_path, entry=entry) as place:
        assert (await place.scan()).complete
        assert len(place.keys - await place.mirrored()) <= 0.01 * len(place.keys)


async def test_the_plain_grid(database: ThrowAwayDatabase, tmp_path: Path) -> None:
    async with town(database, tmp_path) as place:
        course = await place.scan(method="grid", step=25.0)
        assert course.complete
        assert 0 < course.found <= len(place.keys)


# Where it is cut off while it reads what is known, psycopg leaves the cursor to the collector.
@pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <function ServerCursorMixin:"
    "pytest.PytestUnraisableExceptionWarning"
)
async def test_an_interrupted_scan_goes_on_and_pays_for_nothing_twice(
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
        course = None
        for _ in range(20):
            course = await place.scan_for(dice.uniform(0.02, 0.4))
            if course is not None:
                break
        if course is None:
            course = await place.scan()
        assert course.complete
        assert await place.mirrored() == expected
        assert course.found == undisturbed.found
        twice = [point for point, times in place.upstream.points.items() if times > 1]
        # Only what was in flight when the scan was cut off.
        assert len(twice) <= 20 * 3 * 20


async def test_when_the_quota_ends_the_scan_goes_on_the_next_day(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with town(database, tmp_path, daily=20) as place:
        with pytest.raises(OutOfQuotaError):
            await place.scan()
        first = await place.mirrored()
        assert first
        assert first < place.keys
        assert max(place.upstream.points.values()) == 1


async def test_a_limit_on_questions_is_kept(database: ThrowAwayDatabase, tmp_path: Path) -> None:
    async with town(database, tmp_path) as place:
        course = await place.scan(max_questions=60)
        assert not course.complete
        assert course.asked == sum(place.upstream.points.values()) == 60
        again = await place.scan()
        assert again.complete
        assert again.known_before >= course.asked
        (shown,) = await scans(place.store, 1)
        assert shown.asked == sum(place.upstream.points.values())


async def test_troubled_endpoints_cost_no_parcel(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with town(database, tmp_path, endpoints=4) as place:
        place.sim.faults.switch_on("partial", share=0.3)
        place.sim.faults.switch_on("broken", endpoint=2, share=0.2)
        place.sim.faults.switch_on("forbidden", endpoint=3, times=1)
        course = await place.scan()
        assert course.complete
        assert len(place.keys - await place.mirrored()) <= 0.01 * len(place.keys)


async def test_an_endpoint_that_denies_what_is_there_costs_no_parcel(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with town(database, tmp_path) as place:
        place.sim.faults.switch_on("lying", endpoint=2)
        course = await place.scan()
        assert course.complete
        assert len(place.keys - await place.mirrored()) <= 0.01 * len(place.keys)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who fails rests, and is waited for, but not for long."""
    monkeypatch.setattr(health, "_FAILING_SECONDS", 0.01)
    monkeypatch.setattr(shared, "_UPSTREAM_REST_SECONDS", 0.005)
    monkeypatch.setattr(runner, "_WAITS", (0.05,) * 12)
    monkeypatch.setattr(runner, "_CONTROL_WAITS", (0.2,) * 10)


@pytest.mark.usefixtures("hurried")
async def test_points_that_nobody_answers_stop_no_scan_and_take_no_parcel_away(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with town(database, tmp_path) as place:
        place.sim.faults.switch_on("unanswerable", of=30)
        course = await place.scan()
        assert course.complete
        assert course.unanswered
        found = await place.mirrored()
        assert len(place.keys - found) <= 0.02 * len(place.keys)
        again = await place.scan()
        assert again.complete
        assert again.changes.removed == 0
        assert await place.mirrored() >= found


@pytest.mark.usefixtures("hurried")
async def test_where_nobody_answers_anything_no_point_is_passed_over(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with town(database, tmp_path) as place:
        await place.scan(max_questions=25)
        place.sim.faults.switch_on("broken")
        with pytest.raises(UnavailableError):
            await place.scan()
        place.sim.faults.switch_off()
        course = await place.scan()
        assert course.complete
        assert not course.unanswered


async def test_a_second_scan_tells_what_came_and_went(
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
        assert again.asked < first.asked


async def test_a_second_scan_of_what_has_not_changed_asks_once_a_parcel(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with town(database, tmp_path) as place:
        first = await place.scan()
        changes = await place.changes()
        for _ in range(2):
            again = await place.scan()
            assert again.complete
            assert again.found == first.found
            # A point a parcel, a few empty ones, and the last random look at what is left.
            assert again.asked <= first.found + 20 + 20 + 20
        assert await place.changes() == changes


async def test_a_better_quality_goes_on_from_what_was_just_told(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with town(database, tmp_path) as place:
        fast = await place.scan(quality="fast")
        thorough = await place.scan(quality="thorough")
        assert thorough.complete
        assert thorough.asked < fast.asked
        assert len(place.keys - await place.mirrored()) <= 0.01 * len(place.keys)


async def test_a_grid_that_misses_parcels_removes_none(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with town(database, tmp_path) as place:
        await place.scan()
        before = await place.mirrored()
        course = await place.scan(method="grid", step=60.0)
        assert course.found < len(before)
        assert await place.mirrored() == before


async def test_many_parcels_gone_are_held_until_somebody_decides(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    async with town(database, tmp_path, parcels=40) as place:
        await place.scan()
        before = await place.mirrored()
        place.sim.faults.switch_on("lying")
        with pytest.raises(HeldError):
            await place.scan()
        assert await place.mirrored() == before
        async with place.registry() as asked:
            scan = Scan(place.store, asked, place.wish(), ASKER, removals="reject")
            assert (await scan.run()).complete
        assert await place.mirrored() == before
        place.sim.faults.switch_off("lying")
        assert (await place.scan()).found == len(before)


async def test_the_job_goes_on_when_there_is_quota_again(
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
                params={"area": area, "quality": "fast"},
                scheduled_for=None,
                settings=settings,
                store=place.store,
            )

        first = context()
        ended = await SCAN.run(first)
        assert ended.kind == "out_of_quota"
        assert first.last_progress is not None
        assert "quota left" in first.last_progress["note"]
        # It is not done while there is something to ask.
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
