"""Send the messages of watch lists: one attempt for a channel of any type."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from psycopg.rows import class_row

from hasat.deliver.mail import send_mail
from hasat.deliver.outbox import DueDelivery
from hasat.deliver.watchlists.channels import Channel
from hasat.deliver.watchlists.lists import PACKAGE
from hasat.deliver.watchlists.messages import (
    WatchMessage,
    mail_of,
    request_of,
    telegram_request,
)
from hasat.deliver.webhooks import AttemptResult, send
from hasat.feed.dataset import Dataset
from hasat.messages import msg
from hasat.settings import Settings
from hasat.store import Store
from hasat.store.queries import load_query

MAX_DUE = 1000
_MAIL_FACTOR = 3
"""A mail server takes several steps for a message, an HTTP server one."""


@dataclass(frozen=True)
class DueChannel:
    """A channel whose oldest waiting delivery is due."""

    id: int
    type: str
    endpoint: str


def timeout_of(kind: str, settings: Settings) -> float:
    """Return how long an attempt of a type of channel may take."""
    seconds = settings.webhooks.http.timeout_seconds
    return _MAIL_FACTOR * seconds if kind == "email" else seconds


async def due_channels(store: Store) -> list[DueChannel]:
    """Return the channels that have something to send now."""
    return await store.rows(DueChannel, load_query(PACKAGE, "due_channels"), {"limit": MAX_DUE})


async def send_to_channel(
    store: Store,
    settings: Settings,
    datasets: Mapping[str, Dataset],
    channel: int,
    due: DueDelivery,
    now: datetime,
) -> AttemptResult:
    """Send a delivery to its channel as it is stored now: its address may have changed."""
    found = await _read_channel(store, channel)
    if found is None:
        return AttemptResult(error=msg("The channel was removed from the watch list."))
    return await attempt(
        found, WatchMessage.read(due.payload, datasets), due.message_id, settings, now
    )


async def attempt(
    channel: Channel, message: WatchMessage, message_id: UUID, settings: Settings, now: datetime
) -> AttemptResult:
    """Send a message to a channel once."""
    seconds = timeout_of(channel.type, settings)
    if channel.type == "email":
        sender = settings.smtp.sender or ""
        mail = mail_of(message, message_id, channel.settings["to"], sender, now)
        return await send_mail(mail, settings.smtp, timeout_seconds=seconds)
    if channel.type == "telegram":
        token = settings.telegram.token
        if token is None:
            return AttemptResult(error=msg("HASAT_TELEGRAM_TOKEN is not set."))
        base = settings.telegram.base_url.rstrip("/")
        url = f"{base}/bot{token.get_secret_value()}/sendMessage"
        payload = telegram_request(message, channel.settings["chat"])
    else:
        url = channel.settings["url"]
        payload = request_of(message, message_id, channel, now)
    return await send(
        url,
        payload,
        timeout_seconds=seconds,
        private_networks=settings.webhooks.private_networks,
        now=now,
    )


async def _read_channel(store: Store, channel: int) -> Channel | None:
    async with store.connection() as conn, conn.cursor(row_factory=class_row(Channel)) as cursor:
        await cursor.execute(load_query(PACKAGE, "channel"), {"id": channel})
        return await cursor.fetchone()
