"""Which peers are trusted with a key that is no secret: those on this machine, and those of networks that are named.

A proxy on this machine makes every client look local. So a request that carries a proxy's header counts as local only
if the proxy's own address is in a network that the operator has named.
"""

import re
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

_FORWARDED: Final = ("x-forwarded-for", "forwarded", "x-real-ip", "via")
_HOST: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]]+))(?::[0-9]{1,5})?")
_PRIVATE: Final = (".localhost", ".local", ".internal", ".test", ".home.arpa")
"""Ends of names that no public name server answers for (RFC 6761, 6762, 8375; ICANN has reserved `internal`)."""

_KNOWN_MAX: Final = 4_096
"""Addresses whose answer is kept; then the memory starts empty again."""


def is_local_host(host: str) -> bool:
    """Whether a Host header names this machine by itself, so that no name server has been asked: `localhost:5300`,
    `127.0.0.1`, `[::1]:5300`."""
    name = _name_in(host)
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def is_private_host(host: str) -> bool:
    """Whether no owner of a public domain can have made this Host header lead here: an address, a name without a dot,
    a name of a private network. A browser shows any other name to its page as the page's own site (DNS rebinding)."""
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
    """The name or address without its port; empty for what is no Host header."""
    match = _HOST.fullmatch(host)
    return "" if match is None else (match[1] or match[2]).lower().removesuffix(".")


class TrustedPeers:
    def __init__(self, networks: Iterable[str] = ()) -> None:
        self._networks: Final = [ip_network(network, strict=False) for network in networks]
        self._known: dict[str, tuple[bool, bool]] = {}

    def is_trusted(self, peer: str, headers: Mapping[str, str]) -> bool:
        """`peer` is an address without its port; anything else, such as the path of a socket, is not trusted."""
        local, named = self._placed(peer)
        return named or (local and not any([name in headers for name in _FORWARDED]))

    def is_local(self, peer: str, headers: Mapping[str, str]) -> bool:
        return self._placed(peer)[0] and not any([name in headers for name in _FORWARDED])

    def _placed(self, peer: str) -> tuple[bool, bool]:
        found = self._known.get(peer)
        if found is None:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            found = _placed(peer, self._networks)
            self._known[peer] = found
        return found


def _placed(peer: str, networks: list[IPv4Network | IPv6Network]) -> tuple[bool, bool]:
    try:
        address = ip_address(peer)
    except ValueError:
        return False, False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        # A socket that serves both families shows IPv4 clients this way.
        address = address.ipv4_mapped
    return address.is_loopback, any([address in network for network in networks])
