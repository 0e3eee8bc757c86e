"""Which peers may use the well-known key, which is no secret: those on this machine and in the configured networks.

A proxy on this machine makes every client look local. So a request with a proxy's header is not local; it is trusted
only if the proxy's own address is in a network of `allow_networks`.
"""

import re
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

_FORWARDED: Final = ("x-forwarded-for", "forwarded", "x-real-ip", "via")
_HOST: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]]+))(?::[0-9]{1,5})?")
_PRIVATE: Final = (".localhost", ".local", ".internal", ".test", ".home.arpa")
"""Suffixes that no public name server resolves (RFC 6761, 6762, 8375; ICANN has reserved `internal`)."""

_KNOWN_MAX: Final = 4_096
"""Addresses in the cache, which is cleared when it is full."""


def is_local_host(host: str) -> bool:
    """Whether a Host header names this machine without a name server: `localhost:5300`, `127.0.0.1`, `[::1]:5300`."""
    name = _name_in(host)
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def is_private_host(host: str) -> bool:
    """Whether no owner of a public domain can have made this host name resolve to us (DNS rebinding): true for an
    address, for a name without a dot, and for a name of a private network."""
    name = _name_in(host)
    if name and "." not in name and ":" not in name:
        return True
    if name.endswith(_PRIVATE):
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _name_in(host: str) -> str:
    """The host name or address without its port; empty for an invalid Host header."""
    match = _HOST.fullmatch(host)
    return "" if match is None else (match[1] or match[2]).lower().removesuffix(".")


class TrustedPeers:
    def __init__(self, networks: Iterable[str] = ()) -> None:
        self._networks: Final = [ip_network(network, strict=False) for network in networks]
        self._known: dict[str, tuple[bool, bool]] = {}

    def is_trusted(self, peer: str, headers: Mapping[str, str]) -> bool:
        """`peer` is an address without its port; anything else, such as the path of a socket, is not trusted."""
        local, named = self._classify(peer)
        return named or (local and not any([name in headers for name in _FORWARDED]))

    def is_local(self, peer: str, headers: Mapping[str, str]) -> bool:
        return self._classify(peer)[0] and not any([name in headers for name in _FORWARDED])

    def _classify(self, peer: str) -> tuple[bool, bool]:
        found = self._known.get(peer)
        if found is None:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            found = _classify(peer, self._networks)
            self._known[peer] = found
        return found


def _classify(peer: str, networks: list[IPv4Network | IPv6Network]) -> tuple[bool, bool]:
    """Whether the address is loopback, and whether it is in one of the networks."""
    try:
        address = ip_address(peer)
    except ValueError:
        return False, False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        # A dual-stack socket reports IPv4 clients this way.
        address = address.ipv4_mapped
    return address.is_loopback, any([address in network for network in networks])
