"""Holds of any source: one open hold per dataset, decided once, with its own input."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from hasat.api.app import create_app
from hasat.deliver.events import publish_holds
from hasat.errors import ConflictError, NotFoundError
from hasat.feed.encoding import canonical
from hasat.feed.guard import Limits, measure_changes
from hasat.feed.holds import check_guard, get_hold, list_holds, reject_hold
from hasat.feed.reconcile import Reconcile, Record
from hasat.jobs import Catalogue, Job, Outcome, Run, RunContext, Worker, run_in_foreground
from hasat.jobs.approvals import apply_hold, queue_approval
from hasat.jobs.runs import get_run
from hasat.mcp.tools import PlatformTools
from hasat.settings import Settings
from hasat.source import Source, ToolContext
from hasat.store import Store
from hasat.store.audit import Actor, audited
from support.feed_toys import TOYS, State, head_of, make_table, mirror

pytestmark = pytest.mark.anyio


async def _stock(context: RunContext) -> Outcome:
    """Mirror the toys of a file; the shop's published list is whatever is in it now."""
    if context.approving is not None:
        async with context.inputs() as files:
            return await _load(context, files["toys"])
    path = Path(context.params["path"])
    return await _load(context, path, {"toys": path})


async def _load(
    context: RunContext, path: Path, inputs: dict[str, Path | bytes] | None = None
) -> Outcome:
    state: State = json.loads(path.read_text())
    async with Reconcile.begin(context.store, [TOYS]) as work:
        await work.stage(TOYS, [Record(key, canonical(body)) for key, body in state.items()])
        counts = await work.diff(TOYS)
        measures = measure_changes({TOYS.name: counts}, Limits())
        await check_guard(work, [TOYS], measures, approving=context.approving, inputs=inputs)
        await work.write(run=context.run_id, retention_days=30, approving=context.approving)
    return Outcome(rows_changed=counts.total)


STOCK = Job("stock_toys", _stock, "toys", options={"path": str}, source="toy_shop")
SHOP = Source("toy_shop", "A toy shop", datasets=(TOYS,), jobs=(STOCK,))


class Shop:
    """A toy shop whose list the test publishes."""

    def __init__(self, store: Store, settings: Settings, folder: Path) -> None:
        self.store = store
        self.settings = settings
        self.catalogue = Catalogue.of([STOCK], settings)
        self.list = folder / "toys.json"

    async def publish(self, count: int, price: int = 1) -> Run:
        """Publish that many toys, and mirror them."""
        toys = {f"toy-{number}": {"price": price} for number in range(count)}
        self.list.write_text(json.dumps(toys))
        return await self.mirror()

    async def mirror(self) -> Run:
        return await run_in_foreground(
            self.catalogue, self.store, self.settings, STOCK.name, {"path": str(self.list)}
        )

    async def approve(self, hold: int) -> Run:
        return await apply_hold(self.store, self.settings, self.catalogue, hold)

    async def toys(self) -> int:
        return len(await mirror(self.store))

    def stored(self) -> list[Path]:
        return [path for path in (self.settings.home / "held").rglob("*") if path.is_file()]


@pytest.fixture
async def shop(store: Store, settings: Settings, tmp_path: Path) -> Shop:
    await make_table(store)
    shop = Shop(store, settings, tmp_path)
    assert (await shop.publish(100)).outcome == "done"
    return shop


@pytest.fixture
def app(shop: Shop) -> FastAPI:
    return create_app(shop.settings, shop.store, shop.catalogue, (SHOP,))


async def test_a_held_run_changes_nothing_until_its_own_input_is_approved(shop: Shop) -> None:
    run = await shop.publish(40)
    assert (run.outcome, await shop.toys()) == ("held", 100)
    [hold] = await list_holds(shop.store)
    assert (hold.id, hold.state, hold.source, hold.datasets) == (
        run.id,
        "waiting",
        "toy_shop",
        ["toys"],
    )
    assert hold.preview["datasets"] == {
        "toys": {"added": 0, "modified": 0, "removed": 60, "total": 40}
    }
    assert len(hold.preview["examples"]["toys"]["removed"]) == 5
    shop.list.write_text("{}")
    async with audited(
        shop.store, Actor("ayse", "cli", "here"), "hold.approve", reason="moved out"
    ):
        applied = await shop.approve(run.id)
    assert (applied.outcome, await shop.toys()) == ("done", 40), applied
    hold = await get_hold(shop.store, run.id)
    assert (hold.state, hold.decided_by, hold.reason) == ("approved", "ayse", "moved out")
    assert hold.decided_at is not None
    assert shop.stored() == []
    with pytest.raises(ConflictError, match="approved"):
        await shop.approve(run.id)
    with pytest.raises(ConflictError, match="approved"):
        await reject_hold(shop.store, shop.settings, run.id)


