"""Undo: the changes of a run are brought back by a run of its own, which the guard always holds."""

from dataclasses import replace
from typing import Any

import pytest
from psycopg import AsyncConnection

from hasat.errors import ConflictError
from hasat.feed.encoding import canonical
from hasat.feed.holds import get_hold
from hasat.feed.reconcile import Reconcile, Record
from hasat.jobs import Catalogue, Job, Outcome, Run, RunContext, run_in_foreground
from hasat.jobs.approvals import apply_hold
from hasat.jobs.platform_jobs import UNDO_JOB, undo_job
from hasat.settings import Settings
from hasat.store import Store
from support.feed_toys import TOYS, State, head_of, make_table, mirror, state_digest

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]


class Shop:
    """A shop that mirrors the states that the test gives it."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.store, self.settings = store, settings
        self.state: State = {}
        self.forgotten = 0
        self.dataset = replace(TOYS, forget_input=self._forget)
        stock = Job("stock_toys", self._stock, "toys", options={})
        self.catalogue = Catalogue.of([stock, undo_job([self.dataset])], settings)

    async def _forget(self, conn: AsyncConnection[Any]) -> None:
        self.forgotten += 1

    async def _stock(self, context: RunContext) -> Outcome:
        async with Reconcile.begin(context.store, [self.dataset]) as work:
            records = [Record(key, canonical(body)) for key, body in self.state.items()]
            await work.stage(self.dataset, records)
            counts = await work.diff(self.dataset)
            await work.write(run=context.run_id, retention_days=30)
        return Outcome(rows_changed=counts.total)

    async def stock(self, state: State) -> Run:
        self.state = state
        return await run_in_foreground(self.catalogue, self.store, self.settings, "stock_toys")

    async def undo(self, run: int) -> Run:
        return await run_in_foreground(
            self.catalogue, self.store, self.settings, UNDO_JOB, {"run": run}
        )

    async def approve(self, hold: int) -> Run:
        return await apply_hold(self.store, self.settings, self.catalogue, hold)


@pytest.fixture
async def shop(store: Store, settings: Settings) -> Shop:
    await make_table(store)
    return Shop(store, settings)


FIRST: State = {"bear": {"price": 1}, "car": {"price": 1.5}, "doll": {"price": 3}}
SECOND: State = {"bear": {"price": 2}, "doll": {"price": 3}, "kite": {"price": None}}


async def test_an_undo_is_held_and_its_approval_restores_the_state(shop: Shop) -> None:
    await shop.stock(FIRST)
    second = await shop.stock(SECOND)
    undo = await shop.undo(second.id)
    assert (undo.outcome, await mirror(shop.store)) == ("held", SECOND)
    hold = await get_hold(shop.store, undo.id)
    assert hold.preview["datasets"] == {
        "toys": {"added": 1, "modified": 1, "removed": 1, "total": 3}
    }
    assert shop.forgotten == 0
    applied = await shop.approve(hold.id)
    assert (applied.outcome, applied.rows_changed) == ("done", 3)
    assert await mirror(shop.store) == FIRST
    head = await head_of(shop.store)
    assert (head["seq"], head["digest"], shop.forgotten) == (6, state_digest(FIRST), 1)
    # An undo is a run like any other: it can be undone, too.
    again = await shop.approve((await shop.undo(applied.id)).id)
    assert (again.outcome, await mirror(shop.store)) == ("done", SECOND)


async def test_records_that_have_changed_again_keep_their_newer_state(shop: Shop) -> None:
    await shop.stock(FIRST)
    second = await shop.stock(SECOND)
    await shop.stock({**SECOND, "bear": {"price": 9}})
    hold = await shop.undo(second.id)
    await shop.approve(hold.id)
    assert await mirror(shop.store) == {**FIRST, "bear": {"price": 9}}
    assert (await shop.undo(second.id)).outcome == "nothing"


async def test_an_approval_of_another_effect_is_held_again(shop: Shop) -> None:
    await shop.stock(FIRST)
    second = await shop.stock(SECOND)
    hold = await shop.undo(second.id)
    changed: State = {**SECOND, "kite": {"price": 5}}
    await shop.stock(changed)
    with pytest.raises(ConflictError, match="does not wait"):
        await shop.approve(hold.id)
    assert await mirror(shop.store) == changed


@pytest.mark.parametrize("run", [1, 999])
async def test_a_run_without_stored_changes_cannot_be_undone(shop: Shop, run: int) -> None:
    first = await shop.stock(FIRST)
    assert first.id == 1
    refused = await shop.undo(run)
    assert refused.outcome == "failed"
    assert "changed nothing" in (refused.message or refused.error or "")
    assert await mirror(shop.store) == FIRST
