"""Publishing to JetStream without waiting in between: all out in order, then all answers."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

_ANSWER_SECONDS = 15.0


@dataclass(frozen=True)
class Outgoing:
    """A message to publish."""

    subject: str
    headers: dict[str, str]
    body: bytes


class RefusedError(NatsError):
    """JetStream does not keep a message."""


class Pipeline:
    """Publishes over one connection; its answers come to one inbox."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._inbox = client.new_inbox()
        self._waiting: dict[str, asyncio.Future[int]] = {}
        self._sent = 0

    async def open(self) -> None:
        await self._client.subscribe(f"{self._inbox}.*", cb=self._heard)

    async def publish(self, messages: Sequence[Outgoing]) -> list[int]:
        """Their stream sequences, once each is kept; raises the first refusal, or TimeoutError."""
        loop = asyncio.get_running_loop()
        # Numbers are not used twice: a late answer to an earlier batch must not count for this one.
        first, self._sent = self._sent, self._sent + len(messages)
        self._waiting = {str(first + n): loop.create_future() for n in range(len(messages))}
        answers = list(self._waiting.values())
        async with asyncio.timeout(_ANSWER_SECONDS):
            for number, message in enumerate(messages, first):
                await self._client.publish(
                    message.subject,
                    message.body,
                    reply=f"{self._inbox}.{number}",
                    headers=message.headers,
                )
            await asyncio.wait(answers)
        for refusal in [answer.exception() for answer in answers]:
            if refusal is not None:
                raise refusal
        return [answer.result() for answer in answers]

    async def _heard(self, message: Msg) -> None:
        answer = self._waiting.pop(message.subject.rpartition(".")[2], None)
        if answer is None or answer.done():
            return
        try:
            answer.set_result(_parse(message.data))
        except NatsError as error:
            answer.set_exception(error)


def _parse(data: bytes) -> int:
    if not data:
        raise RefusedError("No stream of NATS takes the message.")
    told: dict[str, Any] = json.loads(data)
    if "error" in told:
        raise RefusedError(f"NATS refuses a message: {told['error'].get('description')}.")
    if told.get("duplicate"):
        raise RefusedError(
            "NATS takes a message for one that it has already, although its stream has not; "
            "it is sent again when NATS has forgotten that."
        )
    sequence: int = told["seq"]
    return sequence
