"""One try to hand a message over: to a checked address, in bounded time, with a bounded answer."""

import asyncio
import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import cache
from ipaddress import IPv6Address
from urllib.parse import SplitResult, urlsplit

import httpx2

from hasat.deliver.addresses import (
    Address,
    PrivateAddressError,
    Resolve,
    checked_addresses,
    resolve,
)
from hasat.deliver.messages import Message

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
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        async with asyncio.timeout(timeout_seconds):
            addresses = await checked_addresses(host, port, private_networks, resolver)
            return await _first_reachable(parts, host, port, addresses, message, now)
    except TimeoutError:
        return Answer(error=f"It did not answer within {timeout_seconds:g} seconds.")
    except PrivateAddressError as error:
        return Answer(error=str(error))
    except (httpx2.HTTPError, OSError, UnicodeError) as error:
        return Answer(error=f"It could not be reached: {str(error) or type(error).__name__}.")


async def _first_reachable(
    parts: SplitResult,
    host: str,
    port: int,
    addresses: Sequence[Address],
    message: Message,
    now: datetime,
) -> Answer:
    for place, address in enumerate(addresses, start=1):
        try:
            return await _post_to(parts, host, port, address, message, now)
        except httpx2.ConnectError:
            if place == len(addresses):
                raise
    return Answer(error=f"{host} has no address.")


async def _post_to(
    parts: SplitResult, host: str, port: int, address: Address, message: Message, now: datetime
) -> Answer:
    literal = f"[{address}]" if isinstance(address, IPv6Address) else str(address)
    target = parts._replace(netloc=f"{literal}:{port}", fragment="").geturl()
    # A client of its own for every try: a connection to the same address that was made for
    # another name is not one to this name. Proxies would resolve the name again, so none is used.
    async with (
        httpx2.AsyncClient(verify=_trust(), trust_env=False, timeout=None) as client,
        client.stream(
            "POST",
            target,
            content=message.body,
            headers={**message.headers, "Host": parts.netloc},
            extensions={"sni_hostname": host},
        ) as response,
    ):
        status = response.status_code
        if response.is_success:
            return Answer(status)
        text = await _beginning(response)
        wait = _seconds_of(response.headers.get("Retry-After"), now)
    said = f": {text}" if text else ""
    if 300 <= status < 400:
        return Answer(status, f"It answered {status}, a redirect; those are not followed.", wait)
    return Answer(status, f"It answered {status}{said}", wait)


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
    if retry_after.strip().isdigit():
        return float(retry_after)
    try:
        return max((parsedate_to_datetime(retry_after) - now).total_seconds(), 0.0)
    except (ValueError, TypeError):
        return None


@cache
def _trust() -> ssl.SSLContext:
    # SSL_CERT_FILE and SSL_CERT_DIR name the operator's own authorities.
    return httpx2.create_ssl_context()
