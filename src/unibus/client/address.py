"""The address of a server and the key for it: from a URL, a connection string, and environment variables.

    http://host:5300                      https://rule:key@host
    Endpoint=sb://host:5300;SharedAccessKeyName=…;SharedAccessKey=…

The key: in the URL or connection string itself, else `UNIBUS_KEY` (`rule:key`, or the key of the rule
RootManageSharedAccessKey), else `UNIBUS_CONNECTION_STRING` if it is for the same host, else, for a server on this
machine, the well-known key of emulators. A key is never part of `str()`, `repr()` or an error.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import unquote, urlsplit

from unibus.config.settings import PORT_DEFAULT, is_loopback
from unibus.core.access.connection import ConnectionString
from unibus.core.access.rules import WELL_KNOWN_KEY, WELL_KNOWN_NAME
from unibus.errors import ConfigInvalid, UsageError

KEY_VARIABLE: Final = "UNIBUS_KEY"
CONNECTION_VARIABLE: Final = "UNIBUS_CONNECTION_STRING"
SCHEMES: Final = {"http": 80, "https": 443}
_CONNECTION_STRING: Final = "endpoint="
_HINT: Final = "for instance http://localhost:5300 or https://bus.example.com"


@dataclass(frozen=True)
class Address:
    """`prefix` is the path below which the server is mounted. It has `rule` and `key`, or a `signature`, or neither."""

    scheme: str
    host: str
    port: int
    prefix: str = ""
    rule: str = ""
    key: str = field(default="", repr=False)
    signature: str = field(default="", repr=False)
    entity: str = ""
    """The EntityPath of a connection string; empty for none."""

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.prefix}"

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == SCHEMES[self.scheme] else f"{host}:{self.port}"

    @property
    def is_local(self) -> bool:
        return is_loopback(self.host)

    @property
    def is_encrypted(self) -> bool:
        return self.scheme == "https"

    def with_key(self, rule: str, key: str) -> "Address":
        return replace(self, rule=rule, key=key, signature="")


def is_server(text: str) -> bool:
    """Whether the text is the address of a server, not of a store."""
    start = text.strip().casefold()
    return start.startswith(("http://", "https://")) or is_connection_string(start)


def is_connection_string(text: str) -> bool:
    return _CONNECTION_STRING in text.casefold() and "://" in text and ";" in text


def address_of(text: str, environment: Mapping[str, str]) -> Address:
    """Parse an address. UsageError for a text that is none; it never quotes the text, which may contain a key."""
    if is_connection_string(text):
        return _of_connection_string(ConnectionString.parse(text.strip()))
    address = _of_url(text.strip())
    return address if address.key or address.signature else _with_known_key(address, environment)


def _of_url(text: str) -> Address:
    scheme, _, rest = text.partition("://")
    scheme = scheme.casefold()
    # From the right: the base64 of a key may contain slashes, and no @ can follow the one before the host.
    credentials, at, place = rest.rpartition("@")
    try:
        parts = urlsplit(f"{scheme}://{place}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, None
    if scheme not in SCHEMES or not host or parts is None or parts.query or parts.fragment:
        raise UsageError("the address of the server cannot be read", _HINT)
    if not host.isascii() or not host.isprintable() or " " in host:
        raise UsageError("the address of the server cannot be read", _HINT)
    found = Address(scheme, host, SCHEMES[scheme] if port is None else port, parts.path.rstrip("/"))
    if not at:
        return found
    rule, colon, key = credentials.partition(":")
    if not colon or not rule or not key:
        raise UsageError(
            "the credentials in the server's address are not RULE:KEY", "write https://RULE:KEY@host, or set UNIBUS_KEY"
        )
    return found.with_key(unquote(rule), unquote(key))


def _of_connection_string(given: ConnectionString) -> Address:
    parts = urlsplit(f"sb://{given.host}")
    host = parts.hostname or ""
    is_plain = given.emulator or is_loopback(host)
    scheme, default = ("http", PORT_DEFAULT) if is_plain else ("https", SCHEMES["https"])
    try:
        port = parts.port
    except ValueError:
        raise UsageError("the port in the connection string is not valid", "use a number from 0 to 65535") from None
    return Address(
        scheme,
        host,
        default if port is None else port,
        rule=given.name,
        key=given.key,
        signature=given.signature,
        entity=given.entity,
    )


def _with_known_key(address: Address, environment: Mapping[str, str]) -> Address:
    if text := environment.get(KEY_VARIABLE, "").strip():
        rule, colon, key = text.rpartition(":")
        return address.with_key(rule if colon else WELL_KNOWN_NAME, key)
    if text := environment.get(CONNECTION_VARIABLE, "").strip():
        try:
            found = _of_connection_string(ConnectionString.parse(text))
        except ConfigInvalid as error:
            raise ConfigInvalid(f"{CONNECTION_VARIABLE}: {error.what}", error.hint) from None
        # A signature for one server must not be sent to another one.
        if found.host == address.host or (found.is_local and address.is_local):
            return replace(address, rule=found.rule, key=found.key, signature=found.signature, entity=found.entity)
    return address.with_key(WELL_KNOWN_NAME, WELL_KNOWN_KEY) if address.is_local else address
