"""The simulator and the real job: lists fetched and synchronised, with each fault."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Any
from xml.sax.saxutils import unescape

import httpx2
import pytest

from hasat.errors import ConflictError, HasatError, UnavailableError
from hasat.feed.holds import reject_hold, remove_decided_inputs
from hasat.jobs import Outcome
from hasat.settings import Settings, load_settings
from hasat.sim import Simulation, simulate
from hasat.sources.gib.lists.errors import ArchiveError, EmptyListError
from hasat.sources.gib.simulator.lists import Publisher
from hasat.sources.gib.simulator.server import GIB, PATHS, SIX_HOURS
from hasat.sources.gib.simulator.taxpayers import Taxpayer
from hasat.sources.gib.sync.declaration import SYNC
from hasat.store import MigrationSet, Store, open_store
from hasat.testing.database import ThrowAwayDatabase
from hasat.testing.jobs import perform

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

MIGRATIONS = MigrationSet("gib", files("hasat.sources.gib") / "migrations")
KINDS = {"einvoice": "Invoice", "edespatch": "DespatchAdvice"}
USERS, SEED = 400, 5


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return [MIGRATIONS]


def simple_body(one: Taxpayer, kind: str) -> dict[str, Any] | None:
    """Return the expected body of a taxpayer, by a second, simple implementation."""
    earliest: dict[tuple[str, str], str] = {}
    for box, documents in (("PK", one.pk), ("GB", one.gb)):
        for alias in documents.get(kind, []):
            key = (alias.name.strip(), box)
            if alias.deleted is None:
                earliest[key] = min(alias.created, earliest.get(key, alias.created))
    if not earliest:
        return None
    return {
        "identifier": one.identifier,
        "title": unescape(one.title),
        "accountType": one.account_type,
        "type": one.type,
        "firstCreationTime": one.created,
        "aliases": [
            {"alias": name, "type": box, "creationTime": time}
            for (name, box), time in sorted(earliest.items())
        ],
    }


@dataclass
class Mirror:
    """A store that follows the simulator, and the number of steps so far."""

    simulation: Simulation
    store: Store
    settings: Settings
    steps: int = 0

    def __post_init__(self) -> None:
        self._runs = count(1)

    def next_step(self) -> None:
        self.steps += 1
        self.simulation.clock.advance(SIX_HOURS)

    async def sync(self) -> Outcome:
        return await perform(SYNC, self.store, self.settings, run_id=next(self._runs))

    async def holds(self, steps: int) -> bool:
        """Return whether both datasets match the lists after a number of steps."""
        publisher = Publisher(USERS, SEED)
        for _ in range(steps):
            publisher.step()
        everyone = list(publisher.taxpayers())
        async with self.store.connection() as conn:
            for dataset, kind in KINDS.items():
                rows = await (
                    await conn.execute(f"SELECT key, body FROM core.{dataset}")
                ).fetchall()
                bodies = {one.identifier: simple_body(one, kind) for one in everyone}
                if dict(rows) != {key: body for key, body in bodies.items() if body}:
                    return False
        return True


@asynccontextmanager
async def mirrored(
    database: ThrowAwayDatabase, home: Path, environ: dict[str, str] | None = None
) -> AsyncIterator[Mirror]:
    """Open a mirror after its first run."""
    simulation = Simulation(GIB, seed=SEED, options={"users": USERS})
    async with simulate(simulation) as address:
        settings = load_settings(
            environ={
                "HASAT_HOME": str(home),
                "HASAT_DATABASE_URL": database.url,
                "HASAT_GIB_PK_LIST_URL": address + PATHS["PK"],
                "HASAT_GIB_GB_LIST_URL": address + PATHS["GB"],
                **(environ or {}),
            }
        )
        async with open_store(settings, [MIGRATIONS]) as store:
            mirror = Mirror(simulation, store, settings)
            assert (await mirror.sync()).kind == "done"
            assert await mirror.holds(0)
            yield mirror


@pytest.fixture
async def mirror(database: ThrowAwayDatabase, tmp_path: Path) -> AsyncIterator[Mirror]:
    async with mirrored(database, tmp_path) as mirror:
        yield mirror


async def test_the_mirror_follows_each_step_with_conditional_requests(
    mirror: Mirror,
) -> None:
    for _ in range(3):
        mirror.next_step()
        outcome = await mirror.sync()
        assert outcome.kind == "done"
        assert await mirror.holds(mirror.steps)
        assert (await mirror.sync()).kind == "nothing"


async def test_a_different_order_is_not_a_change(mirror: Mirror) -> None:
    mirror.simulation.faults.switch_on("shuffled")
    for _ in range(2):
        assert (await mirror.sync()).kind == "nothing"


@pytest.mark.parametrize(
    ("fault", "which", "error"),
    [
        ("truncated", "pk", ArchiveError),
        ("truncated", "gb", ArchiveError),
        ("wrong-sizes", "pk", ArchiveError),
        ("empty", "gb", EmptyListError),
    ],
)
async def test_a_damaged_list_fails_changes_nothing_and_is_fetched_again(
    mirror: Mirror, fault: str, which: str, error: type[HasatError]
) -> None:
    mirror.next_step()
    mirror.simulation.faults.switch_on(fault, times=1, list=which)
    with pytest.raises(error, match=which.upper()):
        await mirror.sync()
    assert await mirror.holds(0)
    # Also if the damaged file had the ETag of the complete one.
    assert (await mirror.sync()).kind == "done"
    assert await mirror.holds(1)


@pytest.mark.parametrize("options", [{}, {"list": "gb"}])
async def test_half_a_list_is_held(mirror: Mirror, options: dict[str, Any]) -> None:
    mirror.next_step()
    mirror.simulation.faults.switch_on("half-list", **options)
    outcome = await mirror.sync()
    assert outcome.kind == "held"
    assert "fewer users" in (outcome.message or "")
    assert await mirror.holds(0)
    mirror.simulation.faults.switch_off()
    assert (await mirror.sync()).kind == "done"
    assert await mirror.holds(1)


async def test_lists_of_held_runs_are_stored_until_the_decision(
    mirror: Mirror,
) -> None:
    folder = mirror.settings.home / "held" / "gib"

    def waiting() -> list[str]:
        return sorted({path.name.partition("-")[0] for path in folder.iterdir()})

    mirror.simulation.faults.switch_on("half-list")
    for _ in range(3):
        mirror.next_step()
        assert (await mirror.sync()).kind == "held"
    # Without a decision, only the newest waits; workers remove what others left.
    await remove_decided_inputs(mirror.store, mirror.settings)
    assert waiting() == ["4"]
    with pytest.raises(ConflictError, match="superseded"):
        await reject_hold(mirror.store, mirror.settings, 2)
    await reject_hold(mirror.store, mirror.settings, 4)
    assert waiting() == []
    mirror.next_step()
    assert (await mirror.sync()).kind == "held"
    assert waiting() == ["5"]
    mirror.simulation.faults.switch_off()
    assert (await mirror.sync()).kind == "done"
    await remove_decided_inputs(mirror.store, mirror.settings)
    assert waiting() == []


async def test_a_missing_list_fails_with_its_name_and_changes_nothing(mirror: Mirror) -> None:
    mirror.next_step()
    mirror.simulation.faults.switch_on("gb-missing", times=1)
    with pytest.raises(UnavailableError, match="GB list responded 404"):
        await mirror.sync()
    assert await mirror.holds(0)
    assert (await mirror.sync()).kind == "done"
    assert await mirror.holds(1)


async def test_a_stale_list_is_followed_by_the_newest(mirror: Mirror) -> None:
    mirror.next_step()
    assert (await mirror.sync()).kind == "done"
    mirror.simulation.faults.switch_on("stale", list="pk")
    assert (await mirror.sync()).kind == "done"
    assert not await mirror.holds(1)
    mirror.simulation.faults.switch_off()
    mirror.next_step()
    assert (await mirror.sync()).kind == "done"
    assert await mirror.holds(2)


@pytest.mark.parametrize(("fault", "options"), [("reset", {}), ("error", {"status": 500})])
async def test_a_transient_fault_is_retried_within_the_run(
    mirror: Mirror, fault: str, options: dict[str, Any]
) -> None:
    mirror.next_step()
    mirror.simulation.faults.switch_on(fault, times=1, **options)
    assert (await mirror.sync()).kind == "done"
    assert await mirror.holds(1)


async def test_a_download_timeout_changes_nothing(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    environ = {"HASAT_GIB_DOWNLOAD_TIMEOUT": "00:00:02"}
    async with mirrored(database, tmp_path, environ) as mirror:
        mirror.next_step()
        mirror.simulation.faults.switch_on("slow", seconds=3)
        with pytest.raises(UnavailableError, match="did not arrive within 2 seconds"):
            await mirror.sync()
        assert await mirror.holds(0)
        mirror.simulation.faults.switch_off()
        assert (await mirror.sync()).kind == "done"
        assert await mirror.holds(1)


async def test_the_same_seed_publishes_the_same_bytes_at_every_step() -> None:
    found = []
    for _ in range(2):
        simulation = Simulation(GIB, seed=3, options={"users": 50, "every": 60})
        async with simulate(simulation) as address, httpx2.AsyncClient(base_url=address) as client:
            for _ in range(3):
                answer = await client.get(PATHS["PK"])
                found.append((answer.headers["etag"], answer.content))
                await client.post("/_sim/clock", json={"advance": 61})
    assert found[:3] == found[3:]
    assert len(set(found)) == 3


async def test_conditional_and_range_requests() -> None:
    simulation = Simulation(GIB, seed=3, options={"users": 50})
    async with simulate(simulation) as address, httpx2.AsyncClient(base_url=address) as client:
        whole = await client.get(PATHS["GB"])
        for name, mark in (("if-none-match", "etag"), ("if-modified-since", "last-modified")):
            again = await client.get(PATHS["GB"], headers={name: whole.headers[mark]})
            assert (again.status_code, again.content) == (304, b"")
        asking = {"range": "bytes=100-", "if-range": whole.headers["etag"]}
        rest = await client.get(PATHS["GB"], headers=asking)
        assert (rest.status_code, rest.content) == (206, whole.content[100:])


async def test_downloaded_lists_are_stored_verbatim_and_each_request_is_in_the_ledger(
    mirror: Mirror,
) -> None:
    mirror.next_step()
    await mirror.sync()
    mirror.next_step()
    mirror.simulation.faults.switch_on("half-list")
    assert (await mirror.sync()).kind == "held"
    async with mirror.store.connection() as conn:
        cursor = await conn.execute(
            "SELECT dataset, sha256 = sha256(content), applied_at IS NOT NULL"
            " FROM raw.response ORDER BY id"
        )
        stored = await cursor.fetchall()
        cursor = await conn.execute("SELECT upstream, count(*) FROM budget.request GROUP BY 1")
        ledger = await cursor.fetchall()
    assert all(is_verbatim for _, is_verbatim, _ in stored)
    for name in ("gib_pk_list", "gib_gb_list"):
        *earlier, held = [applied for dataset, _, applied in stored if dataset == name]
        assert earlier
        assert all(earlier)
        assert not held
    assert ledger == [("gib", 6)]
