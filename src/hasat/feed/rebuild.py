"""Rebuild mirrors from a recomputed state, whatever happened to their tables.

Consumers have what was published, so the published state decides, not the tables:

- the new state is the published one: the table is repaired where it differs, without a change;
- it is not, but the table is the published state: the difference is published as changes;
- neither: the dataset starts a new epoch, and consumers start over from an archive.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Literal

from psycopg import sql

from hasat.errors import HeldError
from hasat.feed.cursor import Head
from hasat.feed.dataset import WHOLE, Dataset
from hasat.feed.encoding import EMPTY, Chunk, shift, weight
from hasat.feed.guard import Counts, Limits, share
from hasat.feed.reconcile import Put, Reconcile, lock_heads, staged_table
from hasat.messages import msg
from hasat.store.queries import load_query

_NO_CHANGES = Counts()

How = Literal["intact", "mended", "changed", "anew"]


@dataclass(frozen=True)
class RebuildResult:
    """What became of one dataset: how many rows were mended, or which changes were published."""

    dataset: str
    how: How
    records: int
    digest: bytes
    mended: int = 0
    changes: Counts = _NO_CHANGES


class StagedRebuild:
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

    async def finish(
        self, *, run: int | None, retention_days: int, force: bool
    ) -> list[RebuildResult]:
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
    ) -> RebuildResult:
        head = self._work.heads[dataset.name]
        records, total = self._records[dataset.name], self._weights[dataset.name]
        digest = shift(EMPTY, total)
        if head.version is None and not records:
            return RebuildResult(dataset.name, "intact", 0, digest)
        if head.version is not None and (records, digest) == (head.records, head.digest):
            mended = await self._mend(dataset)
            return RebuildResult(
                dataset.name, "mended" if mended else "intact", records, digest, mended
            )
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
        return RebuildResult(dataset.name, how, records, digest, mended, changes)

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


# A piece is small and every table may be large: whatever statistics say, keys are looked up.
_BY_KEY = "SELECT " + ", ".join(
    f"set_config('enable_{way}', 'off', true)" for way in ("hashjoin", "mergejoin", "seqscan")
)
_PIECE = sql.Identifier("piece")


class DiffersFromPublishedError(Exception):
    """What was put down is not what was published, or not all of what the tables hold."""


class InPlaceRepair:
    """The published states of some datasets, put down chunk by chunk.

    The datasets' heads are locked by the Reconcile whose transaction this is.
    """

    def __init__(self, work: Reconcile, datasets: Sequence[Dataset]) -> None:
        self._work = work
        self._datasets = {dataset.name: dataset for dataset in datasets}
        self._records = dict.fromkeys(self._datasets, 0)
        self._weights = dict.fromkeys(self._datasets, 0)
        self._mended = dict.fromkeys(self._datasets, 0)

    async def open(self) -> None:
        await self._work.connection.execute(_BY_KEY)
        query = sql.SQL(load_query("hasat.feed", "stage")).format(staged=_PIECE)
        await self._work.connection.execute(query)

    async def add(self, name: str, chunk: Chunk) -> None:
        dataset = self._datasets[name]
        if self._work.never_filled(dataset):
            raise DiffersFromPublishedError
        await self._work.copy(_PIECE, chunk)
        query = sql.SQL(load_query("hasat.feed", "mend")).format(table=dataset.table, staged=_PIECE)
        done = await self._work.connection.execute(query, {"dataset": name})
        await self._work.connection.execute(sql.SQL("TRUNCATE {}").format(_PIECE))
        self._mended[name] += done.rowcount
        self._records[name] += chunk.records
        self._weights[name] += chunk.weight

    async def finish(self) -> list[RebuildResult]:
        """What became of each dataset, once all was put down."""
        return [await self._result(dataset) for dataset in self._datasets.values()]

    async def _result(self, dataset: Dataset) -> RebuildResult:
        name = dataset.name
        head, records = self._work.heads[name], self._records[name]
        digest = shift(EMPTY, self._weights[name])
        query = sql.SQL("SELECT count(*) FROM {}").format(dataset.table)
        [there] = await (await self._work.connection.execute(query)).fetchone() or [0]
        if (records, digest, there) != (head.records, head.digest, head.records):
            raise DiffersFromPublishedError
        how: How = "mended" if self._mended[name] else "intact"
        return RebuildResult(name, how, records, digest, self._mended[name])
