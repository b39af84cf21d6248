"""Routes of every dataset: changes by cursor or time, digest and history."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Request
from starlette.responses import Response, StreamingResponse

from hasat.api.exports import MEDIA, declare_formats, export
from hasat.api.routes.change_tables import change_cells, change_pages, change_table
from hasat.api.routes.datasets import FormatDep, one_page
from hasat.api.routes.feed_pages import (
    change_json,
    fetch_page,
    page_position,
    serialize_change,
    stream_events,
    stream_lines,
    wait_for_page,
)
from hasat.api.routes.feed_requests import (
    DEFAULT_PAGE_SIZE,
    MAX_PAGE_SIZE,
    FeedRequest,
    OnlyKeys,
    TimeWindow,
    WatchedKeys,
    page_query,
    stream_query,
    window_query,
)
from hasat.clock import local_time
from hasat.errors import NotFoundError, UsageError
from hasat.feed.archive import Storage
from hasat.feed.archive.catalog import ArchivePendingError
from hasat.feed.changes import ExpiredError, changes_between, head_of, history, record_exists
from hasat.feed.cursor import Cursor
from hasat.feed.dataset import Dataset
from hasat.feed.notifier import ChangeNotifier
from hasat.http.routes import (
    ReadStoreDep,
    StorableText,
    StoreDep,
    body_limit,
    conditional_json_response,
    declare_responses,
    dumps,
    json_response,
)
from hasat.messages import msg
from hasat.store import Store

_EXAMPLE = {
    "changes": [],
    "next": "UuW1wF0rVZ…",
    "upToDate": True,
    "epoch": "5f0c6d3e-8f0e-4a55-9c39-0d6f2c7d1a10",
    "head": 437,
    "floor": 0,
}
_EVENT = 'id: UuW1wF0rVZ…\ndata: {"seq":438,"changeType":"added"}\n\n'

_LINES = '{"seq":438,"changeType":"added","cursor":"UuW1wF0rVZ…"}\n{"next":"UuW1wF0rVZ…"}\n'


def _change_responses() -> dict[int | str, dict[str, Any]]:
    declared = declare_responses(_EXAMPLE, ExpiredError, ArchivePendingError, UsageError)
    declared[200]["content"]["application/x-ndjson"] = {"example": _LINES}
    declared[200]["content"]["text/event-stream"] = {"example": _EVENT}
    return declare_formats(declared)


ByCursor = Annotated[FeedRequest, Depends(page_query)]
ByTime = Annotated[TimeWindow | None, Depends(window_query)]
LastEventId = Annotated[
    str | None, Header(description="Resumes a stream after this event; overrides `after`.")
]


@cache
def feed_router(dataset: Dataset) -> APIRouter:
    """Return the feed routes of one dataset."""
    router = APIRouter(prefix=f"/{dataset.name}", tags=[dataset.name])
    name = dataset.name

    @router.get(
        "/changes",
        summary=f"Changes of {name}",
        response_class=Response,
        responses=_change_responses(),
    )
    async def changes(
        request: Request,
        store: StoreDep,
        feed_request: ByCursor,
        window: ByTime,
        only: OnlyKeys = None,
        last_event_id: LastEventId = None,
    ) -> Response:
        """By cursor (`after`) or, as in the original service, by time (`since`).

        Without either, from the oldest stored change. Sequence numbers have no gaps, so a client
        that sees 1, 2, 3, ... misses nothing.
        """
        feed_request = _with_keys(dataset, feed_request, only)
        if window is None:
            return await _changes_by_cursor(request, store, dataset, feed_request, last_event_id)
        return await _changes_by_time(store, dataset, feed_request, window)

    @router.post(
        "/changes",
        summary=f"Changes of some records of {name}",
        response_class=Response,
        responses=_change_responses(),
    )
    @body_limit(4_000_000)
    async def changes_of_keys(
        request: Request,
        store: StoreDep,
        feed_request: ByCursor,
        window: ByTime,
        watched: WatchedKeys,
    ) -> Response:
        """Same as GET with `only`, for watch lists that are too long for a URL."""
        feed_request = _with_keys(dataset, feed_request, watched.only)
        if window is None:
            return await _changes_by_cursor(request, store, dataset, feed_request, None)
        return await _changes_by_time(store, dataset, feed_request, window)

    @router.get(
        "/changes/stream",
        summary=f"Live changes of {name}",
        response_class=StreamingResponse,
        responses=declare_responses(
            _EVENT, ExpiredError, ArchivePendingError, UsageError, media="text/event-stream"
        ),
    )
    async def stream(
        request: Request,
        store: StoreDep,
        feed_request: Annotated[FeedRequest, Depends(stream_query)],
        only: OnlyKeys = None,
        last_event_id: LastEventId = None,
    ) -> Response:
        """Server-sent events whose ids are cursors; `Last-Event-ID` resumes exactly."""
        feed_request = _with_keys(dataset, feed_request, only)
        return await _changes_by_cursor(request, store, dataset, feed_request, last_event_id)

    @router.get(
        "/digest",
        summary=f"State digest of {name}",
        response_class=Response,
        responses=declare_responses(
            {"digest": "00" * 16, "count": 0, "head": 0, "cursor": "UuW1wF0rVZ…"}
        ),
    )
    async def digest(request: Request, store: StoreDep) -> Response:
        """A replica is equal if the digest of its records is the same."""
        async with store.connection() as conn:
            head = await head_of(conn, name)
        assert head.committed_at is not None
        content = {
            "digest": head.digest.hex(),
            "count": head.records,
            "head": head.seq,
            "cursor": str(Cursor(name, head.epoch, head.seq)),
            "epoch": str(head.epoch),
            "version": head.version,
        }
        etag = f"{head.epoch.hex}-{head.version}"
        headers = {"X-Last-Sync-At": local_time(head.committed_at)}
        return conditional_json_response(request, dumps(content), etag, headers)

    @router.get(
        # A key may contain slashes, and an escaped slash arrives unescaped.
        "/{key:path}/history",
        summary=f"History of one record of {name}",
        response_class=Response,
        responses=declare_formats(
            declare_responses({"key": "1234567890", "history": []}, NotFoundError)
        ),
    )
    async def record_history(
        key: StorableText, store: ReadStoreDep, format_: FormatDep
    ) -> Response:
        """Every change of the record, oldest first, as far back as `history.retention` reaches.

        Each has the body before and after it, and the fields that a modification changed.
        """
        dataset.check_keys([key])
        async with store.connection() as conn:
            head = await head_of(conn, name)
            found = await history(conn, dataset, key)
            if not found and not await record_exists(conn, dataset, key):
                raise NotFoundError(
                    msg(
                        "No record of {name} has this key, and no change of it is stored.",
                        name=name,
                    )
                )
        assert head.committed_at is not None
        headers = {"X-Last-Sync-At": local_time(head.committed_at), "Vary": "Accept"}
        entries = [
            {**serialize_change(dataset, change, frozenset({"before"})), "after": change.body}
            for change in found
        ]
        if format_ == "json":
            return json_response(dumps({"key": key, "history": entries}), headers)
        if format_ == "ndjson":
            lines = "".join(f"{dumps(entry)}\n" for entry in entries)
            return json_response(lines, headers, MEDIA["ndjson"])
        table = change_table(dataset, format_, with_cursor=False)
        texts = [one._replace(body=None if one.body is None else dumps(one.body)) for one in found]
        async with store.connection() as conn:
            rows = await change_cells(conn, dataset, texts, table)
        return await export(table, format_, one_page(rows), headers)

    return router


def _with_keys(
    dataset: Dataset, feed_request: FeedRequest, keys: Sequence[str] | None
) -> FeedRequest:
    dataset.check_keys(keys or ())
    return replace(feed_request, only=keys)


async def _changes_by_cursor(
    request: Request,
    store: Store,
    dataset: Dataset,
    feed_request: FeedRequest,
    last_event_id: str | None,
) -> Response:
    """Return the changes after a cursor in the requested format.

    The first page is read before anything is sent, so that an invalid request gets a problem. A
    request that waits reads the primary, which sends the notifications.
    """
    notifier: ChangeNotifier = request.app.state.notifier
    archives: Storage = request.app.state.archive_storage
    headers = {"Vary": "Accept"}
    if feed_request.format == "events":
        if last_event_id:
            feed_request = replace(feed_request, after=Cursor.parse(last_event_id))
        page = await fetch_page(store, dataset, feed_request, MAX_PAGE_SIZE)
        headers["X-Last-Sync-At"] = local_time(page.committed_at)
        # Proxies must not buffer events.
        headers["X-Accel-Buffering"] = "no"
        stream = stream_events(store, archives, notifier, dataset, feed_request, page)
        return StreamingResponse(stream, headers=headers, media_type="text/event-stream")
    source = store if feed_request.wait else store.reads
    if feed_request.format == "ndjson":
        page = await wait_for_page(
            source, notifier, dataset, feed_request, feed_request.limit or MAX_PAGE_SIZE
        )
        headers["X-Last-Sync-At"] = local_time(page.committed_at)
        stream = stream_lines(source, archives, dataset, feed_request, page)
        return StreamingResponse(stream, headers=headers, media_type="application/x-ndjson")
    if feed_request.format != "json":
        page = await wait_for_page(
            source, notifier, dataset, feed_request, feed_request.limit or MAX_PAGE_SIZE
        )
        headers["X-Last-Sync-At"] = local_time(page.committed_at)
        table = change_table(dataset, feed_request.format)
        pages = change_pages(source, dataset, feed_request, page, table)
        return await export(table, feed_request.format, pages, headers)
    page = await wait_for_page(
        source, notifier, dataset, feed_request, feed_request.limit or DEFAULT_PAGE_SIZE
    )
    headers["X-Last-Sync-At"] = local_time(page.committed_at)
    changes = ",".join(
        change_json(dataset, change, feed_request.include) for change in page.changes
    )
    content = f'{{"changes":[{changes}],{dumps(page_position(page))[1:]}'
    if feed_request.wait or request.method != "GET":
        return json_response(content, headers)
    etag = f"{page.epoch.hex}-{page.head}-{page.floor}"
    return conditional_json_response(request, content, etag, headers)


async def _changes_by_time(
    store: Store, dataset: Dataset, feed_request: FeedRequest, window: TimeWindow
) -> Response:
    """Return the changes of a time span.

    Read from the primary: a standby that lags behind an earlier page would omit changes.
    """
    async with store.connection() as conn:
        span = await changes_between(
            conn,
            dataset.name,
            window.since,
            window.until,
            page=window.page,
            size=window.page_size,
            keys=feed_request.only,
        )
    content: dict[str, Any] = {
        "changes": [
            serialize_change(dataset, change, feed_request.include) for change in span.changes
        ],
        "totalCount": span.total,
        "page": window.page,
        "pageSize": window.page_size,
        "totalPages": -(-span.total // window.page_size),
        "until": local_time(span.until),
        "windowEnd": local_time(span.window_end),
    }
    return json_response(dumps(content), {"X-Last-Sync-At": local_time(span.committed_at)})
