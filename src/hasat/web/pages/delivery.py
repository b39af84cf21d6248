"""Delivery: webhooks, their dead letters, and the lag of consumers."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from hasat.deliver.jetstream_state import StreamState, load_stream_states
from hasat.deliver.outbox import list_deliveries, replay
from hasat.deliver.webhook_endpoints import endpoints_of
from hasat.errors import HasatError
from hasat.pages import Action, Page, PageContext, PageRequest
from hasat.store.queries import load_query

_MAX_DELIVERIES = 25


@dataclass(frozen=True)
class EndpointRow:
    """A webhook endpoint and its queue; its URL may contain a secret, its host does not."""

    name: str
    host: str | None
    """None if it is no longer in the settings."""
    format: str | None
    waiting: int
    dead: int
    oldest_seconds: float | None


@dataclass(frozen=True)
class Consumer:
    """The position of a stream or an API key in the changes of a dataset."""

    kind: str
    """stream or key."""
    name: str
    dataset: str
    seq: int
    head: int
    lag: int
    at: datetime


@dataclass(frozen=True)
class DeliveryPage:
    """The data of the page."""

    of_platform: bool
    """Whether it shows everything; else only the deliveries of the caller's watch lists."""
    enabled: bool
    error: str | None
    """The error in the webhook settings, if any."""
    nats: str | None
    """The host of the NATS server, if one is configured."""
    endpoints: Sequence[EndpointRow]
    dead: Sequence[dict[str, Any]]
    recent: Sequence[dict[str, Any]]
    streams: Sequence[StreamState]
    """The NATS streams that lag for too long or reject changes."""
    consumers: Sequence[Consumer]
    replayed: int | None


async def delivery(request: PageRequest) -> DeliveryPage:
    """Load webhooks, deliveries and consumers."""
    context, store = request.context, request.store
    problem = None
    try:
        endpoints = endpoints_of(context.settings)
    except HasatError as error:
        endpoints, problem = (), str(error)
    owner = request.owned
    if owner is not None:
        # The platform's endpoints and the other consumers are no business of a tenant.
        endpoints = ()
    known = {one.name: one for one in endpoints}
    counts = await _endpoint_counts(context, list(known)) if owner is None else []
    nats = context.settings.nats
    return DeliveryPage(
        of_platform=owner is None,
        enabled=context.settings.webhooks.enabled,
        error=problem,
        nats=urlsplit(nats.url.get_secret_value()).hostname if nats.url and not owner else None,
        endpoints=[
            EndpointRow(
                name,
                known[name].host if name in known else None,
                known[name].format if name in known else None,
                waiting,
                dead,
                oldest,
            )
            for name, waiting, dead, oldest in counts
        ],
        dead=[
            one.public()
            for one in await list_deliveries(
                store, state="dead", owner=owner, limit=_MAX_DELIVERIES
            )
        ],
        recent=[
            one.public() for one in await list_deliveries(store, owner=owner, limit=_MAX_DELIVERIES)
        ],
        streams=await _degraded_streams(context) if owner is None else [],
        consumers=await _consumers(context) if owner is None else [],
        replayed=request.number("replayed"),
    )


async def resend(request: PageRequest) -> str:
    """Resend one dead letter, those of one endpoint, or all."""
    number, endpoint = request.number("delivery"), request.text("endpoint")
    done = await replay(request.store, [number] if number is not None else None, endpoint or None)
    return f"/delivery?replayed={len(done)}" if done else "/delivery"


async def _endpoint_counts(
    context: PageContext, names: Sequence[str]
) -> Sequence[tuple[str, int, int, float | None]]:
    async with context.store.connection() as conn:
        cursor = await conn.execute(load_query("hasat.web", "delivery_counts"), {"names": names})
        return await cursor.fetchall()


async def _degraded_streams(context: PageContext) -> Sequence[StreamState]:
    states = await load_stream_states(context.store, context.settings)
    return [one for one in states if one.is_degraded]


async def _consumers(context: PageContext) -> Sequence[Consumer]:
    return await context.store.rows(Consumer, load_query("hasat.web", "consumers"))


PAGES = (Page("/delivery", "delivery", delivery, "delivery", datasets=()),)
ACTIONS = (Action("/delivery/replay", "delivery.replay", resend),)
