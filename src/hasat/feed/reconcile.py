"""Reconcile: compare the records of a run with the mirror and write numbered changes.

    async with Reconcile.begin(store, datasets) as work:     # locks the heads: one writer
        await work.stage(dataset, records)                   # the records of the run
        counts = await work.diff(dataset, scope)             # the changes they would make
        ...the guard checks the counts; raising here changes nothing...
        version = await work.write(run=..., retention_days=30)
    # committed: mirror, changes, heads, floors and version together

The first load of a whole dataset writes no change per record: consumers start from an archive.
"""

import json
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from psycopg import AsyncConnection, AsyncCursor, sql
from psycopg.errors import UniqueViolation
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from hasat.errors import ConflictError, HasatError
from hasat.feed.changes import KINDS, Kind
from hasat.feed.cursor import Head
from hasat.feed.dataset import WHOLE, Dataset, Scope
from hasat.feed.encoding import Chunk, copy_binary, pack, shift, weight
from hasat.feed.guard import Counts
from hasat.messages import msg
from hasat.store import Store
from hasat.store.queries import load_query

CHANNEL = "hasat_feed"

_BATCH = 5_000

ChunkWriter = Callable[[Chunk], Awaitable[None]]
"""Writes rows of one dataset."""


class BusyError(ConflictError):
    """Another run is working on the same datasets."""

    code = "busy"


class Record(NamedTuple):
    """A record of a run: its key and its canonical JSON body."""

    key: str
    body: bytes


@dataclass(frozen=True)
class Version:
    """One committed reconcile."""

    id: int
    committed_at: datetime
    counts: dict[str, Counts]
    heads: dict[str, int]

    @property
    def changed(self) -> bool:
        return any(count.total for count in self.counts.values())


