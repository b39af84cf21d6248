"""Deliveries and dead letters."""

import asyncio
from collections.abc import Iterable
from typing import Annotated, Any, Literal
import psycopg
import structlog
from fastapi import APIRouter, Path, Query, Request
from prometheus_client.core import GaugeMetricFamily, Metric
from pydantic import BaseModel, ConfigDict, Field
from hasat.deliver.outbox import count_deliveries, get_delivery, list_deliveries, replay
from hasat.deliver.sink_state import load_sink_states
from hasat.errors import ConflictError, DatabaseError, NotFoundError
from hasat.http.routes import StorableText, StoreDep, audited, declare_responses, reject_parameters
from hasat.settings import Settings
from hasat.store import Store

router = APIRouter(tags=["operation"])

_DELIVERY = {
    "id": 17,
    "messageId": "msg_5f0c6d3e8f0e4a559c390d6f2c7d1a10",
    "endpoint": "http",
    "event": "SyncCompleted",
    "severity": "Info",
    "summary": "GIB mükellef listesi senkronizasyonu başarıyla tamamlandı. Süre: 00:00:41.007",
    "at": "2026-11-02T06:04:11.000214Z",
    "state": "dead",
    "failedAttempts": 12,
    "nextAttemptAt": None,
    "settledAt": "2026-11-02T12:31:09.120551Z",
    "lastStatus": 503,
    "lastError": "It answered 503",
}

Endpoint = Annotated[StorableText | None, Query(description="Only of this endpoint.")]
Before = Annotated[int | None, Query(ge=1, le=2**62, description="Only with a lower number.")]
Limit = Annotated[int, Query(ge=1, le=1000, description="How many at the most.")]
Number = Annotated[int, Path(ge=1, le=2**62, description="The delivery's number.")]


class Which(BaseModel):
    """Which dead letters to send again; all, if nothing is said."""

    model_config = ConfigDict(extra="forbid")

    endpoint: StorableText | None = Field(default=None, max_length=200, examples=["http"])


@router.get(
    "/deliveries",
    summary="What was delivered to whom",
    responses=declare_responses({"deliveries": [_DELIVERY]}, DatabaseError),
)
async def deliveries(
    store: StoreDep,
    endpoint: Endpoint = None,
    state: Literal["waiting", "delivered", "dead"] | None = None,
    before: Before = None,
    limit: Limit = 100,
) -> dict[str, Any]:
    """Newest first; `before` goes on after the last one of an earlier answer."""
    found = await list_deliveries(store, endpoint=endpoint, state=state, before=before, limit=limit)
    return {"deliveries": [one.public() for one in found]}


@router.get(
    "/deliveries/{number}",
    summary="One delivery with its message",
    responses=declare_responses(
        {**_DELIVERY, "payload": {"Duration": "00:00:41.007"}}, NotFoundError
    ),
)
async def delivery(number: Number, store: StoreDep) -> dict[str, Any]:
    found = await get_delivery(store, number)
    return {**found.public(), "payload": found.payload}


@router.get(
    "/dead-letters",
    summary="What could not be delivered",
    responses=declare_responses({"deliveries": [_DELIVERY]}, DatabaseError),
)
async def dead_letters(
    store: StoreDep, endpoint: Endpoint = None, before: Before = None, limit: Limit = 100
) -> dict[str, Any]:
    """Newest first; they are no longer tried, until somebody has them sent again."""
    found = await list_deliveries(
        store, endpoint=endpoint, state="dead", before=before, limit=limit
    )
    return {"deliveries": [one.public() for one in found]}


@router.post(
    "/deliveries/{number}/replay",
    summary="Send one delivery again",
    dependencies=[audited("delivery.replay")],
    responses=declare_responses({"replayed": [17]}, NotFoundError, ConflictError),
)
async def replay_one(number: Number, store: StoreDep) -> dict[str, list[int]]:
    """Under its old id, before everything newer for the same endpoint."""
    return {"replayed": await replay(store, [number])}


@router.post(
    "/dead-letters/replay",
    summary="Send dead letters again",
    dependencies=[audited("delivery.replay")],
    responses=declare_responses({"replayed": [17, 18]}, DatabaseError),
)
async def replay_all(
    request: Request, store: StoreDep, which: Which | None = None, endpoint: Endpoint = None
) -> dict[str, list[int]]:
    """All of them, or those of one endpoint (in the address or the body), in their old order."""
    if which is not None and which.endpoint is not None:
        reject_parameters(request, ("endpoint",), "the body names the endpoint already.")
        endpoint = which.endpoint
    return {"replayed": await replay(store, None, endpoint)}
