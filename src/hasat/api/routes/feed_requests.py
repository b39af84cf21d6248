"""Parameters of feed requests, and the positions of followers."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Annotated, Literal
from uuid import UUID

import psycopg
import structlog
from fastapi import Depends, Header, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from hasat.api.exports import MEDIA
from hasat.clock import parse_local_time
from hasat.errors import DatabaseError, UsageError
from hasat.feed.changes import Kind
from hasat.feed.cursor import Cursor
from hasat.http.routes import Caller, StorableText, exchange_of, reject_parameters
from hasat.messages import msg
from hasat.store import Store
from hasat.store.queries import load_query

MAX_WAIT_SECONDS = 60.0
MAX_PAGE_SIZE = 1000
MAX_WATCHED_KEYS = 10_000
DEFAULT_PAGE_SIZE = 100

FeedFormat = Literal["json", "ndjson", "events", "csv", "xlsx", "parquet"]
TABLE_FORMATS = ("csv", "xlsx", "parquet")
_FORMAT_BY_MEDIA: dict[str, FeedFormat] = {
    "text/event-stream": "events",
    "application/x-ndjson": "ndjson",
    "application/ndjson": "ndjson",
    MEDIA["csv"]: "csv",
    MEDIA["xlsx"]: "xlsx",
    MEDIA["parquet"]: "parquet",
}


class WatchedKeys(BaseModel):
    """The keys of the records to follow."""

    model_config = ConfigDict(extra="forbid")

    only: list[Annotated[StorableText, Field(max_length=200)]] = Field(
        min_length=1, max_length=MAX_WATCHED_KEYS, examples=[["1234567890", "10000000146"]]
    )


@dataclass(frozen=True)
class FeedRequest:
    """The parameters of a request for changes."""

    after: Cursor | None
    limit: int | None
    wait: float
    only: Sequence[str] | None
    include: frozenset[str]
    format: FeedFormat
    on_position: Callable[[Cursor], None]
    """Called with each cursor up to which the follower has everything."""
    kind: Kind | None = None
    field: str | None = None
    """Only changes of this kind and field; for files."""


OnlyKeys = Annotated[list[StorableText] | None, Query(description="Only changes of these keys.")]


async def stream_query(
    request: Request,
    after: Annotated[
        str | None, Query(description="The cursor `next` of an earlier response.")
    ] = None,
    include: Annotated[
        str,
        Query(
            pattern="^(|(before|record)(,(before|record))*)$",
            description="`before`: previous body and changed fields; `record`: key and body "
            "as published; both separated by a comma.",
        ),
    ] = "",
) -> FeedRequest:
    """Read the parameters of every format of the feed."""
    return FeedRequest(
        after=None if after is None else Cursor.parse(after),
        limit=None,
        wait=0,
        only=None,
        include=frozenset(filter(None, include.split(","))),
        format="events",
        on_position=partial(
            request.app.state.follower_positions.record, exchange_of(request.scope).caller
        ),
    )


async def page_query(
    request: Request,
    feed_request: Annotated[FeedRequest, Depends(stream_query)],
    limit: Annotated[
        int | None,
        Query(
            ge=1,
            le=MAX_PAGE_SIZE,
            description=f"Maximum number of changes; default {DEFAULT_PAGE_SIZE}, for files all.",
        ),
    ] = None,
    wait: Annotated[
        float, Query(ge=0, le=MAX_WAIT_SECONDS, description="Seconds to wait for a change.")
    ] = 0,
    given: Annotated[
        FeedFormat | None, Query(alias="format", description="Default: by the header Accept.")
    ] = None,
    kind: Annotated[
        Kind | None,
        Query(alias="changeType", description="Only changes of this type, in CSV, XLSX, Parquet."),
    ] = None,
    field: Annotated[
        StorableText | None,
        Query(
            max_length=200,
            description="Only changes of this field of the body, as `goals.home`, in these files.",
        ),
    ] = None,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
) -> FeedRequest:
    """Read the parameters of a request by cursor, and the format from query or Accept."""
    wanted = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    by_header: FeedFormat = next(
        (_FORMAT_BY_MEDIA[media] for media in _FORMAT_BY_MEDIA if media in wanted), "json"
    )
    if "since" in request.query_params or (given or by_header) not in TABLE_FORMATS:
        reason = msg("is only for CSV, XLSX and Parquet files.")
        reject_parameters(request, ("changeType", "field"), reason)
    if "since" in request.query_params:
        reason = msg("cannot be combined with `since`.")
        reject_parameters(request, ("after", "limit", "wait"), reason)
        if given not in (None, "json"):
            reject_parameters(request, ("format",), msg("`since` supports only `json`."))
        return feed_request
    if (given or by_header) == "events":
        reason = msg("cannot be combined with a stream of events.")
        reject_parameters(request, ("limit", "wait"), reason)
    include = feed_request.include | ({"before"} if field else set())
    return replace(
        feed_request,
        limit=limit,
        wait=wait,
        format=given or by_header,
        include=include,
        kind=kind,
        field=field,
    )


@dataclass(frozen=True)
class TimeWindow:
    """One page of the changes in a time span."""

    since: datetime
    until: datetime | None
    page: int
    page_size: int


async def window_query(
    request: Request,
    since: Annotated[str | None, Query(description="Changes committed after this time.")] = None,
    until: Annotated[
        str | None,
        Query(description="Changes up to this time: repeat `windowEnd` of the first page."),
    ] = None,
    page: Annotated[int, Query(ge=1, le=10**9)] = 1,
    page_size: Annotated[int, Query(ge=1, le=1000, alias="pageSize")] = 100,
) -> TimeWindow | None:
    """Read the parameters of the time protocol of the original service; None without `since`."""
    if since is None:
        reject_parameters(request, ("until", "page", "pageSize"), msg("requires `since`."))
        return None
    start = parse_local_time(since)
    end = None if until is None else parse_local_time(until)
    if end is not None and end <= start:
        raise UsageError(
            msg("`until` must be later than `since`."),
            remedy=msg("Remove it, or repeat `windowEnd` of the first page."),
        )
    return TimeWindow(start, end, page, page_size)


_WRITE_INTERVAL_SECONDS = 3.0

log = structlog.get_logger(__name__)


class FollowerPositions:
    """The position of each API key in each feed, collected in memory and written in batches.

    Anonymous clients are not recorded.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pending: dict[tuple[str, str], tuple[UUID, int]] = {}
        self._writer: asyncio.Task[None] | None = None

    def record(self, caller: Caller | None, cursor: Cursor) -> None:
        """Record that a caller has everything up to the cursor."""
        if caller is None or not caller.id.startswith("key:"):
            return
        self._pending[caller.id, cursor.dataset] = cursor.epoch, cursor.seq
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write(), name="follower positions")

    async def _write(self) -> None:
        while self._pending:
            await asyncio.sleep(_WRITE_INTERVAL_SECONDS)
            pending, self._pending = self._pending, {}
            values = {
                "sinks": [sink for sink, _ in pending],
                "datasets": [dataset for _, dataset in pending],
                "epochs": [epoch for epoch, _ in pending.values()],
                "seqs": [seq for _, seq in pending.values()],
            }
            try:
                async with self._store.connection() as conn:
                    await conn.execute(load_query("hasat.api", "save_follower_positions"), values)
            except (DatabaseError, psycopg.Error) as error:
                # The next request of each follower records it again.
                log.debug("follower_positions.not_saved", reason=str(error))
