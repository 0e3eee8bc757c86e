"""The settings of a server, each with its default and one line of explanation.

This table is the only list of settings: the flags of `unibus serve`, the environment variables, the keys of the
configuration file and the file that `unibus init` writes are all derived from it. A `ServerSettings` object is always
valid: its constructor checks it.
"""

import ipaddress
from dataclasses import Field, dataclass, fields
from typing import Any, Final

from unibus.config.values import PORT, RULES, SECONDS, SWITCH, TEXT, TEXTS, WHOLE, setting
from unibus.core.access.rules import AuthorizationRule, checked_rules
from unibus.errors import ConfigInvalid
from unibus.limits import BODY_BYTES_MAX

PORT_DEFAULT: Final = 5_300
AMQP_PORT_DEFAULT: Final = 5_672
"""The ports of Microsoft's emulator: administration and AMQP. Both of ours serve every protocol."""

LOOPBACK: Final = ("127.0.0.1", "::1")
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
LOG_FORMATS: Final = ("auto", "text", "json")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class ServerSettings:
    """The settings of one server. `given` names those that were set, as opposed to left at their default."""

    store: str = setting("unibus.db", TEXT, "The store: a file, a URL, or memory:// for one that ends with the server.")
    host: tuple[str, ...] = setting(LOOPBACK, TEXTS, "Addresses to listen on; 0.0.0.0 and :: are all of them.")
    port: int = setting(PORT_DEFAULT, PORT, "The port for HTTP and TLS; 0 picks a free one.")
    amqp_port: int | None = setting(
        AMQP_PORT_DEFAULT,
        PORT,
        "A second port for HTTP and TLS; or off. It is the port of AMQP, which is not served yet.",
        least=-1,
    )
    namespace: str = setting(
        "", TEXT, "The name of the namespace in answers to clients; if empty, the host that they call."
    )
    # Security
    tls: bool = setting(True, SWITCH, "Accept TLS, with a development certificate unless one is given.")
    tls_certificate: str = setting("", TEXT, "A certificate with its chain (PEM), in place of the development one.")
    tls_key: str = setting("", TEXT, "The private key of that certificate (PEM).")
    certificate_names: tuple[str, ...] = setting(
        (), TEXTS, "More names and addresses for the development certificate, e.g. host.docker.internal."
    )
    certificate_folder: str = setting("", TEXT, "The folder of the development CA; a folder beside the store if empty.")
    allow_networks: tuple[str, ...] = setting(
        (), TEXTS, "Networks (CIDR) that may use plain text and the emulator's well-known key, as loopback may."
    )
    insecure: bool = setting(
        False,
        SWITCH,
        "Listen on addresses other than loopback even without TLS or keys, and accept plain text there.",
    )
    authorization_rules: tuple[AuthorizationRule, ...] = setting(
        (), RULES, "Rules of the namespace, added to those in the store: name, rights, primary_key.", flag=False
    )
    # Entities
    entities: str = setting("", TEXT, "A file of entities to create at the start: JSON, or the emulator's Config.json.")
    allow_reset: bool = setting(False, SWITCH, "Allow the call that deletes all entities and messages: for tests.")
    # Limits
    header_bytes_max: int = setting(131_072, WHOLE, "Most bytes of a request line with its headers.", least=1_024)
    headers_max: int = setting(1_000, WHOLE, "Most headers of one request.", least=16)
    body_bytes_max: int = setting(BODY_BYTES_MAX, WHOLE, "Most bytes of one request body.", least=1_024)
    bodies_bytes_max: int = setting(
        1_073_741_824, WHOLE, "Most bytes of all request bodies in flight together.", least=1_048_576
    )
    connections_max: int = setting(
        10_000,
        WHOLE,
        "Most connections at the same time, within the limit of open files; 0 for all that it allows.",
    )
    handshakes_max: int = setting(
        1_024,
        WHOLE,
        "Most unfinished TLS handshakes; one that is older than a second or two is closed for a new one.",
        least=1,
    )
    head_deadline_s: float = setting(10.0, SECONDS, "Seconds until a request's headers have to be complete.", least=1)
    body_deadline_s: float = setting(60.0, SECONDS, "Seconds until a request's body has to be complete.", least=1)
    idle_deadline_s: float = setting(75.0, SECONDS, "Seconds that a connection may be idle between requests.", least=1)
    drain_deadline_s: float = setting(10.0, SECONDS, "Seconds that in-flight requests get when the server stops.")
    # What the server reports
    log_level: str = setting(
        "info", TEXT, "The lowest level that is logged: debug, info, warning, error.", choices=LOG_LEVELS
    )
    log_format: str = setting(
        "auto",
        TEXT,
        "text, json, or auto: text in a terminal, else json. Request and audit lines are always JSON.",
        choices=LOG_FORMATS,
    )
    request_log: bool = setting(False, SWITCH, "Log every request.")
    audit: bool = setting(True, SWITCH, "Log every change of entities, rules and keys, and every refused access.")
    metrics: bool = setting(True, SWITCH, "Serve /metrics.")
    metrics_entities_max: int = setting(10_000, WHOLE, "Most entities with series of their own in one scrape.")
    metrics_histograms_max: int = setting(100, WHOLE, "Most entities with histograms of their own: the busiest.")
    given: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if bool(self.tls_certificate) != bool(self.tls_key):
            missing = "tls_key" if self.tls_certificate else "tls_certificate"
            raise ConfigInvalid(
                f"{missing} is missing: tls_certificate and tls_key belong together", "set both, or neither"
            )
        if self.tls_certificate and not self.tls:
            raise ConfigInvalid(
                "tls_certificate is set, but tls is off", "switch tls on, or remove tls_certificate and tls_key"
            )
        if not self.host:
            raise ConfigInvalid("host is empty", "127.0.0.1 for this machine only, 0.0.0.0 for all addresses")
        if not self.store.strip():
            raise ConfigInvalid("store is empty", "name a file, or memory://")
        checked_rules(self.authorization_rules)
        self.networks()

    def networks(self) -> tuple[Network, ...]:
        """`allow_networks`, parsed."""
        return tuple([_network(each) for each in self.allow_networks])


def setting_fields() -> tuple["Field[Any]", ...]:
    """Every setting, in the order of the help text."""
    return tuple([each for each in fields(ServerSettings) if each.metadata])


def is_loopback(address: str) -> bool:
    """Whether an address, or the name "localhost", is reachable from this machine only."""
    if address.lower() == "localhost":
        return True
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return bool((mapped or parsed).is_loopback)


def is_trusted(address: str, networks: tuple[Network, ...]) -> bool:
    """Whether a peer may use plain text and the well-known key: loopback, and the networks that a setting names."""
    if is_loopback(address):
        return True
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    plain = getattr(parsed, "ipv4_mapped", None) or parsed
    return any([plain in network for network in networks])


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ConfigInvalid(
            f"allow_networks contains {text!r:.60}, which is no network",
            "use an address, or CIDR such as 172.16.0.0/12",
        ) from None
