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
from hasat.feed.reconcile import ChunkWriter, Reconcile, lock_heads, staged_table
from hasat.messages import msg
from hasat.store.queries import load_query

_NO_CHANGES = Counts()

Method = Literal["intact", "repaired", "changed", "new_epoch"]


@dataclass(frozen=True)
class RebuildResult:
    """The result for one dataset: the rows that were repaired, or the changes published."""

    dataset: str
    how: Method
    records: int
    digest: bytes
    repaired: int = 0
    changes: Counts = _NO_CHANGES


class StagedRebuild:
    """A rebuild that stages the recomputed states of some datasets before it applies them.

    It runs in the transaction of a Reconcile, which holds the locks on the heads.
    """

    def __init__(self, work: Reconcile, datasets: Sequence[Dataset]) -> None:
        self._work = work
        self._datasets = {dataset.name: dataset for dataset in datasets}
        self._stages = AsyncExitStack()
        self._writers: dict[str, ChunkWriter] = {}
        self._records = dict.fromkeys(self._datasets, 0)
        self._weights = dict.fromkeys(self._datasets, 0)

    async def open(self) -> None:
        for name, dataset in self._datasets.items():
            stage = self._work.staging(dataset)
            self._writers[name] = await self._stages.enter_async_context(stage)

    async def add(self, name: str, chunk: Chunk) -> None:
        await self._writers[name](chunk)
        self._records[name] += chunk.records
        self._weights[name] += chunk.weight

    async def finish(
        self, *, run: int | None, retention_days: int, force: bool
    ) -> list[RebuildResult]:
        """Make the datasets equal to the staged states, in the same transaction.

        Raises HeldError if a dataset would lose too many records, unless forced.
        """
        await self._stages.aclose()
        return [
            await self._apply(dataset, run, retention_days, force=force)
            for dataset in self._datasets.values()
        ]

    async def _apply(
        self, dataset: Dataset, run: int | None, retention_days: int, *, force: bool
    ) -> RebuildResult:
        head = self._work.heads[dataset.name]
        records, total = self._records[dataset.name], self._weights[dataset.name]
        digest = shift(EMPTY, total)
        if head.version is None and not records:
            return RebuildResult(dataset.name, "intact", 0, digest)
        if head.version is not None and (records, digest) == (head.records, head.digest):
            repaired = await self._repair(dataset)
            return RebuildResult(
                dataset.name, "repaired" if repaired else "intact", records, digest, repaired
            )
        if head.version is not None and await self._is_published(dataset, head):
            alone = Reconcile(self._work.connection, [dataset], {dataset.name: head})
            changes = await alone.diff(dataset, WHOLE)
            _check(dataset, head, changes.removed, force=force)
            how: Method = "changed"
        else:
            _check(dataset, head, max(0, head.records - records), force=force)
            alone = await self._start_new_epoch(dataset, head, records, total)
            changes, how = Counts(added=records), "new_epoch"
        await alone.write(run=run, retention_days=retention_days)
        # A body may be damaged although its digest is right.
        repaired = await self._repair(dataset) if how == "changed" else 0
        return RebuildResult(dataset.name, how, records, digest, repaired, changes)

    async def _repair(self, dataset: Dataset) -> int:
        surplus = await self._execute("drop_surplus", dataset)
        return surplus + await self._execute("repair", dataset)

    async def _is_published(self, dataset: Dataset, head: Head) -> bool:
        """Return whether the table matches its head."""
        total = records = 0
        async with self._work.connection.cursor(f"weigh_all_{dataset.name}") as cursor:
            cursor.itersize = 10_000
            await cursor.execute(sql.SQL("SELECT key, digest FROM {}").format(dataset.table))
            async for key, digest in cursor:
                records += 1
                total += weight(key, digest)
        return (records, shift(EMPTY, total)) == (head.records, head.digest)

    async def _start_new_epoch(
        self, dataset: Dataset, head: Head, records: int, total: int
    ) -> Reconcile:
        conn = self._work.connection
        await conn.execute(sql.SQL("DELETE FROM {}").format(dataset.table))
        heads = {dataset.name: head}
        if head.version is not None:
            await self._execute("start_epoch", dataset)
            heads = await lock_heads(conn, [dataset])
        alone = Reconcile(conn, [dataset], heads)
        query = sql.SQL(load_query("hasat.feed", "fill"))
        at = await self._work.commit_time([dataset])
        await conn.execute(
            query.format(table=dataset.table, staged=staged_table(dataset)), {"at": at}
        )
        alone.record_load(dataset, records, total)
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
                "{dataset} would lose {gone:,} of {records:,} records ({percent:.1f} %): the "
                "stored responses contain far less than was published. Nothing was changed.",
                dataset=dataset.name,
                gone=gone,
                records=head.records,
                percent=percent,
            ),
            remedy=msg("Check whether stored responses are missing; --force applies it anyway."),
        )


# A chunk is small and the tables may be large: look keys up, whatever the statistics suggest.
_BY_KEY = "SELECT " + ", ".join(
    f"set_config('enable_{way}', 'off', true)" for way in ("hashjoin", "mergejoin", "seqscan")
)
_CHUNK_TABLE = sql.Identifier("chunk")


class DiffersFromPublishedError(Exception):
    """The recomputed state or the table differs from the published state."""


class InPlaceRepair:
    """A repair of tables while the state is still being recomputed.

    That the recomputed state is the published one is the usual case, but known only at the end. If
    it is not, `finish` raises DiffersFromPublishedError, and the caller rolls back to the beginning
    and uses a StagedRebuild. It runs in the transaction of a Reconcile, which locks the heads.
    """

    def __init__(self, work: Reconcile, datasets: Sequence[Dataset]) -> None:
        self._work = work
        self._datasets = {dataset.name: dataset for dataset in datasets}
        self._records = dict.fromkeys(self._datasets, 0)
        self._weights = dict.fromkeys(self._datasets, 0)
        self._repaired = dict.fromkeys(self._datasets, 0)

    async def open(self) -> None:
        await self._work.connection.execute(_BY_KEY)
        query = sql.SQL(load_query("hasat.feed", "stage")).format(staged=_CHUNK_TABLE)
        await self._work.connection.execute(query)

    async def add(self, name: str, chunk: Chunk) -> None:
        dataset = self._datasets[name]
        if self._work.is_empty(dataset):
            raise DiffersFromPublishedError
        await self._work.copy(_CHUNK_TABLE, chunk)
        query = sql.SQL(load_query("hasat.feed", "repair")).format(
            table=dataset.table, staged=_CHUNK_TABLE
        )
        done = await self._work.connection.execute(query, {"dataset": name})
        await self._work.connection.execute(sql.SQL("TRUNCATE {}").format(_CHUNK_TABLE))
        self._repaired[name] += done.rowcount
        self._records[name] += chunk.records
        self._weights[name] += chunk.weight

    async def finish(self) -> list[RebuildResult]:
        """Return the result for each dataset after the last chunk."""
        return [await self._result(dataset) for dataset in self._datasets.values()]

    async def _result(self, dataset: Dataset) -> RebuildResult:
        name = dataset.name
        head, records = self._work.heads[name], self._records[name]
        digest = shift(EMPTY, self._weights[name])
        query = sql.SQL("SELECT count(*) FROM {}").format(dataset.table)
        [there] = await (await self._work.connection.execute(query)).fetchone() or [0]
        if (records, digest, there) != (head.records, head.digest, head.records):
            raise DiffersFromPublishedError
        how: Method = "repaired" if self._repaired[name] else "intact"
        return RebuildResult(name, how, records, digest, self._repaired[name])