async def test_the_same_finding_joins_the_open_hold_and_another_supersedes_it(
    shop: Shop,
) -> None:
    first = await shop.publish(40)
    second = await shop.mirror()
    assert second.outcome == "held"
    [hold] = await list_holds(shop.store)
    assert (hold.id, hold.runs) == (first.id, [first.id, second.id])
    assert await get_hold(shop.store, second.id) == hold
    assert len(shop.stored()) == 1
    third = await shop.publish(30)
    newest, old = await list_holds(shop.store)
    assert (newest.id, newest.state) == (third.id, "waiting")
    assert (old.id, old.state) == (first.id, "superseded")
    assert len(shop.stored()) == 1
    with pytest.raises(ConflictError, match="superseded"):
        await shop.approve(first.id)
    assert (await shop.publish(99)).outcome == "done"
    assert {hold.state for hold in await list_holds(shop.store)} == {"superseded"}
    assert shop.stored() == []


async def test_an_unchanged_run_leaves_a_hold_open(shop: Shop) -> None:
    held = await shop.publish(40)
    assert (await shop.publish(100)).outcome == "done"
    assert (await get_hold(shop.store, held.id)).state == "waiting"
    assert (await shop.approve(held.id)).outcome == "done"
    assert await shop.toys() == 40


async def test_an_approval_lifts_only_its_own_hold(shop: Shop) -> None:
    held = await shop.publish(40)
    assert (await shop.approve(held.id)).outcome == "done"
    assert (await shop.publish(10)).outcome == "held"
    assert await shop.toys() == 40


async def test_changed_input_is_not_applied(shop: Shop) -> None:
    held = await shop.publish(40)
    [path] = shop.stored()
    path.write_text(path.read_text().replace("toy-1", "toy-x"))
    applied = await shop.approve(held.id)
    assert applied.outcome == "failed"
    assert "SHA-256" in (applied.message or "")
    assert await shop.toys() == 100
    assert (await get_hold(shop.store, held.id)).state == "waiting"


async def test_lost_input_is_named_and_the_hold_can_still_be_rejected(shop: Shop) -> None:
    held = await shop.publish(40)
    [path] = shop.stored()
    path.unlink()
    applied = await shop.approve(held.id)
    assert applied.outcome == "failed"
    assert "stored input toys" in (applied.message or "")
    assert "Reject the held run" in (applied.message or "")
    assert await shop.toys() == 100
    assert (await reject_hold(shop.store, shop.settings, held.id)).state == "rejected"


async def test_approvals_at_the_same_time_apply_a_hold_once(shop: Shop) -> None:
    held = await shop.publish(40)
    before = await head_of(shop.store)
    done = await asyncio.gather(*(shop.approve(held.id) for _ in range(3)), return_exceptions=True)
    outcomes = [one.outcome for one in done if isinstance(one, Run)]
    assert outcomes.count("done") == 1, done
    assert set(outcomes) <= {"done", "skipped", "failed"}
    assert all(isinstance(one, Run | ConflictError) for one in done), done
    assert (await get_hold(shop.store, held.id)).state == "approved"
    assert (await head_of(shop.store))["seq"] == before["seq"] + 60


async def test_a_guard_error_of_a_job_without_input_is_a_hold_too(shop: Shop) -> None:
    async def fetch(context: RunContext) -> Outcome:
        return await _load(context, shop.list)

    job = Job("fetch_toys", fetch, "toys", source="toy_shop")
    catalogue = Catalogue.of([job], shop.settings)
    shop.list.write_text(json.dumps({"toy-1": {"price": 1}}))
    run = await run_in_foreground(catalogue, shop.store, shop.settings, job.name)
    assert run.outcome == "held"
    # What is read again may be something else than what was approved.
    shop.list.write_text("{}")
    other = await apply_hold(shop.store, shop.settings, catalogue, run.id)
    assert (other.outcome, await shop.toys()) == ("held", 100)
    assert (await get_hold(shop.store, run.id)).state == "superseded"
    assert (await apply_hold(shop.store, shop.settings, catalogue, other.id)).outcome == "done"
    assert await shop.toys() == 0


