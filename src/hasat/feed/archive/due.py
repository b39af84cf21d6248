"""Which datasets need an archive now, and which could not be archived."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from psycopg import AsyncConnection

from hasat.store import Store
from hasat.store.queries import load_query

_PACKAGE = "hasat.feed.archive"
_MAX_ERROR = 500


async def due_datasets(
    conn: AsyncConnection[Any], datasets: Sequence[str], min_interval: timedelta
) -> list[str]:
    """Return the datasets whose newest archive is missing or behind and may be written now."""
    cursor = await conn.execute(
        load_query(_PACKAGE, "due"), {"datasets": list(datasets), "min_interval": min_interval}
    )
    return [dataset for (dataset,) in await cursor.fetchall()]


async def note_failure(store: Store, dataset: str, error: str) -> None:
    """Store that an archive could not be written; the next attempt waits longer."""
    async with store.connection() as conn:
        await conn.execute(
            load_query(_PACKAGE, "note_failure"), {"dataset": dataset, "error": error[:_MAX_ERROR]}
        )


async def forget_failure(store: Store, dataset: str) -> None:
    """Delete what is stored of an earlier failure."""
    async with store.connection() as conn:
        await conn.execute("DELETE FROM feed.archive_failure WHERE dataset = %s", [dataset])


async def failures(conn: AsyncConnection[Any]) -> dict[str, str]:
    """Return the datasets that cannot be archived, with the reason."""
    cursor = await conn.execute("SELECT dataset, error FROM feed.archive_failure ORDER BY dataset")
    return dict(await cursor.fetchall())
