"""Routes of every dataset: lists by declared columns and single records, in every format.

A source's own route wins where it has the same path.
"""

import re
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from psycopg import AsyncConnection
from starlette.responses import Response, StreamingResponse

from hasat.api.exports import MEDIA, Format, Table, declare_formats, export, requested_format
from hasat.api.routes.feed_requests import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE
from hasat.clock import local_time, parse_local_time
from hasat.errors import NotFoundError, UnavailableError, UsageError
from hasat.feed.changes import ExpiredError, head_of, record_as_of
from hasat.feed.columns import CHANGED_AT, FIRST_SEEN_AT, KEY, Column
from hasat.feed.cursor import Head
from hasat.feed.dataset import Dataset
from hasat.feed.encoding import canonical, record_digest
from hasat.feed.records import (
    Place,
    Row,
    Selection,
    count_records,
    filter_names,
    find_record,
    list_records,
    parse_selection,
    project_bodies,
)
from hasat.http.receipts import ReceiptFlag, answer_with_receipt
from hasat.http.routes import (
    ReadStoreDep,
    StorableText,
    conditional_json_response,
    declare_responses,
    dumps,
)
from hasat.messages import msg
from hasat.store import Store

_PARAMETER = re.compile(r"\{[^}]*\}")
_OPENAPI: dict[str, dict[str, str]] = {
    "text": {"type": "string"},
    "integer": {"type": "integer", "format": "int64"},
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
    "date": {"type": "string", "format": "date"},
    "timestamp": {"type": "string"},
}
_COMPARISONS = {
    "": "Equal to this value.",
    "gte": "This value or greater.",
    "lte": "This value or smaller.",
    "prefix": "Beginning with this text.",
}
BODY = Column("body", "text")
_RECORD = {
    "key": "147",
    "body": {"name": "…"},
    "seq": 12,
    "firstSeenAt": "2026-02-19T10:00:00.000000",
    "changedAt": "2026-02-19T10:00:00.000000",
}

FormatDep = Annotated[Format, Depends(requested_format)]


@dataclass(frozen=True)
class ListRequest:
    """A request for a list of records."""

    selection: Selection
    limit: int | None
    after: Place | None
    total: bool
    format: Format


def dataset_router(dataset: Dataset, taken: Collection[str]) -> APIRouter:
    """Return the list and lookup of a dataset, without the paths that other routes have."""
    router = APIRouter(prefix=f"/{dataset.name}", tags=[dataset.name])
    if has_list(dataset, taken):
        _add_list(router, dataset)
    if path_shape(f"/{dataset.name}/{{key}}") not in map(path_shape, taken):
        _add_lookup(router, dataset)
    return router


def has_list(dataset: Dataset, taken: Collection[str]) -> bool:
    """Return whether a dataset gets the generic list."""
    return dataset.listed and f"/{dataset.name}" not in taken


def path_shape(path: str) -> str:
    """Return a path without the names of its parameters."""
    return _PARAMETER.sub("{}", path)


