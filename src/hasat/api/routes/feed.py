"""Routes of every dataset: changes by cursor or time, digest and history."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Annotated, Any
from fastapi import APIRouter, Depends, Header, Request
from starlette.responses import Response, StreamingResponse
from hasat.api.routes.feed_requests import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE, FeedRequest, OnlyKeys, TimeWindow, WatchedKeys, page_query, stream_query, window_query
from hasat.api.routes.feed_pages import change_json, fetch_page, page_position, serialize_change, wait_for_page
from hasat.api.routes.feed_pages import stream_events, stream_lines
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


def _in_all_forms() -> dict[int | str, dict[str, Any]]:
    declared = declare_responses(_EXAMPLE, ExpiredError, ArchivePendingError, UsageError)
    declared[200]["content"]["application/x-ndjson"] = {"example": _LINES}
    declared[200]["content"]["text/event-stream"] = {"example": _EVENT}
    return declared


ByCursor = Annotated[FeedRequest, Depends(page_query)]
ByTime = Annotated[TimeWindow | None, Depends(window_query)]
LastEventId = Annotated[
    str | None, Header(description="Where a stream that was cut off goes on; before `after`.")
]


@cache
def feed_router(dataset: Dataset) -> APIRouter:
    """The doors of one dataset."""
    router = APIRouter(prefix=f"/{dataset.name}", tags=[dataset.name])
    name = dataset.name

    @router.get(
        "/changes",
        summary=f"What changed in {name}",
        response_class=Response,
        responses=_in_all_forms(),
    )
    async def changes(
        request: Request,
        store: StoreDep,
        ask: ByCursor,
        window: ByTime,
        only: OnlyKeys = None,
        last_event_id: LastEventId = None,
    ) -> Response:
        """By cursor (`after`) or, as the original service has it, by time (`since`).

        Without either, the feed is read from the oldest change that is kept. Numbers have no gaps:
        whoever sees 1, 2, 3, ... knows that nothing is missing.
        """
        ask = _watching(dataset, ask, only)
        if window is None:
            return await _told(request, store, dataset, ask, last_event_id)
        return await _span(store, dataset, ask, window)

    @router.post(
        "/changes",
        summary=f"What changed in some records of {name}",
        response_class=Response,
        responses=_in_all_forms(),
    )
    @body_limit(4_000_000)
    async def changes_of_some(
        request: Request, store: StoreDep, ask: ByCursor, window: ByTime, watched: WatchedKeys
    ) -> Response:
        """The same as GET with `only`, for watch lists that are too long for an address."""
        ask = _watching(dataset, ask, watched.only)
        if window is None:
            return await _told(request, store, dataset, ask, None)
        return await _span(store, dataset, ask, window)

    @router.get(
        "/changes/stream",
        summary=f"The changes in {name} as they come",
        response_class=StreamingResponse,
        responses=declare_responses(
            _EVENT, ExpiredError, ArchivePendingError, UsageError, media="text/event-stream"
        ),
    )
    async def stream(
        request: Request,
        store: StoreDep,
        ask: Annotated[FeedRequest, Depends(stream_query)],
        only: OnlyKeys = None,
        last_event_id: LastEventId = None,
    ) -> Response:
        """Server-sent events whose ids are cursors; `Last-Event-ID` resumes exactly."""
        ask = _watching(dataset, ask, only)
        return await _told(request, store, dataset, ask, last_event_id)

    @router.get(
        "/digest",
        summary=f"The state of {name} in one number",
        response_class=Response,
        responses=declare_responses(
            {"digest": "00" * 16, "count": 0, "head": 0, "cursor": "UuW1wF0rVZ…"}
        ),
    )
    async def digest(request: Request, store: StoreDep) -> Response:
        """A replica that recomputes the digest from its own records knows that it is equal."""
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
        told = {"X-Last-Sync-At": local_time(head.committed_at)}
        return conditional_json_response(request, dumps(content), etag, told)

    @router.get(
        # A key may have slashes of its own, and an escaped one arrives as a plain one.
        "/{key:path}/history",
        summary=f"The story of one record of {name}",
        response_class=Response,
        responses=declare_responses({"key": "1234567890", "history": []}, NotFoundError),
    )
    async def story(key: StorableText, store: ReadStoreDep) -> Response:
        """Every change of the record that is still kept, oldest first.

        Each with the body before and after it and the fields that a modification changed.
        """
        dataset.check_keys([key])
        async with store.connection() as conn:
            head = await head_of(conn, name)
            found = await history(conn, name, key)
            if not found and not await record_exists(conn, dataset, key):
                raise NotFoundError(
                    msg(
                        "No record of {name} has this key, and no change of one is kept.", name=name
                    )
                )
        assert head.committed_at is not None
        content = {
            "key": key,
            "history": [
                {**serialize_change(dataset, change, frozenset({"before"})), "after": change.body}
                for change in found
            ],
        }
        return json_response(dumps(content), {"X-Last-Sync-At": local_time(head.committed_at)})

    return router


def _watching(dataset: Dataset, ask: FeedRequest, keys: Sequence[str] | None) -> FeedRequest:
    dataset.check_keys(keys or ())
    return replace(ask, only=keys)


async def _told(
    request: Request, store: Store, dataset: Dataset, ask: FeedRequest, last_event_id: str | None
) -> Response:
    """The answer to a question by cursor, in the form that was asked for.

    The first page is read before anything is sent: what is wrong with the question is a problem.
    Whoever waits for a change reads the primary, which is where the notifier is rung.
    """
    notifier: ChangeNotifier = request.app.state.notifier
    archives: Storage = request.app.state.archive_storage
    headers = {"Vary": "Accept"}
    if ask.form == "events":
        if last_event_id:
            ask = replace(ask, after=Cursor.parse(last_event_id))
        page = await fetch_page(store, dataset, ask, MAX_PAGE_SIZE)
        headers["X-Last-Sync-At"] = local_time(page.committed_at)
        # What stands between must not collect events before it passes them on.
        headers["X-Accel-Buffering"] = "no"
        going = stream_events(store, archives, notifier, dataset, ask, page)
        return StreamingResponse(going, headers=headers, media_type="text/event-stream")
    source = store if ask.wait else store.reads
    if ask.form == "ndjson":
        page = await wait_for_page(source, notifier, dataset, ask, ask.limit or MAX_PAGE_SIZE)
        headers["X-Last-Sync-At"] = local_time(page.committed_at)
        going = stream_lines(source, archives, dataset, ask, page)
        return StreamingResponse(going, headers=headers, media_type="application/x-ndjson")
    page = await wait_for_page(source, notifier, dataset, ask, ask.limit or DEFAULT_PAGE_SIZE)
    headers["X-Last-Sync-At"] = local_time(page.committed_at)
    changes = ",".join(change_json(dataset, change, ask.include) for change in page.changes)
    content = f'{{"changes":[{changes}],{dumps(page_position(page))[1:]}'
    if ask.wait or request.method != "GET":
        return json_response(content, headers)
    etag = f"{page.epoch.hex}-{page.head}-{page.floor}"
    return conditional_json_response(request, content, etag, headers)


async def _span(store: Store, dataset: Dataset, ask: FeedRequest, window: TimeWindow) -> Response:
    """The answer to a question by time.

    From the primary: a page from an older standby, after one from a newer, would leave out changes.
    """
    async with store.connection() as conn:
        span = await changes_between(
            conn,
            dataset.name,
            window.since,
            window.until,
            page=window.page,
            size=window.page_size,
            keys=ask.only,
        )
    content: dict[str, Any] = {
        "changes": [serialize_change(dataset, change, ask.include) for change in span.changes],
        "totalCount": span.total,
        "page": window.page,
        "pageSize": window.page_size,
        "totalPages": -(-span.total // window.page_size),
        "until": local_time(span.until),
        "windowEnd": local_time(span.window_end),
    }
    return json_response(dumps(content), {"X-Last-Sync-At": local_time(span.committed_at)})