async def test_each_held_run_is_published_once(shop: Shop) -> None:
    held = await shop.publish(40)
    await publish_holds(shop.store)
    await publish_holds(shop.store)
    async with shop.store.connection() as conn:
        cursor = await conn.execute("SELECT kind, payload FROM deliver.event")
        [(kind, payload)] = await cursor.fetchall()
    assert (kind, payload["Run"], payload["RemovalCount"]) == (
        "RemovalGuardTriggered",
        held.id,
        60,
    )


async def test_the_api_lists_and_decides_holds(shop: Shop, client: httpx2.AsyncClient) -> None:
    held = await shop.publish(40)
    [listed] = (await client.get("/api/v1/holds", params={"state": "waiting"})).json()["holds"]
    assert listed == (await client.get(f"/api/v1/holds/{held.id}")).json()
    assert (listed["id"], listed["state"]) == (held.id, "waiting")
    health = (await client.get("/health")).json()
    assert (health["status"], health["checks"]["holds"]["status"]) == ("Degraded", "Degraded")
    assert "Needs approval" in health["checks"]["holds"]["description"]
    queued = await client.post(f"/api/v1/holds/{held.id}/approve", json={"reason": "checked"})
    assert queued.status_code == 202, queued.text
    run = queued.json()["id"]
    assert queued.headers["location"] == f"/api/v1/runs/{run}"
    worker = Worker(shop.catalogue, shop.store, shop.settings, poll_seconds=0.05)
    async with asyncio.timeout(30):
        task = asyncio.create_task(worker.run())
        while True:
            if (await get_run(shop.store, run)).state == "finished":
                break
            await asyncio.sleep(0.05)
        worker.drain()
        await task
    assert (await get_run(shop.store, run)).outcome == "done"
    assert await shop.toys() == 40
    shown: dict[str, Any] = (await client.get(f"/api/v1/holds/{held.id}")).json()
    assert (shown["state"], shown["reason"]) == ("approved", "checked")
    assert "holds" not in (await client.get("/health")).json()["checks"]
    assert (await client.post(f"/api/v1/holds/{held.id}/reject")).status_code == 409
    assert (await client.get("/api/v1/holds/999")).status_code == 404
    again = await shop.publish(10)
    rejected = await client.post(f"/api/v1/holds/{again.id}/reject", json={"reason": "half"})
    assert (rejected.status_code, rejected.json()["state"]) == (200, "rejected")
    assert shop.stored() == []


async def test_approvals_of_one_hold_at_the_same_time_are_one_run(
    shop: Shop, client: httpx2.AsyncClient
) -> None:
    held = await shop.publish(40)
    path = f"/api/v1/holds/{held.id}/approve"
    answers = await asyncio.gather(*(client.post(path) for _ in range(5)))
    assert [one.status_code for one in answers] == [202] * 5
    assert len({one.json()["id"] for one in answers}) == 1


async def test_a_job_does_not_accept_an_approval_as_a_parameter(
    shop: Shop, client: httpx2.AsyncClient
) -> None:
    held = await shop.publish(40)
    refused = await client.post(
        f"/api/v1/jobs/{STOCK.name}/runs", json={"params": {"approve": held.id}}
    )
    assert refused.status_code == 400, refused.text


async def test_tools_list_and_decide_holds(shop: Shop) -> None:
    held = await shop.publish(40)
    tools = PlatformTools(ToolContext(shop.store, shop.settings, shop.catalogue), [SHOP])
    [listed] = (await tools.list_holds()).items
    assert [listed] == (await tools.show_hold(held.id)).items
    decided = await tools.approve_hold(held.id)
    assert decided.queued_run is not None
    assert (await tools.reject_hold(held.id)).state == "rejected"
    with pytest.raises(ConflictError, match="rejected"):
        await queue_approval(shop.store, shop.catalogue, held.id)
    with pytest.raises(NotFoundError):
        await tools.approve_hold(999)
    assert (await tools.list_holds()).items == []
    assert len((await tools.list_holds(waiting=False)).items) == 1
