"""Pages of changes: fetched, serialized, and streamed as NDJSON or server-sent events.

The database connection is returned before a page is sent, so that a slow client holds nothing.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

from hasat.api.exception_handlers import check_restart_archive
from hasat.api.routes.feed_requests import MAX_PAGE_SIZE, FeedRequest
from hasat.errors import HasatError, UnavailableError
from hasat.feed.archive import Storage
from hasat.feed.changes import (
    Change,
    ExpiredError,
    Page,
    changes_after,
    format_change_time,
    publish_change,
)
from hasat.feed.cursor import Cursor
from hasat.feed.dataset import Dataset
from hasat.feed.notifier import ChangeNotifier
from hasat.http.routes import dumps
from hasat.store import Store


async def fetch_page(store: Store, dataset: Dataset, request: FeedRequest, limit: int) -> Page:
    """Return the page after the cursor.

    A standby may not have the cursor's change yet; the primary decides then whether it expired.
    """
    try:
        page = await _page(store, dataset, request, limit)
    except (ExpiredError, UnavailableError):
        if store is store.primary:
            raise
        page = await _page(store.primary, dataset, request, limit)
    if request.after is not None:
        request.on_position(request.after)
    return page


async def _page(store: Store, dataset: Dataset, request: FeedRequest, limit: int) -> Page:
    async with store.connection() as conn:
        return await changes_after(
            conn,
            dataset.name,
            request.after,
            limit=limit,
            keys=request.only,
            before="before" in request.include,
            as_text=True,
        )


async def wait_for_page(
    store: Store, notifier: ChangeNotifier, dataset: Dataset, request: FeedRequest, limit: int
) -> Page:
    """Return the page after the cursor; with `wait`, once it has changes or the time is up."""
    page = await fetch_page(store, dataset, request, limit)
    if page.changes or not request.wait:
        return page
    loop = asyncio.get_running_loop()
    deadline = loop.time() + request.wait
    async with notifier.listening():
        while True:
            signal = notifier.next_signal()
            page = await fetch_page(store, dataset, request, limit)
            left = deadline - loop.time()
            if page.changes or left <= 0 or notifier.closed:
                return page
            await notifier.wait(signal, left)


def page_position(page: Page) -> dict[str, Any]:
    """Return the position after a page, as responses have it."""
    return {
        "next": str(page.next),
        "upToDate": page.up_to_date,
        "epoch": str(page.epoch),
        "head": page.head,
        "floor": page.floor,
    }


def change_json(dataset: Dataset, change: Change, include: frozenset[str]) -> str:
    """Return the JSON of a change whose bodies are JSON texts.

    For a flat dataset the text of the body is copied without parsing.
    """
    if dataset.flat and not include and change.body != "{}":
        at = format_change_time(change.changed_at)
        own = f'"seq":{change.seq},"changeType":"{change.kind}","changedAt":"{at}"'
        fields = (
            dumps(dataset.change_fields(change.key, None)) if change.body is None else change.body
        )
        return f"{{{own},{fields[1:]}"
    body, before = (
        None if one is None else json.loads(one) for one in (change.body, change.before)
    )
    return dumps(serialize_change(dataset, change._replace(body=body, before=before), include))


def serialize_change(dataset: Dataset, change: Change, include: frozenset[str]) -> dict[str, Any]:
    """Return a change as the API publishes it."""
    published = publish_change(dataset, change)
    if "record" in include:
        published["key"] = change.key
        published["body"] = change.body
    if "before" in include:
        published["before"] = change.before
        published["fields"] = change.fields
    return published


HEARTBEAT_SECONDS = 15.0
_RECONNECT_MILLISECONDS = 2000


async def stream_lines(
    store: Store, archives: Storage, dataset: Dataset, request: FeedRequest, page: Page
) -> AsyncIterator[bytes]:
    """Yield every change from the first page to the head, then a line with the position.

    Without that last line the stream was cut off; resume after the cursor of the last change.
    """
    left = request.limit
    while True:
        yield "".join(
            f'{change[:-1]},"cursor":"{cursor}"}}\n'
            for cursor, change in _with_cursors(dataset, request, page)
        ).encode()
        left = None if left is None else left - len(page.changes)
        if page.up_to_date or left == 0:
            break
        request = replace(request, after=page.next)
        try:
            page = await fetch_page(
                store, dataset, request, min(left or MAX_PAGE_SIZE, MAX_PAGE_SIZE)
            )
        except ExpiredError as error:
            final = await check_restart_archive(error, store, archives)
            yield _line({"expired": _problem(final)})
            return
    yield _line(page_position(page))


async def stream_events(
    store: Store,
    archives: Storage,
    notifier: ChangeNotifier,
    dataset: Dataset,
    request: FeedRequest,
    page: Page,
) -> AsyncIterator[bytes]:
    """Yield the changes from the first page on, and later ones as they are committed.

    The stream ends when the server stops, and with an event `expired` when its cursor expired.
    """
    yield f"retry: {_RECONNECT_MILLISECONDS}\n\n".encode()
    loop = asyncio.get_running_loop()
    heartbeat_at = loop.time() + HEARTBEAT_SECONDS
    async with notifier.listening():
        while not notifier.closed:
            for cursor, change in _with_cursors(dataset, request, page):
                yield f"id: {cursor}\ndata: {change}\n\n".encode()
            signal = notifier.next_signal()
            request = replace(request, after=page.next)
            try:
                page = await fetch_page(store, dataset, request, MAX_PAGE_SIZE)
            except ExpiredError as error:
                final = await check_restart_archive(error, store, archives)
                yield f"event: expired\ndata: {dumps(_problem(final))}\n\n".encode()
                return
            if page.changes:
                continue
            while not await notifier.wait(signal, max(heartbeat_at - loop.time(), 0)):
                # With its cursor, so that a follower of few keys does not fall behind the floor.
                yield f": heartbeat\nid: {page.next}\n\n".encode()
                heartbeat_at = loop.time() + HEARTBEAT_SECONDS


def _with_cursors(dataset: Dataset, request: FeedRequest, page: Page) -> Iterator[tuple[str, str]]:
    for change in page.changes:
        cursor = str(Cursor(dataset.name, page.epoch, change.seq))
        yield cursor, change_json(dataset, change, request.include)


def _problem(error: HasatError) -> dict[str, Any]:
    return {
        "type": f"/problems/{error.code}",
        "title": error.title,
        "status": error.status,
        "detail": error.message,
        "code": error.code,
        "remedy": error.remedy,
    }


def _line(content: Any) -> bytes:
    return f"{dumps(content)}\n".encode()
