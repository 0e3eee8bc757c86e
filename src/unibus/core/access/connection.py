"""Connection strings: `Endpoint=sb://host/;SharedAccessKeyName=…;SharedAccessKey=…;EntityPath=…`.

Instead of name and key it may have a finished token, `SharedAccessSignature=…`. The case and the order of the parts do
not matter; unknown parts are ignored, as Azure's clients do. Secrets are in the fields and in `as_text()`, and nowhere
else.
"""

import dataclasses
import re
from typing import Final

from unibus.core.access.scope import SCHEMES
from unibus.core.access.token import make_token
from unibus.errors import ConfigInvalid
from unibus.limits import ACCESS_TOKEN_CHARS_MAX

_ENDPOINT: Final = re.compile(r"([a-z]+)://((?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?)/*", re.IGNORECASE)
_HINT: Final = (
    "give Endpoint=sb://…, SharedAccessKeyName and SharedAccessKey, separated by semicolons, "
    "and EntityPath if it is for one entity"
)
"""Without `SharedAccessKey=…`, because the command line would mask the ellipsis as a key."""
_KNOWN: Final = {
    "endpoint": "Endpoint",
    "sharedaccesskeyname": "SharedAccessKeyName",
    "sharedaccesskey": "SharedAccessKey",
    "sharedaccesssignature": "SharedAccessSignature",
    "entitypath": "EntityPath",
    "usedevelopmentemulator": "UseDevelopmentEmulator",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Credentials:
    """The name of a rule and one of its keys. `entity` is empty for the whole namespace."""

    name: str
    key: str = dataclasses.field(repr=False)
    entity: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class ConnectionString:
    """An address and the credentials for it. `host` includes the port if one was given."""

    host: str
    name: str = ""
    key: str = dataclasses.field(default="", repr=False)
    signature: str = dataclasses.field(default="", repr=False)
    entity: str = ""
    emulator: bool = False

    def __post_init__(self) -> None:
        if _ENDPOINT.fullmatch(f"sb://{self.host}") is None:
            raise ConfigInvalid("the Endpoint of the connection string is not an address", _HINT)
        if bool(self.name) != bool(self.key) or bool(self.key) == bool(self.signature):
            raise ConfigInvalid(
                "the connection string needs either the name and a key of a rule, or a signature, not both", _HINT
            )
        if any(";" in part for part in (self.name, self.key, self.signature, self.entity)):
            raise ConfigInvalid("a part of the connection string contains a semicolon", "semicolons separate the parts")

    @classmethod
    def parse(cls, text: str) -> "ConnectionString":
        parts = _parts(text)
        endpoint = _ENDPOINT.fullmatch(parts.get("endpoint", ""))
        if endpoint is None or endpoint[1].lower() not in SCHEMES:
            raise ConfigInvalid("the Endpoint of the connection string is not an address", _HINT)
        return cls(
            endpoint[2],
            parts.get("sharedaccesskeyname", ""),
            parts.get("sharedaccesskey", ""),
            parts.get("sharedaccesssignature", ""),
            parts.get("entitypath", "").strip("/"),
            parts.get("usedevelopmentemulator", "").lower() == "true",
        )

    def as_text(self) -> str:
        """The whole string, with its secrets."""
        parts = [("endpoint", f"sb://{self.host}/"), ("sharedaccesskeyname", self.name), ("sharedaccesskey", self.key)]
        parts += [("sharedaccesssignature", self.signature), ("entitypath", self.entity)]
        parts += [("usedevelopmentemulator", "true" if self.emulator else "")]
        return ";".join([f"{_KNOWN[part]}={value}" for part, value in parts if value])

    def resource(self) -> str:
        return f"sb://{self.host}/{self.entity}"

    def token(self, expires_s: int) -> str:
        """The token in the string, or a new one signed with its key."""
        return self.signature or make_token(self.resource(), self.name, self.key, expires_s)

    def credentials(self) -> Credentials:
        if not self.key:
            raise ConfigInvalid("this connection string has a token and no key", "use its token")
        return Credentials(self.name, self.key, self.entity)


def _parts(text: str) -> dict[str, str]:
    if len(text) > 2 * ACCESS_TOKEN_CHARS_MAX:
        raise ConfigInvalid(f"the connection string is longer than {2 * ACCESS_TOKEN_CHARS_MAX} characters", _HINT)
    parts: dict[str, str] = {}
    for pair in text.strip().rstrip(";").split(";"):
        name, found, value = pair.partition("=")
        name = name.strip().lower()
        if not found or not name:
            raise ConfigInvalid("a part of the connection string is not name=value", _HINT)
        if name in parts:
            raise ConfigInvalid("a part of the connection string is given twice", _HINT)
        parts[name] = value.strip()
    return parts
