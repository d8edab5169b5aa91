"""Where the gateway may connect: to configured origins only, with the address checked at connect time.

A name is resolved here and the connection goes to the checked address, so that a second resolution cannot give another
(DNS rebinding). Link-local addresses (169.254.0.0/16 and fe80::/10, where clouds serve instance credentials),
multicast and unspecified ones are never dialled; loopback and private ones are, as self-hosted engines live there.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import time

from gateway.errors import UpstreamError, UpstreamFailure

_METADATA = frozenset({"fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192"})
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_KEEP_S = 5.0
Address = tuple[int, str]


def permitted(address: str) -> bool:
    """True if the gateway may connect to this IP address."""
    try:
        ip = ipaddress.ip_address(address.split("%")[0])
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        # An IPv4 address inside an IPv6 one is reached as that address (RFC 4291, 2.5.5.2; RFC 3056; RFC 6052).
        inner = ip.ipv4_mapped or ip.sixtofour
        if inner is None and ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        ip = inner or ip
    return not (ip.is_link_local or ip.is_multicast or ip.is_unspecified or str(ip) in _METADATA)


class Resolver:
    """Names to permitted addresses, remembered for a few seconds."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], tuple[float, list[Address]]] = {}

    async def resolve(self, host: str, port: int) -> list[Address]:
        """Permitted (family, address) pairs in the resolver's order; raises a `connect` failure when there is none."""
        known = self._known.get((host, port))
        now = time.monotonic()
        if known is not None and known[0] > now:
            return known[1]
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError:
            raise unreachable("the upstream's name cannot be resolved") from None
        addresses = [(int(family), str(place[0])) for family, _, _, _, place in found if permitted(str(place[0]))]
        if not addresses:
            raise unreachable("the upstream's address is not permitted")
        if len(self._known) > 1000:
            self._known.clear()
        self._known[(host, port)] = (now + _KEEP_S, addresses)
        return addresses


def unreachable(message: str) -> UpstreamFailure:
    """No connection was made, so nothing was sent."""
    return UpstreamFailure("connect", UpstreamError(message), sent=False)