class Reconcile:
    """One transaction on some datasets of one source."""

    def __init__(
        self, conn: AsyncConnection[Any], datasets: Sequence[Dataset], heads: dict[str, Head]
    ) -> None:
        self.connection = conn
        self.heads = heads
        self._datasets = {dataset.name: dataset for dataset in datasets}
        self.counts: dict[str, Counts] = {}
        self._weights: dict[str, int] = {}
        self._scopes: dict[str, Any] = {}
        self._loaded: set[str] = set()

    @classmethod
    @asynccontextmanager
    async def begin(
        cls, store: Store, datasets: Sequence[Dataset], *, unless_locked: int | None = None
    ) -> AsyncIterator["Reconcile"]:
        """Lock the heads of the datasets, in the order of their names, until the end.

        `unless_locked` names an advisory lock: while another writer holds it, this raises BusyError
        at once instead of waiting. It is a hint; only the locks on the heads exclude writers.
        """
        async with store.connection() as conn:
            if unless_locked is not None:
                await _claim(conn, unless_locked)
            yield cls(conn, datasets, await lock_heads(conn, datasets))

    def is_empty(self, dataset: Dataset) -> bool:
        return self.heads[dataset.name].version is None

    async def stage(self, dataset: Dataset, records: Iterable[Record]) -> None:
        """Stage the records of the run; a repeated key is an error of the source."""

        async def chunks() -> AsyncIterator[Chunk]:
            remaining = iter(records)
            while batch := list(islice(remaining, _BATCH)):
                yield pack(batch)

        await self.stage_chunks(dataset, chunks())

    async def stage_chunks(self, dataset: Dataset, chunks: AsyncIterable[Chunk]) -> None:
        """Stage rows that are already packed."""
        async with self.staging(dataset) as put:
            async for chunk in chunks:
                await put(chunk)

    @asynccontextmanager
    async def staging(self, dataset: Dataset) -> AsyncIterator[ChunkWriter]:
        """Stage chunk by chunk, so that several datasets can be staged in turns."""
        staged = staged_table(dataset)
        await self._execute("stage", staged=staged)
        yield partial(self.copy, staged)
        try:
            await self.connection.execute(
                sql.SQL("ALTER TABLE {} ADD PRIMARY KEY (key)").format(staged)
            )
        except UniqueViolation as error:
            raise HasatError(
                msg(
                    "The run has a repeated key in {dataset}: {message_detail}",
                    dataset=dataset.name,
                    message_detail=error.diag.message_detail,
                )
            ) from error
        await self.connection.execute(sql.SQL("ANALYZE {}").format(staged))

    async def diff(
        self, dataset: Dataset, scope: Scope = WHOLE, protected: Iterable[str] = ()
    ) -> Counts:
        """Compute the changes; keys in `protected` are not removed although they are absent."""
        head = self.heads[dataset.name]
        changes = _temporary("changes", dataset)
        await self._execute(
            "diff",
            {"head": head.seq, "protected": list(protected), **scope.values},
            changes=changes,
            staged=staged_table(dataset),
            table=dataset.table,
            scope=scope.where or sql.SQL("true"),
        )
        kinds = {1: 0, 2: 0, 3: 0}
        moved = 0
        async with self.connection.cursor(f"weigh_{dataset.name}") as cursor:
            cursor.itersize = 10_000
            await cursor.execute(
                sql.SQL("SELECT kind, key, digest, digest_before FROM {}").format(changes)
            )
            async for kind, key, digest, digest_before in cursor:
                kinds[kind] += 1
                if digest is not None:
                    moved += weight(key, digest)
                if digest_before is not None:
                    moved -= weight(key, digest_before)
        counts = Counts(kinds[1], kinds[2], kinds[3], head.records)
        self._record(dataset, counts, moved, scope)
        return counts

    async def removed_keys(self, dataset: Dataset) -> list[str]:
        """Return the keys that `diff` found to be removed."""
        query = sql.SQL("SELECT key FROM {} WHERE kind = 3 ORDER BY key")
        cursor = await self.connection.execute(query.format(_temporary("changes", dataset)))
        return [key for (key,) in await cursor.fetchall()]

    def exclude_dataset(self, dataset: Dataset) -> None:
        """Write no version of a dataset that was only locked as a precaution."""
        del self._datasets[dataset.name]

    def scope_of(self, dataset: Dataset) -> Mapping[str, Any]:
        """Return the description of the scope that this run covers."""
        scope: Mapping[str, Any] = self._scopes.get(dataset.name, WHOLE.description)
        return scope

    async def examples(
        self, dataset: Dataset, limit: int, among: sql.Composable | None = None
    ) -> dict[Kind, list[tuple[str, Any]]]:
        """Return a few changes of each kind with their keys and bodies."""
        found = {}
        for number, kind in KINDS.items():
            cursor = await self._execute(
                "examples",
                {"kind": number, "limit": limit},
                changes=_temporary("changes", dataset),
                among=among or sql.SQL("true"),
            )
            found[kind] = await cursor.fetchall()
        return found

    @asynccontextmanager
    async def loading(self, dataset: Dataset) -> AsyncIterator[ChunkWriter]:
        """Load an empty dataset straight from binary COPY rows, chunk by chunk.

        The table has no readers before its first version, so it may be locked. Because it is
        truncated in this transaction, PostgreSQL need not log every row. Triggers see the TRUNCATE
        and not the rows: a source updates what it derives from them after the commit.
        """
        assert self.is_empty(dataset)
        records = moved = 0

        async def put(chunk: Chunk) -> None:
            nonlocal records, moved
            await self.copy(dataset.table, chunk)
            records += chunk.records
            moved += chunk.weight

        primary_key = sql.Identifier(f"{dataset.name}_pkey")
        await self.connection.execute(sql.SQL("TRUNCATE {}").format(dataset.table))
        await self.connection.execute(
            sql.SQL("ALTER TABLE {} DISABLE TRIGGER USER").format(dataset.table)
        )
        await self.connection.execute(
            sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}").format(dataset.table, primary_key)
        )
        yield put
        await self.connection.execute(
            sql.SQL("ALTER TABLE {} ADD CONSTRAINT {} PRIMARY KEY (key)").format(
                dataset.table, primary_key
            )
        )
        await self.connection.execute(
            sql.SQL("ALTER TABLE {} ENABLE TRIGGER USER").format(dataset.table)
        )
        self.record_load(dataset, records, moved)

    def record_load(self, dataset: Dataset, records: int, weight: int) -> None:
        """Record that this transaction loaded the whole dataset."""
        self._loaded.add(dataset.name)
        self._record(dataset, Counts(added=records), weight, WHOLE)

    async def write(
        self, *, run: int | None, retention_days: int, approving: int | None = None
    ) -> Version:
        """Apply all changes and move the heads; effective when the block ends.

        A dataset without a diff is recorded as unchanged. `approving` is the hold that the run
        applies; open holds about a scope that the run changes are superseded.
        """
        source = next(iter(self._datasets.values())).source
        at = await self.commit_time(list(self._datasets.values()))
        version = await self._value(
            "add_version",
            {"run": run, "source": source, "scope": Jsonb(self._scopes), "at": at},
        )
        seqs = {}
        for name, dataset in self._datasets.items():
            seqs[name] = await self._write_one(dataset, version, at, retention_days)
        changed = {name: scope for name, scope in self._scopes.items() if self.counts[name].total}
        await self._execute("close_holds", {"approving": approving, "changed": Jsonb(changed)})
        await self.connection.execute(
            "SELECT pg_notify(%s, %s)", (CHANNEL, json.dumps(seqs, separators=(",", ":")))
        )
        return Version(version, at, dict(self.counts), seqs)

    async def commit_time(self, datasets: Sequence[Dataset]) -> datetime:
        """Return the commit time of a new version: later than that of every earlier one."""
        at: datetime = await self._value(
            "commit_time", {"datasets": [dataset.name for dataset in datasets]}
        )
        return at

    async def _write_one(
        self, dataset: Dataset, version: int, at: datetime, retention_days: int
    ) -> int:
        head = self.heads[dataset.name]
        counts = self.counts.setdefault(dataset.name, Counts(records=head.records))
        first = self.is_empty(dataset) and self._scopes.get(dataset.name) == WHOLE.description
        if dataset.name in self._loaded or not counts.total:
            seq = head.seq
        elif first:
            seq = head.seq
            await self._execute(
                "fill", {"at": at}, table=dataset.table, staged=staged_table(dataset)
            )
        else:
            seq = head.seq + counts.total
            await self._execute(
                "apply",
                {"dataset": dataset.name, "version": version, "at": at},
                table=dataset.table,
                changes=_temporary("changes", dataset),
            )
        state = {
            "dataset": dataset.name,
            "epoch": head.epoch,
            "version": version,
            "at": at,
            "seq_before": head.seq,
            "seq": seq,
            "added": counts.added,
            "modified": counts.modified,
            "removed": counts.removed,
            "records": head.records + counts.added - counts.removed,
            "digest": shift(head.digest, self._weights.get(dataset.name, 0)),
            "retention_days": retention_days,
        }
        await self._execute("add_version_dataset", state)
        floor = await self._value("move_head", state)
        if floor > head.floor:
            await self._execute("drop_old_changes", {"dataset": dataset.name, "floor": floor})
        return seq

    async def copy(self, table: sql.Identifier, chunk: Chunk) -> None:
        """Copy rows into a table."""
        columns = sql.SQL("COPY {} (key, body, digest) FROM STDIN (FORMAT BINARY)").format(table)
        await copy_binary(self.connection, columns, chunk.rows)

    def _record(self, dataset: Dataset, counts: Counts, moved: int, scope: Scope) -> None:
        self.counts[dataset.name] = counts
        self._weights[dataset.name] = moved
        self._scopes[dataset.name] = scope.description

    async def _execute(
        self, name: str, values: dict[str, Any] | None = None, **parts: sql.Composable
    ) -> AsyncCursor[Any]:
        query = sql.SQL(load_query("hasat.feed", name)).format(**parts)
        return await self.connection.execute(query, values)

    async def _value(self, name: str, values: dict[str, Any]) -> Any:
        row = await (await self._execute(name, values)).fetchone()
        assert row is not None
        return row[0]


