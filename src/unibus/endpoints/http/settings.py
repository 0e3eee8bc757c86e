"""The settings of the HTTP endpoint: one frozen object, created by the server at its start.

`Served` names the server settings that are read here, so that this package does not depend on how they are read.
"""

from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Final, Protocol

from unibus.core.access.rules import AuthorizationRule, checked_rules
from unibus.errors import ConfigInvalid

BODY_BYTES_MAX_DEFAULT: Final = 100 * 1024 * 1024
"""The size of Azure's largest message."""


class Served(Protocol):
    """The settings of a server that concern HTTP."""

    @property
    def namespace(self) -> str: ...
    @property
    def authorization_rules(self) -> tuple[AuthorizationRule, ...]: ...
    @property
    def allow_networks(self) -> tuple[str, ...]: ...
    @property
    def body_bytes_max(self) -> int: ...
    @property
    def allow_reset(self) -> bool: ...
    @property
    def request_log(self) -> bool: ...
    @property
    def audit(self) -> bool: ...
    @property
    def metrics(self) -> bool: ...
    @property
    def metrics_entities_max(self) -> int: ...
    @property
    def metrics_histograms_max(self) -> int: ...


@dataclass(frozen=True)
class HttpSettings:
    """`authorization_rules` are added to those of the store; a stored rule of the same name wins.

    The emulator's well-known key is accepted from loopback and from `allow_networks` (CIDR). `hosts` None: a token may
    name any host. `namespace` is the name in answers to clients; if empty, the host that they call.
    """

    namespace: str = ""
    authorization_rules: tuple[AuthorizationRule, ...] = ()
    allow_networks: tuple[str, ...] = ()
    well_known_key: bool = True
    """False: the emulator's well-known key is never accepted."""
    hosts: tuple[str, ...] | None = None
    token_skew_s: int = 0
    body_bytes_max: int = BODY_BYTES_MAX_DEFAULT
    ca_path: Path | None = None
    allow_reset: bool = False
    request_log: bool = False
    audit: bool = True
    metrics: bool = True
    metrics_entities_max: int = 10_000
    metrics_histograms_max: int = 100
    local_rule_name: str = ""
    local_key: str = field(default="", repr=False)
    """The key of the rule in `FILE.serve.json`, for commands on this machine: it has every right, and is not stored."""
    stalled_after_s: float = 300.0
    """A queue whose oldest message has waited longer than this, without a delivery meanwhile, is degraded."""

    def __post_init__(self) -> None:
        checked_rules(self.authorization_rules)
        for network in self.allow_networks:
            try:
                ip_network(network, strict=False)
            except ValueError as error:
                hint = "use an address, or CIDR such as 172.16.0.0/12"
                raise ConfigInvalid(f"allow_networks contains {network!r:.60}, which is no network", hint) from error

    @classmethod
    def of(cls, served: Served, ca_path: Path | None, local_rule: AuthorizationRule | None = None) -> "HttpSettings":
        return cls(
            local_rule_name="" if local_rule is None else local_rule.name,
            local_key="" if local_rule is None else local_rule.primary_key,
            namespace=served.namespace,
            authorization_rules=served.authorization_rules,
            allow_networks=served.allow_networks,
            body_bytes_max=served.body_bytes_max,
            ca_path=ca_path,
            allow_reset=served.allow_reset,
            request_log=served.request_log,
            audit=served.audit,
            metrics=served.metrics,
            metrics_entities_max=served.metrics_entities_max,
            metrics_histograms_max=served.metrics_histograms_max,
        )
