"""A small dataset to try the feed with, and a second, simple notion of what it must do."""

from typing import Any

from hasat.feed.dataset import WHOLE, Dataset, Scope
from hasat.feed.encoding import EMPTY, canonical, record_digest, shift, weight
from hasat.feed.reconcile import Reconcile, Record, Version
from hasat.store import Store

TOYS = Dataset("toys", "toy_shop", "toys, for tests")

State = dict[str, dict[str, Any]]


async def make_table(store: Store, dataset: Dataset = TOYS) -> None:
    async with store.connection() as conn:
        await conn.execute(f"CREATE TABLE core.{dataset.name} (LIKE feed.record INCLUDING ALL)")
        await conn.execute(f"ALTER TABLE core.{dataset.name} ADD PRIMARY KEY (key)")


async def run(
    store: Store,
    state: State,
    *,
    scope: Scope = WHOLE,
    protected: tuple[str, ...] = (),
    retention_days: int = 30,
    dataset: Dataset = TOYS,
    run_id: int | None = None,
) -> Version:
    """One run that saw exactly this state."""
    async with Reconcile.begin(store, [dataset]) as work:
        await work.stage(dataset, [Record(key, canonical(body)) for key, body in state.items()])
        await work.diff(dataset, scope, protected)
        return await work.write(run=run_id, retention_days=retention_days)


async def mirror(store: Store, dataset: Dataset = TOYS) -> State:
    async with store.connection() as conn:
        rows = await (await conn.execute(f"SELECT key, body FROM core.{dataset.name}")).fetchall()
    return dict(rows)


async def head_of(store: Store, dataset: Dataset = TOYS) -> dict[str, Any]:
    async with store.connection() as conn:
        cursor = await conn.execute(
            "SELECT seq, floor, records, digest, epoch FROM feed.head WHERE dataset = %s",
            [dataset.name],
        )
        row = await cursor.fetchone()
    assert row is not None
    return dict(zip(("seq", "floor", "records", "digest", "epoch"), row, strict=True))


def state_digest(state: State) -> bytes:
    """The state digest, recomputed from scratch."""
    digest = EMPTY
    for key, body in state.items():
        digest = shift(digest, weight(key, record_digest(canonical(body))))
    return digest
