"""Look up current records by key: lookups that wait at the same time share one statement."""

import asyncio
from collections.abc import Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from psycopg import sql

from hasat.feed.changes import is_filled, no_data_error
from hasat.feed.dataset import Dataset
from hasat.store import Store
from hasat.store.queries import load_query

_MAX_SHARED_KEYS = 1000


class CurrentRecord(NamedTuple):
    """A record as stored: its body as JSON text, and its digest in hex."""

    body: str
    digest: str


@dataclass(frozen=True)
class CurrentRecords:
    """Records by key, as of the newest commit."""

    records: Mapping[str, CurrentRecord]
    committed_at: datetime


class RecordLookup:
    """Looks up records of one dataset in a process that serves many requests at a time."""

    def __init__(self, store: Store, dataset: Dataset) -> None:
        self._store = store
        self._dataset = dataset.name
        query = sql.SQL(load_query("hasat.feed", "current_records")).format(table=dataset.table)
        # Composed once: psycopg composes a query again for each execution.
        self._query = query.as_bytes()
        self._statement = self._query.replace(b"%(dataset)s", b"$1").replace(b"%(keys)s", b"$2")
        self._is_filled = False
        self._waiting: list[tuple[str, asyncio.Future[CurrentRecords]]] = []
        self._running: asyncio.Task[None] | None = None

    async def find(self, keys: Sequence[str]) -> CurrentRecords:
        """Return the current records with these keys, in a statement of their own."""
        await self.check_filled()
        values = {"dataset": self._dataset, "keys": keys}
        head, *rows = await self._store.read(self._query, values)
        committed_at: datetime | None = head[3]
        if committed_at is None:
            raise no_data_error(self._dataset)
        records = {key: CurrentRecord(body, digest) for key, body, digest, _ in rows}
        return CurrentRecords(records, committed_at)

    async def _find_waiting(self, keys: Sequence[str]) -> CurrentRecords:
        """Return the current records with these keys, in the statement that lookups share."""
        await self.check_filled()
        values = self._dataset.encode(), _array(keys)
        (*_, committed_at), *rows = await self._store.read_texts(self._statement, values)
        if committed_at is None:
            raise no_data_error(self._dataset)
        records = {
            key.decode(): CurrentRecord(body.decode(), digest.decode())
            for key, body, digest, _ in rows
            if key is not None and body is not None and digest is not None
        }
        return CurrentRecords(records, _moment(committed_at))

    async def check_filled(self) -> None:
        """Raise if the dataset has no data yet: its table is locked while it is loaded first."""
        if self._is_filled:
            return
        async with self._store.connection() as conn:
            if not await is_filled(conn, self._dataset):
                raise no_data_error(self._dataset)
        self._is_filled = True

    async def find_one(self, key: str) -> tuple[CurrentRecord | None, datetime]:
        """Return the current record with this key, and the time of the newest commit.

        While a statement runs, lookups that arrive wait for the next one, which answers them all.
        It begins after each of them, so that none gets a state older than its request.
        """
        found: asyncio.Future[CurrentRecords] = asyncio.get_running_loop().create_future()
        self._waiting.append((key, found))
        if self._running is None:
            # In a context of its own, because it answers many requests.
            self._running = asyncio.create_task(
                self._answer_all(), name=f"lookups of {self._dataset}", context=Context()
            )
        current = await found
        return current.records.get(key), current.committed_at

    async def _answer_all(self) -> None:
        try:
            while batch := self._waiting[:_MAX_SHARED_KEYS]:
                del self._waiting[:_MAX_SHARED_KEYS]
                await self._answer(batch)
        finally:
            self._running = None

    async def _answer(self, batch: list[tuple[str, asyncio.Future[CurrentRecords]]]) -> None:
        try:
            current = await self._find_waiting([key for key, _ in batch])
        except Exception as error:  # noqa: BLE001 - it is raised where it is awaited
            for _, found in batch:
                if not found.done():
                    found.set_exception(error)
        except asyncio.CancelledError:
            for _, found in (*batch, *self._waiting):
                found.cancel()
            raise
        else:
            for _, found in batch:
                if not found.done():
                    found.set_result(current)


def _array(texts: Sequence[str]) -> bytes:
    """Return an array as PostgreSQL reads it."""
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return ("{" + ",".join(f'"{text}"' for text in quoted) + "}").encode()


@lru_cache(maxsize=16)
def _moment(text: bytes) -> datetime:
    return datetime.fromisoformat(text.decode())


class RecordLookups:
    """The lookups of one store, by dataset; they read from its standby if it has one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._by_name: dict[str, RecordLookup] = {}

    @property
    def store(self) -> Store:
        return self._store.reads

    def of(self, dataset: Dataset) -> RecordLookup:
        """Return the lookup that all requests share."""
        found = self._by_name.get(dataset.name)
        if found is None:
            found = self._by_name[dataset.name] = RecordLookup(self.store, dataset)
        return found
