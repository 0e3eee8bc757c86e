"""What the HTTP endpoint has to know of the server's configuration: one frozen object, made by the server at its start.

The package of settings is above this one, so the endpoint names what it needs here and the server fills it in.
"""

from dataclasses import dataclass
from enum import Enum
from ipaddress import ip_network
from pathlib import Path
from typing import Final

from unibus.core.access.rules import AuthorizationRule, checked_rules
from unibus.errors import ConfigInvalid

BODY_BYTES_MAX_DEFAULT: Final = 100 * 1024 * 1024
"""Azure's largest message, and more than any batch of small ones."""


class WellKnownKey(Enum):
    """When the emulator's public key is accepted from trusted peers."""

    AUTO = "auto"
    """As long as the namespace has no rule with a key of its own, stored or configured."""
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True)
class HttpSettings:
    """`rules` are added to those that the store has; a stored rule of the same name wins. Loopback peers are trusted
    with the well-known key, and so are the peers of `trusted_networks` (CIDR). `hosts` None: a token may name any host.
    """

    rules: tuple[AuthorizationRule, ...] = ()
    well_known_key: WellKnownKey = WellKnownKey.AUTO
    trusted_networks: tuple[str, ...] = ()
    hosts: tuple[str, ...] | None = None
    token_skew_s: int = 0
    body_bytes_max: int = BODY_BYTES_MAX_DEFAULT
    ca_path: Path | None = None
    reset_allowed: bool = False
    request_log: bool = False
    audit_log: bool = True
    stalled_after_s: float = 300.0
    """A queue whose oldest message waits longer than this, without a delivery meanwhile, is reported as degraded."""

    def __post_init__(self) -> None:
        checked_rules(self.rules)
        for network in self.trusted_networks:
            try:
                ip_network(network)
            except ValueError as error:
                hint = "an address, or a network such as 172.16.0.0/12"
                raise ConfigInvalid(f"{network!r} is no network", hint) from error
