"""What a follower asks for, and how a page of changes is told."""

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

MAX_WAIT_SECONDS = 60.0
MAX_PAGE_SIZE = 1000
MAX_WATCHED_KEYS = 10_000
DEFAULT_PAGE_SIZE = 100

Form = Literal["json", "ndjson", "events"]
_MEDIA: dict[str, Form] = {
    "text/event-stream": "events",
    "application/x-ndjson": "ndjson",
    "application/ndjson": "ndjson",
}


class WatchedKeys(BaseModel):
    """Which records to follow."""

    model_config = ConfigDict(extra="forbid")

    only: list[Annotated[StorableText, Field(max_length=200)]] = Field(
        min_length=1, max_length=MAX_WATCHED_KEYS, examples=[["1234567890", "10000000146"]]
    )


@dataclass(frozen=True)
class FeedRequest:
    """A follower's question."""

    after: Cursor | None
    limit: int | None
    wait: float
    only: Sequence[str] | None
    include: frozenset[str]
    form: Form
    has: Callable[[Cursor], None]
    """Told of every place up to which the follower has everything."""


OnlyKeys = Annotated[
    list[StorableText] | None, Query(description="Keys to watch; all others are passed over.")
]


async def stream_query(
    request: Request,
    after: Annotated[str | None, Query(description="The cursor of an earlier answer.")] = None,
    include: Annotated[
        str,
        Query(
            pattern="^(|(before|record)(,(before|record))*)$",
            description="`before`: the state before, and the fields; `record`: key and body as "
            "published; or both, with a comma.",
        ),
    ] = "",
) -> FeedRequest:
    """Read the parameters that apply to every form of the feed."""
    return FeedRequest(
        after=None if after is None else Cursor.parse(after),
        limit=None,
        wait=0,
        only=None,
        include=frozenset(filter(None, include.split(","))),
        form="events",
        has=partial(request.app.state.places.note, exchange_of(request.scope).caller),
    )


async def page_query(
    request: Request,
    ask: Annotated[FeedRequest, Depends(stream_query)],
    limit: Annotated[
        int | None,
        Query(
            ge=1,
            le=MAX_PAGE_SIZE,
            description=f"Changes at the most: {DEFAULT_PAGE_SIZE} unless told, as lines all.",
        ),
    ] = None,
    wait: Annotated[
        float, Query(ge=0, le=MAX_WAIT_SECONDS, description="Seconds to wait for a change.")
    ] = 0,
    form: Annotated[
        Form | None, Query(alias="format", description="Else the header Accept decides.")
    ] = None,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
) -> FeedRequest:
    """Read the parameters by cursor, and the form from the address or the header Accept."""
    wanted = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    by_header: Form = next((_MEDIA[media] for media in _MEDIA if media in wanted), "json")
    if "since" in request.query_params:
        reject_parameters(request, ("after", "limit", "wait"), "does not go with `since`.")
        if form not in (None, "json"):
            reject_parameters(request, ("format",), "by time (`since`) there is only `json`.")
        return ask
    if (form or by_header) == "events":
        reject_parameters(request, ("limit", "wait"), "does not go with a stream of events.")
    return replace(ask, limit=limit, wait=wait, form=form or by_header)


@dataclass(frozen=True)
class TimeWindow:
    """One page of a span of time."""

    since: datetime
    until: datetime | None
    page: int
    page_size: int


async def window_query(
    request: Request,
    since: Annotated[str | None, Query(description="Changes committed after this time.")] = None,
    until: Annotated[
        str | None,
        Query(description="Changes up to this time: repeat the `windowEnd` of the first page."),
    ] = None,
    page: Annotated[int, Query(ge=1, le=10**9)] = 1,
    page_size: Annotated[int, Query(ge=1, le=1000, alias="pageSize")] = 100,
) -> TimeWindow | None:
    """Read the parameters of the original's time protocol; None where `since` is not given."""
    if since is None:
        reject_parameters(request, ("until", "page", "pageSize"), "goes with `since` only.")
        return None
    start = parse_local_time(since)
    end = None if until is None else parse_local_time(until)
    if end is not None and end <= start:
        raise UsageError(
            msg("`until` must be later than `since`."),
            remedy=msg("Leave it out, or repeat the `windowEnd` of the first page."),
        )
    return TimeWindow(start, end, page, page_size)


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
