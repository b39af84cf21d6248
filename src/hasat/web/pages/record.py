"""Record: one record with its labelled fields and its history."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection, sql

from hasat.feed.changes import history
from hasat.feed.dataset import Dataset
from hasat.pages import Page, PageRequest
from hasat.pages.differences import ChangeRow, describe_change
from hasat.web.pages.changes import readable_dataset

_MAX_SIMILAR = 20


@dataclass(frozen=True)
class RecordPage:
    """One record with its stored history, newest first."""

    dataset: str
    source: str
    key: str
    title: str | None
    body: Any
    """None if the record does not exist now."""
    first_seen_at: datetime | None
    changed_at: datetime | None
    history: Sequence[ChangeRow]
    similar: Sequence[str]
    """Keys with the same beginning, if no record has this key."""
    is_listed: bool
    """Whether the page of records shows the dataset."""


async def record(request: PageRequest) -> RecordPage:
    """Load one record by its key."""
    dataset, key = readable_dataset(request, request.text("dataset")), request.text("key")
    async with request.store.connection() as conn:
        found = await conn.execute(
            sql.SQL("SELECT body, first_seen_at, changed_at FROM {} WHERE key = %s").format(
                dataset.table
            ),
            [key],
        )
        row = await found.fetchone()
        changes = await history(conn, dataset, key)
        similar = [] if row or changes or not key else await _similar_keys(conn, dataset, key)
    body, first_seen_at, changed_at = row or (None, None, None)
    last = body if body is not None or not changes else changes[-1].before
    return RecordPage(
        dataset=dataset.name,
        source=dataset.source,
        key=key,
        title=dataset.title_of(last),
        body=body,
        first_seen_at=first_seen_at,
        changed_at=changed_at,
        history=[describe_change(one) for one in reversed(changes)],
        similar=similar,
        is_listed=dataset.listed,
    )


async def _similar_keys(conn: AsyncConnection[Any], dataset: Dataset, key: str) -> list[str]:
    pattern = key.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
    names = await conn.execute(
        sql.SQL("SELECT key FROM {} WHERE key LIKE %s ORDER BY key LIMIT %s").format(dataset.table),
        [pattern, _MAX_SIMILAR],
    )
    return [one for (one,) in await names.fetchall()]


PAGES = (Page("/changes/record", "record", record, "records", datasets=()),)
