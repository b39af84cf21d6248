"""Parameters of feed requests."""

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
from uuid import UUID
import psycopg
import structlog
from hasat.errors import DatabaseError
from hasat.http.routes import Caller
from hasat.store.queries import load_query

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
        has=partial(request.app.state.follower_positions.note, exchange_of(request.scope).caller),
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

_PAUSE_SECONDS = 3.0

log = structlog.get_logger(__name__)


class FollowerPositions:
    """Where each key last was in each dataset; noted in memory, written down in one go soon after.

    Whoever reads without a key cannot be told from others and is not noted.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._noted: dict[tuple[str, str], tuple[UUID, int]] = {}
        self._writer: asyncio.Task[None] | None = None

    def note(self, caller: Caller | None, cursor: Cursor) -> None:
        """A caller has everything up to the cursor."""
        if caller is None or not caller.id.startswith("key:"):
            return
        self._noted[caller.id, cursor.dataset] = cursor.epoch, cursor.seq
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write(), name="places of followers")

    async def _write(self) -> None:
        while self._noted:
            await asyncio.sleep(_PAUSE_SECONDS)
            noted, self._noted = self._noted, {}
            values = {
                "sinks": [sink for sink, _ in noted],
                "datasets": [dataset for _, dataset in noted],
                "epochs": [epoch for epoch, _ in noted.values()],
                "seqs": [seq for _, seq in noted.values()],
            }
            try:
                async with self._store.connection() as conn:
                    await conn.execute(load_query("hasat.api", "save_places"), values)
            except (DatabaseError, psycopg.Error) as error:
                # The next question of each tells it again.
                log.debug("the places of followers could not be noted", reason=str(error))
