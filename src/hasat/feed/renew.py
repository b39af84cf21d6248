"""Renew: make mirrors equal to a state that was computed anew, whatever happened to their tables.

What followers have is what was published, so that decides, not what the tables hold:

- the new state is the published one: the table is mended where it differs, and nobody notices;
- it is not, but the table is the published state: the difference is published as changes;
- neither: the dataset begins anew, in a new epoch, and followers start over from an archive.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Literal

from psycopg import sql

from hasat.errors import HeldError
from hasat.feed.copying import Chunk
from hasat.feed.dataset import WHOLE, Dataset
from hasat.feed.digest import EMPTY, shift, weight
from hasat.feed.guard import Counts, Limits, share
from hasat.feed.head import Head
from hasat.feed.reconcile import Put, Reconcile, lock_heads, staged_table
from hasat.messages import msg
from hasat.store.queries import load_query

_NO_CHANGES = Counts()

How = Literal["intact", "mended", "changed", "anew"]


@dataclass(frozen=True)
class Renewed:
    """What became of one dataset: how many rows were mended, or which changes were published."""

    dataset: str
    how: How
    records: int
    digest: bytes
    mended: int = 0
    changes: Counts = _NO_CHANGES


class Renewal:
    """The states of some datasets, put down chunk by chunk, then made to count.

    The datasets' heads are locked by the Reconcile whose transaction this is.
    """

    def __init__(self, work: Reconcile, datasets: Sequence[Dataset]) -> None:
        self._work = work
        self._datasets = {dataset.name: dataset for dataset in datasets}
        self._stages = AsyncExitStack()
        self._put: dict[str, Put] = {}
        self._records = dict.fromkeys(self._datasets, 0)
        self._weights = dict.fromkeys(self._datasets, 0)

    async def open(self) -> None:
        for name, dataset in self._datasets.items():
            stage = self._work.staging(dataset)
            self._put[name] = await self._stages.enter_async_context(stage)

    async def add(self, name: str, chunk: Chunk) -> None:
        await self._put[name](chunk)
        self._records[name] += chunk.records
        self._weights[name] += chunk.weight

    async def finish(self, *, run: int | None, retention_days: int, force: bool) -> list[Renewed]:
        """Make the datasets equal to what was put down, in the transaction that goes on.

        Unless forced, a HeldError says that far less was put down than was published.
        """
        await self._stages.aclose()
        return [
            await self._renew(dataset, run, retention_days, force=force)
            for dataset in self._datasets.values()
        ]

    async def _renew(
        self, dataset: Dataset, run: int | None, retention_days: int, *, force: bool
    ) -> Renewed:
        head = self._work.heads[dataset.name]
        records, total = self._records[dataset.name], self._weights[dataset.name]
        digest = shift(EMPTY, total)
        if head.version is None and not records:
            return Renewed(dataset.name, "intact", 0, digest)
        if head.version is not None and (records, digest) == (head.records, head.digest):
            mended = await self._mend(dataset)
            return Renewed(dataset.name, "mended" if mended else "intact", records, digest, mended)
        if head.version is not None and await self._is_published(dataset, head):
            alone = Reconcile(self._work.connection, [dataset], {dataset.name: head})
            changes = await alone.diff(dataset, WHOLE)
            _check(dataset, head, changes.removed, force=force)
            how: How = "changed"
        else:
            _check(dataset, head, max(0, head.records - records), force=force)
            alone = await self._begin_anew(dataset, head, records, total)
            changes, how = Counts(added=records), "anew"
        await alone.write(run=run, retention_days=retention_days)
        # A body may be wrong where its digest is not.
        mended = await self._mend(dataset) if how == "changed" else 0
        return Renewed(dataset.name, how, records, digest, mended, changes)

    async def _mend(self, dataset: Dataset) -> int:
        surplus = await self._execute("drop_surplus", dataset)
        return surplus + await self._execute("mend", dataset)

    async def _is_published(self, dataset: Dataset, head: Head) -> bool:
        """Whether the table is what its head says."""
        total = records = 0
        async with self._work.connection.cursor(f"weigh_all_{dataset.name}") as cursor:
            cursor.itersize = 10_000
            await cursor.execute(sql.SQL("SELECT key, digest FROM {}").format(dataset.table))
            async for key, digest in cursor:
                records += 1
                total += weight(key, digest)
        return (records, shift(EMPTY, total)) == (head.records, head.digest)

    async def _begin_anew(
        self, dataset: Dataset, head: Head, records: int, total: int
    ) -> Reconcile:
        conn = self._work.connection
        await conn.execute(sql.SQL("DELETE FROM {}").format(dataset.table))
        heads = {dataset.name: head}
        if head.version is not None:
            await self._execute("new_life", dataset)
            heads = await lock_heads(conn, [dataset])
        alone = Reconcile(conn, [dataset], heads)
        query = sql.SQL(load_query("hasat.feed", "fill"))
        at = await self._work.moment([dataset])
        await conn.execute(
            query.format(table=dataset.table, staged=staged_table(dataset)), {"at": at}
        )
        alone.note_filled(dataset, records, total)
        return alone

    async def _execute(self, name: str, dataset: Dataset) -> int:
        query: Any = sql.SQL(load_query("hasat.feed", name)).format(
            table=dataset.table, staged=staged_table(dataset)
        )
        cursor = await self._work.connection.execute(query, {"dataset": dataset.name})
        return cursor.rowcount


def _check(dataset: Dataset, head: Head, gone: int, *, force: bool) -> None:
    percent = share(gone, head.records)
    if percent > Limits().removed and not force:
        raise HeldError(
            msg(
                "{dataset} would lose {gone:,} of {records:,} records ({percent:.1f} %): "
                "what it is made of again says far less than what was published. Nothing "
                "was changed.",
                dataset=dataset.name,
                gone=gone,
                records=head.records,
                percent=percent,
            ),
            remedy=msg("See whether answers are missing; to go on all the same, use --force."),
        )
