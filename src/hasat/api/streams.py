"""Changes without pages: all there are as lines of JSON, or as they come as server-sent events.

A page is read, its connection given back, and only then sent: a slow reader holds nothing.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

from hasat.api.expired import check_restart_archive
from hasat.api.following import MAX_PAGE_SIZE, FeedRequest, change_json, fetch_page, page_position
from hasat.errors import HasatError
from hasat.feed.archive import Storage
from hasat.feed.changes import ExpiredError, Page
from hasat.feed.cursor import Cursor
from hasat.feed.dataset import Dataset
from hasat.feed.notifier import ChangeNotifier
from hasat.http.routes import dumps
from hasat.store import Store

HEARTBEAT_SECONDS = 15.0
_RECONNECT_MILLISECONDS = 2000


async def stream_lines(
    store: Store, archives: Storage, dataset: Dataset, ask: FeedRequest, page: Page
) -> AsyncIterator[bytes]:
    """Every change from the first page to the head, then one line that says where that is.

    Without that last line the stream was cut off; each change's own cursor is the place to resume.
    """
    left = ask.limit
    while True:
        yield "".join(
            f'{change[:-1]},"cursor":"{cursor}"}}\n' for cursor, change in _told(dataset, ask, page)
        ).encode()
        left = None if left is None else left - len(page.changes)
        if page.up_to_date or left == 0:
            break
        ask = replace(ask, after=page.next)
        try:
            page = await fetch_page(store, dataset, ask, min(left or MAX_PAGE_SIZE, MAX_PAGE_SIZE))
        except ExpiredError as error:
            answered = await check_restart_archive(error, store, archives)
            yield _line({"expired": _problem(answered)})
            return
    yield _line(page_position(page))


async def stream_events(
    store: Store,
    archives: Storage,
    notifier: ChangeNotifier,
    dataset: Dataset,
    ask: FeedRequest,
    page: Page,
) -> AsyncIterator[bytes]:
    """The changes from the first page on, and each later one as it is committed.

    Ends when the server stops, and with an event `expired` when the place is no longer kept.
    """
    yield f"retry: {_RECONNECT_MILLISECONDS}\n\n".encode()
    loop = asyncio.get_running_loop()
    beat_at = loop.time() + HEARTBEAT_SECONDS
    async with notifier.listening():
        while not notifier.closed:
            for cursor, change in _told(dataset, ask, page):
                yield f"id: {cursor}\ndata: {change}\n\n".encode()
            signal = notifier.next_signal()
            ask = replace(ask, after=page.next)
            try:
                page = await fetch_page(store, dataset, ask, MAX_PAGE_SIZE)
            except ExpiredError as error:
                answered = await check_restart_archive(error, store, archives)
                yield f"event: expired\ndata: {dumps(_problem(answered))}\n\n".encode()
                return
            if page.changes:
                continue
            while not await notifier.wait(signal, max(beat_at - loop.time(), 0)):
                # With its place: a watcher of few keys must not fall behind the floor.
                yield f": heartbeat\nid: {page.next}\n\n".encode()
                beat_at = loop.time() + HEARTBEAT_SECONDS


def _told(dataset: Dataset, ask: FeedRequest, page: Page) -> Iterator[tuple[str, str]]:
    for change in page.changes:
        cursor = str(Cursor(dataset.name, page.epoch, change.seq))
        yield cursor, change_json(dataset, change, ask.include)


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
