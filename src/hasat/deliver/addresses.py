"""Where a message may go: public addresses, and the private networks that the operator allows.

A name is resolved once, every address it has is judged, and the connection is made to one of those
very addresses: a name that points elsewhere a moment later (DNS rebinding) changes nothing.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

from hasat.errors import NotAllowedError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

_NAT64 = IPv6Network("64:ff9b::/96")


class PrivateAddressError(NotAllowedError):
    """A message would go to an address that is not public and not allowed."""

    code = "private-address"


async def resolve(host: str, port: int) -> Sequence[str]:
    """Every address of a name, as the machine's resolver tells them."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(place[0]) for *_, place in found))


async def checked_addresses(
    host: str, port: int, allowed: Iterable[str], resolver: Resolve = resolve
) -> list[Address]:
    """The addresses of a host, all of them fit to be sent to; else a PrivateAddressError."""
    networks = [ip_network(network) for network in allowed]
    # A scope (fe80::1%eth0) makes no address any more public.
    addresses = [ip_address(text.partition("%")[0]) for text in await resolver(host, port)]
    for address in addresses:
        if not (is_public(address) or is_within(address, networks)):
            raise PrivateAddressError(
                f"{host} is at {address}, which is not a public address; nothing was sent.",
                remedy="If that is meant, add its network to webhooks.private_networks.",
            )
    return addresses


def is_public(address: Address) -> bool:
    """Whether an address belongs to the public internet, also in what it carries inside."""
    inner = carried(address)
    if inner is not None:
        return is_public(inner)
    return address.is_global and not (address.is_multicast or address.is_reserved)


def is_within(address: Address, networks: Iterable[Network]) -> bool:
    forms = [address, carried(address)]
    return any(form in network for form in forms if form is not None for network in networks)


def carried(address: Address) -> IPv4Address | None:
    """The IPv4 address that packets to this IPv6 address end up at."""
    if isinstance(address, IPv4Address):
        return None
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    if address.teredo is not None:
        return address.teredo[1]
    return address.ipv4_mapped or address.sixtofour or _compatible(address)


def _compatible(address: IPv6Address) -> IPv4Address | None:
    """The long outdated ::a.b.c.d; :: and ::1 are themselves."""
    return IPv4Address(int(address)) if 1 < int(address) <= 0xFFFFFFFF else None
