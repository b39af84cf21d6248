"""Publish to NATS as a worker does, and read back what a stream has."""

import json
from typing import Any
from uuid import uuid4

from nats.aio.client import Client
from nats.js.errors import NotFoundError

from hasat.deliver.jetstream import JetStreamSink
from hasat.deliver.outbox import release_leases
from hasat.settings import Settings
from hasat.store import Store
from support.feed_toys import TOYS

STREAM = f"HASAT_{TOYS.name}"


def sink_of(store: Store, settings: Settings) -> JetStreamSink:
    return JetStreamSink(store, settings.nats, uuid4(), lease_seconds=60)


async def publish(store: Store, settings: Settings) -> None:
    """One round of a process that knows nothing yet and ends well."""
    holder = uuid4()
    sink = JetStreamSink(store, settings.nats, holder)
    try:
        async with sink.connected():
            await sink.publish_pending()
    finally:
        await release_leases(store, holder)


async def messages(client: Client, stream: str = STREAM) -> list[dict[str, Any]]:
    """Everything in the stream, with each message's subject and headers."""
    jetstream = client.jetstream()
    state = (await jetstream.stream_info(stream)).state
    found = []
    for sequence in range(state.first_seq, state.last_seq + 1):
        try:
            message = await jetstream.get_msg(stream, seq=sequence)
        except NotFoundError:
            continue
        assert message.data is not None
        found.append(
            {
                **json.loads(message.data),
                "subject": message.subject,
                "headers": message.headers or {},
            }
        )
    return found


def seqs(found: list[dict[str, Any]]) -> list[int]:
    return [one["seq"] for one in found if "control" not in one]
