"""The doors that every dataset has: changes by cursor or by time, digest, a record's story."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from hasat.clock import local_time, parse_local_time
from hasat.doors import TheStore, answers
from hasat.errors import NotFoundError, UsageError
from hasat.feed.bell import Bell
from hasat.feed.cursor import Cursor
from hasat.feed.dataset import Dataset
from hasat.feed.read import Change, ExpiredError, changes_after, changes_between, head_of, history

_MOST_WAIT_SECONDS = 60.0
_EXAMPLE = {
    "changes": [],
    "next": "UuW1wF0rVZ…",
    "upToDate": True,
    "epoch": "5f0c6d3e-8f0e-4a55-9c39-0d6f2c7d1a10",
    "head": 437,
    "floor": 0,
}


def feed_router(dataset: Dataset) -> APIRouter:
    """The doors of one dataset."""
    router = APIRouter(prefix=f"/{dataset.name}", tags=[dataset.name])
    name = dataset.name

    @router.get(
        "/changes",
        summary=f"What changed in {name}",
        responses=answers(_EXAMPLE, ExpiredError, UsageError),
    )
    async def changes(
        request: Request,
        response: Response,
        store: TheStore,
        after: Annotated[str | None, Query(description="The cursor of an earlier answer.")] = None,
        limit: Annotated[int, Query(ge=1, le=1000, description="Changes at the most.")] = 100,
        wait: Annotated[
            float, Query(ge=0, le=_MOST_WAIT_SECONDS, description="Seconds to wait for a change.")
        ] = 0,
        only: Annotated[
            list[str] | None, Query(description="Keys to watch; all others are passed over.")
        ] = None,
        include: Annotated[
            Literal["before"] | None, Query(description="Show the state before, and the fields.")
        ] = None,
        since: Annotated[
            str | None, Query(description="Changes committed after this time.")
        ] = None,
        until: Annotated[str | None, Query(description="Changes up to this time.")] = None,
        page: Annotated[int, Query(ge=1, le=10**9)] = 1,
        page_size: Annotated[int, Query(ge=1, le=1000, alias="pageSize")] = 100,
    ) -> dict[str, Any]:
        """By cursor (`after`) or, as the original service has it, by time (`since`).

        Without either, the feed is read from the oldest change that is kept. Numbers have no gaps:
        whoever sees 1, 2, 3, ... knows that nothing is missing.
        """
        before = include == "before"
        if since is not None:
            if after is not None:
                raise UsageError("`after` and `since` are two ways to say the same; use one.")
            start = parse_local_time(since)
            end = None if until is None else parse_local_time(until)
            if end is not None and end <= start:
                raise UsageError("`until` must be later than `since`.")
            async with store.connection() as conn:
                span = await changes_between(conn, name, start, end, page=page, size=page_size)
            response.headers["X-Last-Sync-At"] = local_time(span.committed_at)
            return {
                "changes": [spelled(dataset, change, before=before) for change in span.changes],
                "totalCount": span.total,
                "page": page,
                "pageSize": page_size,
                "totalPages": -(-span.total // page_size),
                "until": local_time(span.until),
            }
        found = await _waited_for(request, dataset, after, limit, wait, only)
        response.headers["X-Last-Sync-At"] = local_time(found.committed_at)
        return {
            "changes": [spelled(dataset, change, before=before) for change in found.changes],
            "next": str(found.next),
            "upToDate": found.up_to_date,
            "epoch": str(found.epoch),
            "head": found.head,
            "floor": found.floor,
        }

    @router.get(
        "/digest",
        summary=f"The state of {name} in one number",
        responses=answers(
            {"digest": "00" * 16, "count": 0, "head": 0, "cursor": "UuW1wF0rVZ…"}, NotFoundError
        ),
    )
    async def digest(response: Response, store: TheStore) -> dict[str, Any]:
        """A replica that recomputes the digest from its own records knows that it is equal."""
        async with store.connection() as conn:
            head = await head_of(conn, name)
        assert head.committed_at is not None
        response.headers["X-Last-Sync-At"] = local_time(head.committed_at)
        return {
            "digest": head.digest.hex(),
            "count": head.records,
            "head": head.seq,
            "cursor": str(Cursor(name, head.epoch, head.seq)),
        }

    @router.get(
        "/{key}/history",
        summary=f"The story of one record of {name}",
        responses=answers({"key": "1234567890", "history": []}),
    )
    async def story(key: str, store: TheStore) -> dict[str, Any]:
        """Every change of the record that is still kept, oldest first, with the state before."""
        async with store.connection() as conn:
            found = await history(conn, name, key)
        return {
            "key": key,
            "history": [spelled(dataset, change, before=True) for change in found],
        }

    return router


def spelled(dataset: Dataset, change: Change, *, before: bool) -> dict[str, Any]:
    """A change as it is handed out."""
    told = {
        "seq": change.seq,
        "changeType": change.kind,
        "changedAt": local_time(change.changed_at),
        **dataset.spell(change.key, change.body),
    }
    if before:
        told["before"] = change.before
        told["fields"] = change.fields
    return told


async def _waited_for(
    request: Request,
    dataset: Dataset,
    after: str | None,
    limit: int,
    wait: float,
    only: Sequence[str] | None,
) -> Any:
    """The page after the cursor; with `wait`, not before it has something or the time is over."""
    store = request.app.state.store
    cursor = None if after is None else Cursor.parse(after)

    async def look() -> Any:
        async with store.connection() as conn:
            return await changes_after(conn, dataset.name, cursor, limit=limit, keys=only)

    page = await look()
    if page.changes or not wait:
        return page
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait
    bell: Bell = request.app.state.bell
    async with bell.listening():
        while not page.changes and (left := deadline - loop.time()) > 0:
            await bell.wait(left)
            page = await look()
            if await request.is_disconnected():
                break
    return page