def _add_list(router: APIRouter, dataset: Dataset) -> None:
    async def list_query(
        request: Request,
        format_: FormatDep,
        sort: Annotated[
            str | None, Query(description="A column; `-column` sorts from the last.")
        ] = None,
        limit: Annotated[
            int | None,
            Query(
                ge=1,
                le=MAX_PAGE_SIZE,
                description=f"Maximum number of records; default {DEFAULT_PAGE_SIZE}, for other "
                "formats than JSON all.",
            ),
        ] = None,
        after: Annotated[
            str | None, Query(description="The cursor `next` of an earlier page.")
        ] = None,
        total: Annotated[bool, Query(description="Also count the records of all pages.")] = False,
    ) -> ListRequest:
        names = filter_names(dataset)
        given = {name: text for name, text in request.query_params.items() if name in names}
        selection = parse_selection(dataset, given, sort)
        place = None if after is None else Place.parse(after, dataset, selection)
        return ListRequest(selection, limit, place, total, format_)

    @router.get(
        "",
        summary=f"Records of {dataset.name}",
        response_class=Response,
        responses=declare_formats(
            declare_responses(
                {"items": [_RECORD], "next": "UuW1wF0rVZ…"}, UsageError, UnavailableError
            )
        ),
        openapi_extra={"parameters": _filter_parameters(dataset)},
    )
    async def records(
        request: Request, store: ReadStoreDep, wanted: Annotated[ListRequest, Depends(list_query)]
    ) -> Response:
        """Filtered and sorted by columns; a record that keeps its place is listed exactly once."""
        if wanted.format == "json":
            return await _json_page(request, store, dataset, wanted)
        async with store.snapshot() as conn:
            head = await head_of(conn, dataset.name)
            first = await list_records(
                conn,
                dataset,
                wanted.selection,
                limit=wanted.limit or MAX_PAGE_SIZE,
                after=wanted.after,
            )
        headers = _sync_header(head)
        if wanted.limit is not None and len(first) == wanted.limit:
            headers["X-Next-Cursor"] = _next(dataset, wanted.selection, first[-1])
        pages = _all_pages(store, dataset, wanted, first)
        if wanted.format == "ndjson":
            lines = (
                "".join(f"{record_json(row)}\n" for row in page).encode() async for page in pages
            )
            return StreamingResponse(lines, headers=headers, media_type=MEDIA["ndjson"])
        table = Table(dataset.name, record_columns(dataset, wanted.format))
        cells = ([record_cells(row, table.columns) for row in page] async for page in pages)
        return await export(table, wanted.format, cells, headers)


async def _json_page(
    request: Request, store: Store, dataset: Dataset, wanted: ListRequest
) -> Response:
    limit = wanted.limit or DEFAULT_PAGE_SIZE
    async with store.snapshot() as conn:
        head = await head_of(conn, dataset.name)
        # One more than requested shows whether there is another page.
        rows = await list_records(
            conn, dataset, wanted.selection, limit=limit + 1, after=wanted.after
        )
        total = await count_records(conn, dataset, wanted.selection) if wanted.total else None
    more, rows = len(rows) > limit, rows[:limit]
    position: dict[str, Any] = {
        "next": _next(dataset, wanted.selection, rows[-1]) if more else None
    }
    if total is not None:
        position["total"] = total
    content = f'{{"items":[{",".join(map(record_json, rows))}],{dumps(position)[1:]}'
    etag = f"{head.epoch.hex}-{head.version}"
    return conditional_json_response(request, content, etag, _sync_header(head))


async def _all_pages(
    store: Store, dataset: Dataset, wanted: ListRequest, first: Sequence[Row]
) -> AsyncIterator[Sequence[Row]]:
    """Yield the first page and those after it; the connection is returned before each is sent."""
    page = first
    while True:
        yield page
        if wanted.limit is not None or len(page) < MAX_PAGE_SIZE:
            return
        after = Place(page[-1].position, page[-1].key)
        async with store.snapshot() as conn:
            page = await list_records(
                conn, dataset, wanted.selection, limit=MAX_PAGE_SIZE, after=after
            )


def _add_lookup(router: APIRouter, dataset: Dataset) -> None:
    @router.get(
        # A key may contain slashes, and an escaped slash arrives unescaped.
        "/{key:path}",
        summary=f"One record of {dataset.name}",
        response_class=Response,
        responses=declare_formats(
            declare_responses(_RECORD, NotFoundError, ExpiredError, UsageError, UnavailableError)
        ),
    )
    async def record(
        request: Request,
        key: StorableText,
        store: ReadStoreDep,
        format_: FormatDep,
        as_of: Annotated[
            str | None, Query(alias="asOf", description="The state observed at this time.")
        ] = None,
        receipt: ReceiptFlag = False,
    ) -> Response:
        """The state of the newest committed run; with `asOf`, key and body at that time."""
        dataset.check_keys([key])
        at = None if as_of is None else parse_local_time(as_of)
        if receipt:
            if format_ != "json":
                raise UsageError(
                    msg("A receipt is only added to JSON."), remedy=msg("Use format=json.")
                )

            async def answer(conn: AsyncConnection[Any]) -> str:
                return (await _find(conn, dataset, key, at, "json"))[1].json

            return await answer_with_receipt(request, [dataset], key, answer, past=at is not None)
        # A standby that lags would answer for a moment whose changes it does not have yet.
        source = store if at is None else store.primary
        async with source.snapshot() as conn:
            head, found = await _find(conn, dataset, key, at, format_)
        headers = _sync_header(head)
        if format_ == "json":
            return conditional_json_response(request, found.json, found.etag, headers)
        if format_ == "ndjson":
            line = f"{found.json}\n"
            return conditional_json_response(request, line, found.etag, headers, MEDIA["ndjson"])
        table = Table(dataset.name, found.columns)
        return await export(table, format_, one_page([found.cells]), headers)


