"""Publish to JetStream in batches: send all messages in order, then await all acknowledgements."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

_ACK_SECONDS = 15.0


@dataclass(frozen=True)
class Outgoing:
    """A message to publish."""

    subject: str
    headers: dict[str, str]
    body: bytes


class RejectedError(NatsError):
    """JetStream rejected a message."""


class Pipeline:
    """Publishes over one connection; acknowledgements arrive in one inbox."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._inbox = client.new_inbox()
        self._waiting: dict[str, asyncio.Future[int]] = {}
        self._sent = 0

    async def open(self) -> None:
        await self._client.subscribe(f"{self._inbox}.*", cb=self._on_ack)

    async def publish(self, messages: Sequence[Outgoing]) -> list[int]:
        """Return the stream sequences once all are stored.

        Raises the first rejection, or TimeoutError.
        """
        loop = asyncio.get_running_loop()
        # Numbers are never reused: a late acknowledgement must not count for a later batch.
        first, self._sent = self._sent, self._sent + len(messages)
        self._waiting = {str(first + n): loop.create_future() for n in range(len(messages))}
        acks = list(self._waiting.values())
        async with asyncio.timeout(_ACK_SECONDS):
            for number, message in enumerate(messages, first):
                await self._client.publish(
                    message.subject,
                    message.body,
                    reply=f"{self._inbox}.{number}",
                    headers=message.headers,
                )
            await asyncio.wait(acks)
        for rejection in [ack.exception() for ack in acks]:
            if rejection is not None:
                raise rejection
        return [ack.result() for ack in acks]

    async def _on_ack(self, message: Msg) -> None:
        ack = self._waiting.pop(message.subject.rpartition(".")[2], None)
        if ack is None or ack.done():
            return
        try:
            ack.set_result(_parse(message.data))
        except NatsError as error:
            ack.set_exception(error)


def _parse(data: bytes) -> int:
    if not data:
        raise RejectedError("No NATS stream accepts the message.")
    ack: dict[str, Any] = json.loads(data)
    if "error" in ack:
        raise RejectedError(f"NATS rejects a message: {ack['error'].get('description')}.")
    if ack.get("duplicate"):
        raise RejectedError(
            "NATS takes a message for a duplicate although its stream does not have it; "
            "it is sent again when the duplicate window of NATS is over."
        )
    sequence: int = ack["seq"]
    return sequence
