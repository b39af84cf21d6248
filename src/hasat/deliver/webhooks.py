"""Send one request to a webhook endpoint: to a checked address, within bounded time and size."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime

import httpx2

from hasat.deliver.payloads import Payload
from hasat.fetch.addresses import CheckedTransport, PrivateAddressError, Resolve, resolve
from hasat.messages import msg

_MAX_RESPONSE_BYTES = 16_384
_SHOWN = 300
GONE = 410


@dataclass(frozen=True)
class AttemptResult:
    """The result of one attempt; `error` is None if and only if the endpoint accepted it."""

    status: int | None = None
    error: str | None = None
    retry_after: float | None = None
    """Seconds that the endpoint asked to wait."""

    @property
    def is_final(self) -> bool:
        """Return whether a retry is pointless."""
        return self.status == GONE


async def send(
    url: str,
    payload: Payload,
    *,
    timeout_seconds: float,
    private_networks: Sequence[str],
    now: datetime,
    resolver: Resolve = resolve,
) -> AttemptResult:
    """Send the payload once; a failure is a result, not an exception."""
    try:
        async with asyncio.timeout(timeout_seconds):
            return await _send(
                url, payload, CheckedTransport(private_networks, resolver=resolver), now
            )
    except TimeoutError:
        return AttemptResult(
            error=msg("No response within {seconds:g} seconds.", seconds=timeout_seconds)
        )
    except PrivateAddressError as error:
        return AttemptResult(error=str(error))
    except (httpx2.HTTPError, OSError, UnicodeError) as error:
        return AttemptResult(
            error=msg(
                "The endpoint cannot be reached: {error}.", error=str(error) or type(error).__name__
            )
        )


async def _send(
    url: str, payload: Payload, transport: CheckedTransport, now: datetime
) -> AttemptResult:
    async with (
        httpx2.AsyncClient(transport=transport, timeout=None) as client,
        client.stream("POST", url, content=payload.body, headers=payload.headers) as response,
    ):
        status = response.status_code
        if response.is_success:
            return AttemptResult(status)
        text = await _beginning(response)
        wait = _seconds_of(response.headers.get("Retry-After"), now)
    if 300 <= status < 400:
        error = msg("It responded with {status}; redirects are not followed.", status=status)
    elif text:
        error = msg("It responded with {status}: {text}", status=status, text=text)
    else:
        error = msg("It responded with {status}", status=status)
    return AttemptResult(status, error, wait)


async def _beginning(response: httpx2.Response) -> str:
    """Return the beginning of the response for display."""
    found = b""
    async for chunk in response.aiter_raw(_MAX_RESPONSE_BYTES):
        found += chunk
        if len(found) >= _MAX_RESPONSE_BYTES:
            break
    text = found[:_MAX_RESPONSE_BYTES].decode(errors="replace")
    return re.sub(r"\s+", " ", text).strip()[:_SHOWN]


def _seconds_of(retry_after: str | None, now: datetime) -> float | None:
    """Return the seconds of Retry-After, which is a number or a date."""
    if not retry_after:
        return None
    try:
        if retry_after.strip().isdigit():
            return float(retry_after)
        return max((parsedate_to_datetime(retry_after) - now).total_seconds(), 0.0)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
