"""Watch sets: the keys that a dataset of one request per record follows."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import class_row

from hasat.feed.dataset import Dataset
from hasat.store import Store
from hasat.store.quarantine import storable
from hasat.store.queries import load_query

_PACKAGE = "hasat.strategies"
_RETRY = timedelta(hours=1)
"""The earliest repetition of a failed attempt, unless records are to be newer than that."""


@dataclass(frozen=True)
class WatchedKey:
    """A key of a watch set; `outcome` is that of the last attempt."""

    key: str
    added_at: datetime
    attempted_at: datetime | None
    checked_at: datetime | None
    outcome: str | None


async def add_keys(store: Store, dataset: Dataset, keys: Collection[str]) -> int:
    """Add keys to the watch set; return how many are new. Raise for one that cannot be a key."""
    dataset.check_keys(keys)
    for key in keys:
        storable(key)
    return await _change(store, "add_keys", dataset, keys)


async def remove_keys(store: Store, dataset: Dataset, keys: Collection[str]) -> int:
    """Remove keys from the watch set; return how many were there. Their records stay."""
    return await _change(store, "remove_keys", dataset, keys)


async def read_keys(store: Store, dataset: Dataset) -> list[WatchedKey]:
    """Return the watch set of a dataset."""
    async with (
        store.connection() as conn,
        conn.cursor(row_factory=class_row(WatchedKey)) as cursor,
    ):
        await cursor.execute(load_query(_PACKAGE, "watched_keys"), {"dataset": dataset.name})
        return await cursor.fetchall()


async def due_keys(store: Store, dataset: Dataset, max_age: timedelta, limit: int) -> list[str]:
    """Return the keys to request next, the one with the oldest attempt first."""
    values = {"dataset": dataset.name, "max_age": max_age, "retry": _RETRY, "limit": limit}
    async with store.connection() as conn:
        cursor = await conn.execute(load_query(_PACKAGE, "due_keys"), values)
        return [key for (key,) in await cursor.fetchall()]


async def note_attempt(
    conn: AsyncConnection[Any], dataset: Dataset, key: str, outcome: str
) -> None:
    """Record the outcome of a request for a key, in the caller's transaction."""
    values = {"dataset": dataset.name, "key": key, "outcome": outcome}
    await conn.execute(load_query(_PACKAGE, "note_attempt"), values)


async def _change(store: Store, query: str, dataset: Dataset, keys: Collection[str]) -> int:
    async with store.connection() as conn:
        cursor = await conn.execute(
            load_query(_PACKAGE, query), {"dataset": dataset.name, "keys": list(keys)}
        )
        return cursor.rowcount
