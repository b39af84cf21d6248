"""Undo: bring the records that a run changed back to the state before it.

The guard always holds an undo, so that its effect is seen before it is applied. A record that a
later run has changed again keeps the later state.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from hasat.errors import ConflictError, NotFoundError
from hasat.feed.dataset import Dataset, Scope
from hasat.feed.encoding import Chunk, canonical, pack
from hasat.feed.guard import Limits, measure_changes
from hasat.feed.holds import check_guard
from hasat.feed.reconcile import Reconcile, Version
from hasat.messages import msg
from hasat.store import Store
from hasat.store.queries import load_query

_PACKAGE = "hasat.feed"
_BATCH = 5_000
# Longer than any dataset is old: an undo lets no change expire.
_EVERYTHING_DAYS = 36_500
_ANY_CHANGE = Limits(removed=0.0, modified=0.0, added=0.0)


@dataclass(frozen=True)
class Effect:
    """The versions of one dataset that a run committed, and the changes in them."""

    dataset: Dataset
    versions: Sequence[int]
    after: int
    until: int

    @property
    def values(self) -> dict[str, Any]:
        return {
            "dataset": self.dataset.name,
            "versions": list(self.versions),
            "after": self.after,
            "until": self.until,
        }


async def undo_run(
    store: Store,
    datasets: Sequence[Dataset],
    undone: int,
    *,
    run: int,
    approving: int | None = None,
) -> Version | None:
    """Undo the changes of a run; return None if all its records have changed again since.

    Raises GuardError with the effect unless `approving` is the hold of this undo.
    """
    effects = await _find_effects(store, datasets, undone)
    affected = [one.dataset for one in effects]
    async with Reconcile.begin(store, affected) as work:
        for effect in effects:
            await _stage(work, effect, undone)
        if not any(count.total for count in work.counts.values()):
            return None
        await check_guard(
            work, affected, measure_changes(work.counts, _ANY_CHANGE), approving=approving
        )
        for dataset in affected:
            if dataset.forget_input is not None:
                await dataset.forget_input(work.connection)
        return await work.write(run=run, retention_days=_EVERYTHING_DAYS, approving=approving)


async def _find_effects(store: Store, datasets: Sequence[Dataset], run: int) -> list[Effect]:
    """Return what a run changed; raise if it changed nothing or its changes are not stored."""
    known = {dataset.name: dataset for dataset in datasets}
    async with store.connection() as conn:
        cursor = await conn.execute(load_query(_PACKAGE, "effects_of_run"), {"run": run})
        rows = await cursor.fetchall()
    if not rows:
        raise NotFoundError(msg("Run {run} changed nothing that could be undone.", run=run))
    for name, _, _, _, is_stored in rows:
        if name not in known or not is_stored:
            raise ConflictError(
                msg("The changes of run {run} in {dataset} have expired.", run=run, dataset=name)
            )
    return [Effect(known[name], versions, low, high) for name, versions, low, high, _ in rows]


async def _stage(work: Reconcile, effect: Effect, run: int) -> None:
    conn, dataset = work.connection, effect.dataset
    before = sql.Identifier(f"undo_{dataset.name}")
    await conn.execute(
        sql.SQL(load_query(_PACKAGE, "states_before_run")).format(before=before), effect.values
    )

    async def chunks() -> AsyncIterator[Chunk]:
        async with conn.cursor(f"undo_{dataset.name}") as cursor:
            await cursor.execute(
                sql.SQL("SELECT key, body FROM {} WHERE body IS NOT NULL").format(before)
            )
            while rows := await cursor.fetchmany(_BATCH):
                yield pack([(key, canonical(body)) for key, body in rows])

    await work.stage_chunks(dataset, chunks())
    where = sql.SQL("m.key IN (SELECT key FROM {} WHERE body IS NULL)").format(before)
    await work.diff(dataset, Scope({"undo": run}, where))
