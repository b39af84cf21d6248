"""Changes as tables: the pages of a feed and the history of a record as CSV, XLSX and Parquet."""

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from psycopg import AsyncConnection

from hasat.api.exports import Table, TableFormat
from hasat.api.routes.datasets import BODY, has_body
from hasat.api.routes.feed_pages import fetch_page
from hasat.api.routes.feed_requests import MAX_PAGE_SIZE, FeedRequest
from hasat.feed.changes import Change, Page
from hasat.feed.columns import CHANGED_AT, KEY, Column
from hasat.feed.cursor import Cursor
from hasat.feed.dataset import Dataset
from hasat.feed.records import project_bodies
from hasat.store import Store

_OWN = (Column("seq", "integer"), Column("changeType"), CHANGED_AT, KEY)
_CURSOR = Column("cursor")


def change_table(dataset: Dataset, format_: TableFormat, *, with_cursor: bool = True) -> Table:
    """Return the columns of a table of changes; a removed record has no values."""
    body = (BODY,) if has_body(dataset, format_) else ()
    cursor = (_CURSOR,) if with_cursor else ()
    columns = (*_OWN, *dataset.columns, *body, *cursor)
    return Table(f"{dataset.name}-changes", columns, verbatim=frozenset({_CURSOR.name}))


async def change_cells(
    conn: AsyncConnection[Any], dataset: Dataset, changes: Sequence[Change], table: Table
) -> list[list[Any]]:
    """Return changes whose bodies are JSON texts as rows of a table, without a cursor."""
    bodies = [(change.key, change.body) for change in changes]
    return [
        [
            *(change.seq, change.kind, change.changed_at, change.key),
            *values,
            *([change.body] if BODY in table.columns else []),
        ]
        for change, values in zip(changes, await project_bodies(conn, dataset, bodies), strict=True)
    ]


async def change_pages(
    store: Store, dataset: Dataset, request: FeedRequest, page: Page, table: Table
) -> AsyncIterator[Sequence[Sequence[Any]]]:
    """Yield the rows from the first page to the head, or to the limit of the request."""
    left = request.limit
    while True:
        shown = [change for change in page.changes if _is_wanted(request, change)]
        async with store.connection() as conn:
            rows = await change_cells(conn, dataset, shown, table)
        yield [
            [*row, str(Cursor(dataset.name, page.epoch, change.seq))]
            for row, change in zip(rows, shown, strict=True)
        ]
        left = None if left is None else left - len(page.changes)
        if page.up_to_date or left == 0:
            return
        request = replace(request, after=page.next)
        page = await fetch_page(store, dataset, request, min(left or MAX_PAGE_SIZE, MAX_PAGE_SIZE))


def _is_wanted(request: FeedRequest, change: Change) -> bool:
    """Return whether a change, whose bodies are JSON texts, is of the requested kind and field."""
    if request.kind not in (None, change.kind):
        return False
    if request.field is None:
        return True
    path = request.field.split(".")
    return bool(_at(change.before, path) != _at(change.body, path))


def _at(body: str | None, path: Sequence[str]) -> Any:
    value = None if body is None else json.loads(body)
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value
