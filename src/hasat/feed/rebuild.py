"""Rebuild mirrors from a recomputed state, whatever happened to their tables.

Consumers have what was published, so the published state decides, not the tables:

- the new state is the published one: the table is repaired where it differs, without a change;
- it is not, but the table is the published state: the difference is published as changes;
- neither: the dataset starts a new epoch, and consumers start over from an archive.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from psycopg import sql

from hasat.feed.cursor import Head
from hasat.feed.dataset import WHOLE, Dataset
from hasat.feed.encoding import EMPTY, Chunk, shift, weight
from hasat.feed.guard import Counts, measure_removals
from hasat.feed.holds import Examples, check_guard, key_examples
from hasat.feed.reconcile import ChunkWriter, Reconcile, lock_heads, staged_table
from hasat.settings import Settings
from hasat.store import Store
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


@dataclass(frozen=True)
class RebuildSummary:
    """The responses read, the result for each dataset, and the records of requests restored."""

    responses: int
    unreadable: int
    datasets: list[RebuildResult]
    restored: int = 0


OnResponses = Callable[[int], Awaitable[None]]
"""Receives the number of responses that were read."""


class Rebuild(Protocol):
    """Recomputes a dataset from the stored responses of its upstream, without a request.

    Datasets that are made of the same responses are rebuilt together. The guard holds a rebuild
    that would remove too much; `approving` is the hold to lift.
    """

    async def __call__(
        self,
        store: Store,
        settings: Settings,
        dataset: Dataset,
        *,
        run: int | None = None,
        approving: int | None = None,
        on_progress: OnResponses | None = None,
    ) -> RebuildSummary: ...


@dataclass(frozen=True)
class _Plan:
    """The task for one dataset; without a reconcile, its table is repaired at most."""

    dataset: Dataset
    head: Head
    how: Method
    changes: Counts = _NO_CHANGES
    reconcile: Reconcile | None = None


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
        self, *, run: int | None, retention_days: int, approving: int | None
    ) -> list[RebuildResult]:
        """Make the datasets equal to the staged states, in the same transaction.

        Raises GuardError if a dataset would lose too many records; `approving` lifts that hold.
        """
        await self._stages.aclose()
        plans = [await self._plan(dataset) for dataset in self._datasets.values()]
        await self._check(plans, approving)
        return [await self._apply(plan, run, retention_days, approving) for plan in plans]

    async def _plan(self, dataset: Dataset) -> _Plan:
        head = self._work.heads[dataset.name]
        records, digest = self._state(dataset)
        if head.version is None and not records:
            return _Plan(dataset, head, "intact")
        if head.version is not None and (records, digest) == (head.records, head.digest):
            return _Plan(dataset, head, "repaired")
        if head.version is not None and await self._is_published(dataset, head):
            alone = Reconcile(self._work.connection, [dataset], {dataset.name: head})
            return _Plan(dataset, head, "changed", await alone.diff(dataset, WHOLE), alone)
        changes = Counts(added=records, records=head.records)
        if head.records > records:
            changes = Counts(removed=head.records - records, records=head.records)
        return _Plan(dataset, head, "new_epoch", changes)

    async def _check(self, plans: Sequence[_Plan], approving: int | None) -> None:
        changed = {plan.dataset.name: plan for plan in plans if plan.changes.total}
        self._work.counts |= {name: plan.changes for name, plan in changed.items()}

        async def examples(dataset: Dataset) -> Examples:
            reconcile = changed[dataset.name].reconcile
            return {} if reconcile is None else await key_examples(reconcile, dataset)

        await check_guard(
            self._work,
            [plan.dataset for plan in changed.values()],
            [
                measure
                for name, plan in changed.items()
                for measure in measure_removals(
                    name, plan.changes.removed, plan.head.records, plan.dataset.guard
                )
            ],
            approving=approving,
            examples=examples,
        )

    async def _apply(
        self, plan: _Plan, run: int | None, retention_days: int, approving: int | None
    ) -> RebuildResult:
        dataset = plan.dataset
        records, digest = self._state(dataset)
        if plan.how == "intact":
            return RebuildResult(dataset.name, "intact", 0, digest)
        if plan.how == "repaired":
            repaired = await self._repair(dataset)
            how: Method = "repaired" if repaired else "intact"
            return RebuildResult(dataset.name, how, records, digest, repaired)
        changes, alone = plan.changes, plan.reconcile
        if alone is None:
            alone = await self._start_new_epoch(
                dataset, plan.head, records, self._weights[dataset.name]
            )
            changes = Counts(added=records)
        await alone.write(run=run, retention_days=retention_days, approving=approving)
        # A body may be damaged although its digest is right.
        repaired = await self._repair(dataset) if plan.how == "changed" else 0
        return RebuildResult(dataset.name, plan.how, records, digest, repaired, changes)

    def _state(self, dataset: Dataset) -> tuple[int, bytes]:
        """Return the number of records and the digest of the staged state."""
        return self._records[dataset.name], shift(EMPTY, self._weights[dataset.name])

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
        heads = {dataset.name: head}
        if head.version is not None:
            await self._execute("start_epoch", dataset)
            heads = await lock_heads(conn, [dataset])
        at = await self._work.commit_time([dataset])
        if head.version is not None:
            await self._execute(
                "end_states", dataset, at=at, seq=head.seq, version=head.version, floor=head.floor
            )
        await conn.execute(sql.SQL("DELETE FROM {}").format(dataset.table))
        await self._execute("fill", dataset, at=at)
        alone = Reconcile(conn, [dataset], heads)
        alone.record_load(dataset, records, total)
        return alone

    async def _execute(self, name: str, dataset: Dataset, **values: Any) -> int:
        query: Any = sql.SQL(load_query("hasat.feed", name)).format(
            table=dataset.table, staged=staged_table(dataset)
        )
        cursor = await self._work.connection.execute(query, {"dataset": dataset.name, **values})
        return cursor.rowcount


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
