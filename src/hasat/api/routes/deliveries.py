"""Deliveries and dead letters."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from hasat.deliver.outbox import Delivery, get_delivery, list_deliveries, replay
from hasat.deliver.watchlists.messages import WATCHLIST_KINDS, WatchMessage
from hasat.errors import ConflictError, DatabaseError, NotFoundError
from hasat.http.routes import (
    CallerDep,
    StorableText,
    StoreDep,
    audited,
    declare_responses,
    reads,
    reject_parameters,
)
from hasat.messages import msg
from hasat.source import Source
from hasat.text import MAX_EXACT_INTEGER

router = APIRouter(tags=["operation"])

_DELIVERY = {
    "id": 17,
    "messageId": "msg_5f0c6d3e8f0e4a559c390d6f2c7d1a10",
    "endpoint": "http",
    "event": "SyncCompleted",
    "severity": "Info",
    "summary": "Liste senkronizasyonu başarıyla tamamlandı. Süre: 00:00:41.007",
    "at": "2026-11-02T06:04:11.000214Z",
    "state": "dead",
    "failedAttempts": 12,
    "nextAttemptAt": None,
    "settledAt": "2026-11-02T12:31:09.120551Z",
    "lastStatus": 503,
    "lastError": "The endpoint responded with 503",
}

Endpoint = Annotated[StorableText | None, Query(description="Only this endpoint.")]
Before = Annotated[int | None, Query(ge=1, le=MAX_EXACT_INTEGER, description="Only lower numbers.")]
Limit = Annotated[int, Query(ge=1, le=1000, description="Maximum number.")]
Number = Annotated[int, Path(ge=1, le=MAX_EXACT_INTEGER, description="The delivery's number.")]


class ReplayRequest(BaseModel):
    """The dead letters to send again; all by default."""

    model_config = ConfigDict(extra="forbid")

    endpoint: StorableText | None = Field(default=None, max_length=200, examples=["http"])


@router.get(
    "/deliveries",
    summary="Deliveries",
    responses=declare_responses({"deliveries": [_DELIVERY]}, DatabaseError),
)
@reads()
async def deliveries(
    store: StoreDep,
    caller: CallerDep,
    endpoint: Endpoint = None,
    state: Literal["waiting", "delivered", "dead"] | None = None,
    before: Before = None,
    limit: Limit = 100,
) -> dict[str, Any]:
    """Newest first; `before` continues after the last one of a page.

    A key without the scope operate sees the deliveries of its own watch lists.
    """
    found = await list_deliveries(
        store, endpoint=endpoint, state=state, before=before, owner=caller.owned, limit=limit
    )
    return {"deliveries": [one.public() for one in found]}


@router.get(
    "/deliveries/{number}",
    summary="One delivery with its message",
    responses=declare_responses(
        {**_DELIVERY, "payload": {"Duration": "00:00:41.007"}}, NotFoundError
    ),
)
@reads()
async def delivery(
    number: Number, request: Request, store: StoreDep, caller: CallerDep
) -> dict[str, Any]:
    found = await get_delivery(store, number, caller.owned)
    return {**found.public(), "payload": published_payload(found, request.app.state.sources)}


def published_payload(delivery: Delivery, sources: Sequence[Source]) -> Mapping[str, Any]:
    """Return the payload of a delivery; the changes of a watch list as its webhooks get them."""
    if delivery.kind not in WATCHLIST_KINDS:
        return delivery.payload
    datasets = {one.name: one for source in sources for one in source.datasets}
    return WatchMessage.read(delivery.payload, datasets).public()


@router.get(
    "/dead-letters",
    summary="Dead letters",
    responses=declare_responses({"deliveries": [_DELIVERY]}, DatabaseError),
)
@reads()
async def dead_letters(
    store: StoreDep,
    caller: CallerDep,
    endpoint: Endpoint = None,
    before: Before = None,
    limit: Limit = 100,
) -> dict[str, Any]:
    """Newest first; they are not retried until they are replayed."""
    found = await list_deliveries(
        store, endpoint=endpoint, state="dead", before=before, owner=caller.owned, limit=limit
    )
    return {"deliveries": [one.public() for one in found]}


@router.post(
    "/deliveries/{number}/replay",
    summary="Replay one delivery",
    dependencies=[audited("delivery.replay")],
    responses=declare_responses({"replayed": [17]}, NotFoundError, ConflictError),
)
async def replay_one(number: Number, store: StoreDep) -> dict[str, list[int]]:
    """Keeps its message id; sent before everything newer for the same endpoint."""
    return {"replayed": await replay(store, [number])}


@router.post(
    "/dead-letters/replay",
    summary="Replay dead letters",
    dependencies=[audited("delivery.replay")],
    responses=declare_responses({"replayed": [17, 18]}, DatabaseError),
)
async def replay_all(
    request: Request,
    store: StoreDep,
    replay_request: ReplayRequest | None = None,
    endpoint: Endpoint = None,
) -> dict[str, list[int]]:
    """All, or those of one endpoint (in the query or the body), in their original order."""
    if replay_request is not None and replay_request.endpoint is not None:
        reject_parameters(request, ("endpoint",), msg("the body already names the endpoint."))
        endpoint = replay_request.endpoint
    return {"replayed": await replay(store, None, endpoint)}
