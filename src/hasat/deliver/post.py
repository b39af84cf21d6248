"""One try to hand a message over: to a checked address, in bounded time, with a bounded answer."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime

import httpx2

from hasat.deliver.messages import Message
from hasat.fetch.addresses import CheckedTransport, PrivateAddressError, Resolve, resolve
from hasat.messages import msg

_MOST_ANSWER_BYTES = 16_384
_SHOWN = 300
GONE = 410


@dataclass(frozen=True)
class Answer:
    """How a try went. `error` is None if and only if the endpoint took the message."""

    status: int | None = None
    error: str | None = None
    retry_after: float | None = None
    """Seconds for which the endpoint asked to be left alone."""

    @property
    def final(self) -> bool:
        """Whether trying again makes no sense."""
        return self.status == GONE


async def post(
    url: str,
    message: Message,
    *,
    timeout_seconds: float,
    private_networks: Sequence[str],
    now: datetime,
    resolver: Resolve = resolve,
) -> Answer:
    """Send the message once; whatever goes wrong is an answer, not an error."""
    try:
        async with asyncio.timeout(timeout_seconds):
            return await _post(
                url, message, CheckedTransport(private_networks, resolver=resolver), now
            )
    except TimeoutError:
        return Answer(
            error=msg("It did not answer within {seconds:g} seconds.", seconds=timeout_seconds)
        )
    except PrivateAddressError as error:
        return Answer(error=str(error))
    except (httpx2.HTTPError, OSError, UnicodeError) as error:
        return Answer(
            error=msg("It could not be reached: {error}.", error=str(error) or type(error).__name__)
        )


async def _post(url: str, message: Message, transport: CheckedTransport, now: datetime) -> Answer:
    async with (
        httpx2.AsyncClient(transport=transport, timeout=None) as client,
        client.stream("POST", url, content=message.body, headers=message.headers) as response,
    ):
        status = response.status_code
        if response.is_success:
            return Answer(status)
        text = await _beginning(response)
        wait = _seconds_of(response.headers.get("Retry-After"), now)
    if 300 <= status < 400:
        error = msg("It answered {status}, a redirect; those are not followed.", status=status)
    elif text:
        error = msg("It answered {status}: {text}", status=status, text=text)
    else:
        error = msg("It answered {status}", status=status)
    return Answer(status, error, wait)


async def _beginning(response: httpx2.Response) -> str:
    """The start of the answer, as far as a person wants to see it."""
    found = b""
    async for chunk in response.aiter_raw(_MOST_ANSWER_BYTES):
        found += chunk
        if len(found) >= _MOST_ANSWER_BYTES:
            break
    text = found[:_MOST_ANSWER_BYTES].decode(errors="replace")
    return re.sub(r"\s+", " ", text).strip()[:_SHOWN]


def _seconds_of(retry_after: str | None, now: datetime) -> float | None:
    """Retry-After, which is a number of seconds or a date."""
    if not retry_after:
        return None
    try:
        if retry_after.strip().isdigit():
            return float(retry_after)
        return max((parsedate_to_datetime(retry_after) - now).total_seconds(), 0.0)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
