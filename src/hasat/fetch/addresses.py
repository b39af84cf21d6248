"""Restrict requests to public addresses and to private networks that the operator allows.

A name is resolved once, all of its addresses are checked, and the connection is made to one of
the checked addresses. DNS rebinding therefore has no effect.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import cache
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from urllib.request import getproxies, proxy_bypass

import httpx2

from hasat.errors import NotAllowedError
from hasat.messages import msg

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

_NAT64 = IPv6Network("64:ff9b::/96")


class PrivateAddressError(NotAllowedError):
    """A request would go to a host without a public or allowed address.

    The message does not contain the address, nor whether the name resolves: the person who chose
    the name must not learn about a private network.
    """

    code = "private-address"

    def __init__(self, host: str) -> None:
        super().__init__(
            msg("{host} has no public address; nothing was sent.", host=host),
            remedy=msg(
                "Check the name. If a private network is meant, add it to "
                "webhooks.private_networks."
            ),
        )


async def resolve(host: str, port: int) -> Sequence[str]:
    """Return every address of a name from the system's resolver."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(socket_address[0]) for *_, socket_address in found))


async def checked_addresses(
    host: str, port: int, allowed: Iterable[str], resolver: Resolve = resolve
) -> list[Address]:
    """Return the addresses of a host; raise PrivateAddressError unless all are allowed."""
    try:
        # A scope (fe80::1%eth0) does not make an address public.
        addresses = [ip_address(text.partition("%")[0]) for text in await resolver(host, port)]
    except (OSError, UnicodeError):
        addresses = []
    networks = list(allowed)
    if not (addresses and all(is_allowed(address, networks) for address in addresses)):
        raise PrivateAddressError(host)
    return addresses


def is_allowed(address: Address, networks: Iterable[str]) -> bool:
    """Return whether an address is public, or within a network that the operator allows."""
    return is_public(address) or is_within(address, [ip_network(one) for one in networks])


def is_public(address: Address) -> bool:
    """Return whether an address, and one embedded in it, belongs to the public internet."""
    inner = embedded_address(address)
    if inner is not None:
        return is_public(inner)
    if isinstance(address, IPv6Address) and address.is_site_local:
        # Python calls these deprecated addresses global, but networks that use them are private.
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved)


def is_within(address: Address, networks: Iterable[Network]) -> bool:
    forms = [address, embedded_address(address)]
    return any(form in network for form in forms if form is not None for network in networks)


def embedded_address(address: Address) -> IPv4Address | None:
    """Return the IPv4 address that packets to this IPv6 address reach."""
    if isinstance(address, IPv4Address):
        return None
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    if address.teredo is not None:
        return address.teredo[1]
    return address.ipv4_mapped or address.sixtofour or _compatible(address)


def _compatible(address: IPv6Address) -> IPv4Address | None:
    """Return the address in the obsolete form ::a.b.c.d; :: and ::1 are not of that form."""
    return IPv4Address(int(address)) if 1 < int(address) <= 0xFFFFFFFF else None


class CheckedTransport(httpx2.AsyncBaseTransport):
    """Connect only to checked addresses, also after a redirect.

    `trusted` is a host that the operator has configured: it is not checked, and the proxy of the
    environment applies to it. Other hosts use no proxy, since a proxy would resolve the name again.
    """

    def __init__(
        self,
        allowed: Iterable[str],
        *,
        trusted: str | None = None,
        resolver: Resolve = resolve,
    ) -> None:
        self._allowed = tuple(allowed)
        self._trusted = trusted
        self._resolver = resolver
        self._transports: dict[tuple[str, str], httpx2.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url, host = request.url, request.url.host
        if host == self._trusted:
            return await self._transport(url, _proxy(url)).handle_async_request(request)
        port = url.port or (443 if url.scheme == "https" else 80)
        addresses = await checked_addresses(host, port, self._allowed, self._resolver)
        for number, address in enumerate(addresses, start=1):
            direct = httpx2.Request(
                request.method,
                url.copy_with(host=str(address)),
                headers=request.headers,
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": host},
            )
            try:
                return await self._transport(url).handle_async_request(direct)
            except httpx2.ConnectError:
                if number == len(addresses):
                    raise
        raise PrivateAddressError(host)

    async def aclose(self) -> None:
        for transport in self._transports.values():
            await transport.aclose()

    def _transport(self, url: httpx2.URL, proxy: str | None = None) -> httpx2.AsyncHTTPTransport:
        # One per name: a connection to an address must not be reused for another name.
        key = url.scheme, url.host
        if key not in self._transports:
            self._transports[key] = httpx2.AsyncHTTPTransport(verify=_ssl_context(), proxy=proxy)
        return self._transports[key]


def _proxy(url: httpx2.URL) -> str | None:
    return None if proxy_bypass(url.host) else getproxies().get(url.scheme)


@cache
def _ssl_context() -> ssl.SSLContext:
    # SSL_CERT_FILE and SSL_CERT_DIR name the operator's own authorities.
    return httpx2.create_ssl_context()
