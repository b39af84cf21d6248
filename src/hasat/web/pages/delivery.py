"""Delivery: webhooks and their dead letters, and how far those are who follow."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from hasat.deliver.endpoints import endpoints_of
from hasat.deliver.outbox import list_deliveries, replay
from hasat.deliver.sink_state import SinkState, load_sink_states
from hasat.errors import HasatError
from hasat.store.queries import load_query
from hasat.web.page import Action, Asked, House, Page

_SHOWN = 25


@dataclass(frozen=True)
class EndpointLine:
    """A webhook endpoint and what waits for it; its address may be a secret, its host is not."""

    name: str
    host: str | None
    """None if the settings no longer name it."""
    format: str | None
    waiting: int
    dead: int
    oldest_seconds: float | None


@dataclass(frozen=True)
class Follower:
    """Up to where a dataset's changes were passed on to a stream, or read with a key."""

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
    """All of the page."""

    enabled: bool
    wrong: str | None
    """What is wrong with the settings of webhooks, if anything is."""
    nats: str | None
    """The host of NATS, if changes go there."""
    endpoints: Sequence[EndpointLine]
    dead: Sequence[dict[str, Any]]
    recent: Sequence[dict[str, Any]]
    streams: Sequence[SinkState]
    """The streams in NATS that are behind for too long or reject changes."""
    followers: Sequence[Follower]
    replayed: int | None


async def delivery(asked: Asked) -> DeliveryPage:
    """Everything that goes out by itself."""
    house, store = asked.house, asked.store
    wrong = None
    try:
        endpoints = endpoints_of(house.settings)
    except HasatError as error:
        endpoints, wrong = (), str(error)
    known = {one.name: one for one in endpoints}
    count_deliveries = await _tallies(house, list(known))
    nats = house.settings.nats
    return DeliveryPage(
        enabled=house.settings.webhooks.enabled,
        wrong=wrong,
        nats=urlsplit(nats.url.get_secret_value()).hostname if nats.url else None,
        endpoints=[
            EndpointLine(
                name,
                known[name].host if name in known else None,
                known[name].format if name in known else None,
                waiting,
                dead,
                oldest,
            )
            for name, waiting, dead, oldest in count_deliveries
        ],
        dead=[one.public() for one in await list_deliveries(store, state="dead", limit=_SHOWN)],
        recent=[one.public() for one in await list_deliveries(store, limit=_SHOWN)],
        streams=[one for one in await load_sink_states(store, house.settings) if one.is_degraded],
        followers=await _followers(house),
        replayed=asked.number("replayed"),
    )


async def replay_some(asked: Asked) -> str:
    """One dead letter, or all of them, or those of one endpoint."""
    number, endpoint = asked.number("delivery"), asked.text("endpoint")
    done = await replay(asked.store, [number] if number is not None else None, endpoint or None)
    return f"/delivery?replayed={len(done)}" if done else "/delivery"


async def _tallies(
    house: House, names: Sequence[str]
) -> Sequence[tuple[str, int, int, float | None]]:
    async with house.store.connection() as conn:
        cursor = await conn.execute(load_query("hasat.web", "delivery_tallies"), {"names": names})
        return await cursor.fetchall()


async def _followers(house: House) -> Sequence[Follower]:
    return await house.store.rows(Follower, load_query("hasat.web", "followers"))


PAGES = (Page("/delivery", "delivery", delivery, "delivery"),)
ACTIONS = (Action("/delivery/replay", "delivery.replay", replay_some),)