@dataclass(frozen=True)
class _Found:
    json: str
    etag: str
    columns: tuple[Column, ...]
    cells: Sequence[Any]


async def _find(
    conn: AsyncConnection[Any], dataset: Dataset, key: str, at: datetime | None, format_: Format
) -> tuple[Head, _Found]:
    head = await head_of(conn, dataset.name)
    if at is None:
        return head, await _current(conn, dataset, key, head, format_)
    return head, await _past(conn, dataset, key, at, format_)


async def _current(
    conn: AsyncConnection[Any], dataset: Dataset, key: str, head: Head, format_: Format
) -> _Found:
    row = await find_record(conn, dataset, key)
    if row is None:
        raise NotFoundError(msg("No record of {name} has this key.", name=dataset.name))
    columns = record_columns(dataset, format_)
    etag = f"{head.epoch.hex}-{row.seq}-{format_}"
    return _Found(record_json(row), etag, columns, record_cells(row, columns))


async def _past(
    conn: AsyncConnection[Any], dataset: Dataset, key: str, at: datetime, format_: Format
) -> _Found:
    past = await record_as_of(conn, dataset, key, at)
    if past.body is None:
        raise NotFoundError(
            msg("No record of {name} had this key at that time.", name=dataset.name)
        )
    body = dumps(past.body)
    [values] = await project_bodies(conn, dataset, [(key, body)])
    columns, cells = (KEY, *dataset.columns), [key, *values]
    if has_body(dataset, format_):
        columns, cells = (*columns, BODY), [*cells, body]
    etag = f"{record_digest(canonical(past.body)).hex()}-{format_}"
    return _Found(f'{{"key":{dumps(key)},"body":{body}}}', etag, columns, cells)


async def one_page(rows: Sequence[Any]) -> AsyncIterator[Sequence[Any]]:
    """Yield rows that are all there as the pages of an export."""
    yield rows


def record_json(row: Row) -> str:
    """Return the JSON of a record; the text of the body is copied without parsing."""
    first, changed = local_time(row.first_seen_at), local_time(row.changed_at)
    return (
        f'{{"key":{dumps(row.key)},"body":{row.body},"seq":{row.seq},'
        f'"firstSeenAt":"{first}","changedAt":"{changed}"}}'
    )


def record_columns(dataset: Dataset, format_: Format) -> tuple[Column, ...]:
    """Return the columns of a table of records.

    Parquet also has the body, and so has a spreadsheet of a dataset that declares no column.
    """
    body = (BODY,) if has_body(dataset, format_) else ()
    return (KEY, *dataset.columns, FIRST_SEEN_AT, CHANGED_AT, *body)


def has_body(dataset: Dataset, format_: Format) -> bool:
    """Return whether a table has the body as JSON."""
    return format_ == "parquet" or not dataset.columns


def record_cells(row: Row, columns: Sequence[Column]) -> list[Any]:
    """Return a record as a row of a table."""
    body = [row.body] if BODY in columns else []
    return [row.key, *row.values, row.first_seen_at, row.changed_at, *body]


def _next(dataset: Dataset, selection: Selection, row: Row) -> str:
    return Place(row.position, row.key).cursor(dataset, selection)


def _sync_header(head: Head) -> dict[str, str]:
    assert head.committed_at is not None
    return {"X-Last-Sync-At": local_time(head.committed_at), "Vary": "Accept"}


def _filter_parameters(dataset: Dataset) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "query",
            "description": " ".join(
                filter(None, (column.summary and f"{column.summary}.", _COMPARISONS[comparison]))
            ),
            "schema": _OPENAPI[column.type],
        }
        for name, (column, comparison) in filter_names(dataset).items()
    ]