async def lock_heads(conn: AsyncConnection[Any], datasets: Sequence[Dataset]) -> dict[str, Head]:
    """Lock the heads until the transaction ends; create that of a new dataset."""
    heads = {}
    for dataset in sorted(datasets, key=lambda dataset: dataset.name):
        await conn.execute(
            "INSERT INTO feed.head (dataset, source) VALUES (%s, %s) ON CONFLICT DO NOTHING",
            (dataset.name, dataset.source),
        )
        async with conn.cursor(row_factory=class_row(Head)) as cursor:
            await cursor.execute(
                f"{load_query('hasat.feed', 'head')} FOR UPDATE", {"dataset": dataset.name}
            )
            head = await cursor.fetchone()
            assert head is not None
            heads[dataset.name] = head
    return heads


async def _claim(conn: AsyncConnection[Any], lock: int) -> None:
    row = await (await conn.execute("SELECT pg_try_advisory_xact_lock(%s)", [lock])).fetchone()
    if row is None or not row[0]:
        raise BusyError(msg("Another run is working on the same datasets; this one is not needed."))


def staged_table(dataset: Dataset) -> sql.Identifier:
    return _temporary("staged", dataset)


def _temporary(what: str, dataset: Dataset) -> sql.Identifier:
    return sql.Identifier(f"{what}_{dataset.name}")
