"""Pages of changes."""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache, partial
from typing import Annotated, Any, Literal
from fastapi import Depends, Header, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from hasat.clock import local_time, parse_local_time
from hasat.errors import UnavailableError, UsageError
from hasat.feed.changes import Change, ExpiredError, Page, changes_after
from hasat.feed.cursor import Cursor
from hasat.feed.dataset import Dataset
from hasat.feed.notifier import ChangeNotifier
from hasat.http.routes import StorableText, dumps, exchange_of, reject_parameters
from hasat.messages import msg
from hasat.store import Store
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any
from hasat.api.exception_handlers import check_restart_archive
from hasat.api.routes.feed_requests import MAX_PAGE_SIZE, FeedRequest
from hasat.errors import HasatError
from hasat.feed.archive import Storage
from hasat.feed.changes import ExpiredError, Page
from hasat.http.routes import dumps


async def fetch_page(store: Store, dataset: Dataset, ask: FeedRequest, limit: int) -> Page:
    """The page after the cursor, in a transaction that ends before anything is sent.

    A standby may not have what the cursor names yet, and then it is no reason for a 410.
    """
    try:
        page = await _page(store, dataset, ask, limit)
    except (ExpiredError, UnavailableError):
        if store is store.primary:
            raise
        page = await _page(store.primary, dataset, ask, limit)
    if ask.after is not None:
        ask.has(ask.after)
    return page


async def _page(store: Store, dataset: Dataset, ask: FeedRequest, limit: int) -> Page:
    async with store.connection() as conn:
        return await changes_after(
            conn,
            dataset.name,
            ask.after,
            limit=limit,
            keys=ask.only,
            before="before" in ask.include,
            as_text=True,
        )


async def wait_for_page(
    store: Store, notifier: ChangeNotifier, dataset: Dataset, ask: FeedRequest, limit: int
) -> Page:
    """The page after the cursor; with `wait`, not before it has something or the time is over."""
    page = await fetch_page(store, dataset, ask, limit)
    if page.changes or not ask.wait:
        return page
    loop = asyncio.get_running_loop()
    deadline = loop.time() + ask.wait
    async with notifier.listening():
        while True:
            signal = notifier.next_signal()
            page = await fetch_page(store, dataset, ask, limit)
            left = deadline - loop.time()
            if page.changes or left <= 0 or notifier.closed:
                return page
            await notifier.wait(signal, left)


def page_position(page: Page) -> dict[str, Any]:
    """Where a page leaves its reader."""
    return {
        "next": str(page.next),
        "upToDate": page.up_to_date,
        "epoch": str(page.epoch),
        "head": page.head,
        "floor": page.floor,
    }


def change_json(dataset: Dataset, change: Change, include: frozenset[str]) -> str:
    """A change, whose bodies are texts, as JSON.

    Where a change shows its body's own fields, their text is copied and never taken apart.
    """
    if dataset.flat and not include and change.body != "{}":
        at = _moment(change.changed_at)
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
    """A change as it is handed out."""
    told = {
        "seq": change.seq,
        "changeType": change.kind,
        "changedAt": _moment(change.changed_at),
        **dataset.change_fields(change.key, change.body),
    }
    if "record" in include:
        told["key"] = change.key
        told["body"] = change.body
    if "before" in include:
        told["before"] = change.before
        told["fields"] = change.fields
    return told


# The changes of a run share one moment.
_moment = lru_cache(maxsize=64)(local_time)

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
