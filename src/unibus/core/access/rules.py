"""Authorization rules: a name, the rights that it grants, and two keys that sign its tokens.

A rule is plain data, checked when it is created, and immutable. The settings of an entity store it as a dict. It has
two keys, so that one can be replaced while tokens signed with the other are still in use.
"""

import base64
import binascii
import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Self

import msgspec

from unibus.core.access.rights import Right, checked_rights, words
from unibus.errors import ConfigInvalid
from unibus.limits import ACCESS_NAME_CHARS_MAX, ACCESS_RULES_MAX

KEY_BYTES: Final = 32
"""256 bits; 44 characters of base64. The text itself is the HMAC key, not the bytes that it encodes."""

WELL_KNOWN_NAME: Final = "RootManageSharedAccessKey"
WELL_KNOWN_KEY: Final = "SAS_KEY_VALUE"
"""The rule and the key in the connection strings of Microsoft's emulator. The key is in its manual, so it is not
secret: an endpoint accepts it only from networks that it trusts. It is the only key that is not 44 characters of
base64, so no generated key can equal it."""

# Only characters that no client escapes: some clients escape a name twice.
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_FIELDS: Final = frozenset({"name", "rights", "primary_key", "secondary_key", "enabled"})


@dataclasses.dataclass(frozen=True, slots=True)
class AuthorizationRule:
    """`rights` may be given as words. A rule that is not enabled grants nothing."""

    name: str
    rights: frozenset[Right]
    primary_key: str = dataclasses.field(repr=False)
    secondary_key: str = dataclasses.field(repr=False)
    enabled: bool = True

    def __post_init__(self) -> None:
        _check_name(self.name)
        object.__setattr__(self, "rights", checked_rights(self.rights))
        _check_key("primary_key", self.primary_key)
        _check_key("secondary_key", self.secondary_key)
        if not isinstance(self.enabled, bool):
            raise ConfigInvalid("a rule's enabled is neither True nor False")

    @classmethod
    def generated(cls, name: str, rights: Iterable[Right | str], random: bytes) -> Self:
        """A rule with new keys, from 64 random bytes."""
        if len(random) != 2 * KEY_BYTES:
            raise ConfigInvalid(f"two keys need 64 random bytes, got {len(random)}", "use secrets.token_bytes(64)")
        return cls(name, checked_rights(rights), key_of(random[:KEY_BYTES]), key_of(random[KEY_BYTES:]))

    def rotated(self, random: bytes) -> Self:
        """The rule with a new primary key. The old one becomes the secondary, so its tokens are valid until they
        expire."""
        return dataclasses.replace(self, primary_key=key_of(random), secondary_key=self.primary_key)

    def switched(self, enabled: bool) -> Self:
        return dataclasses.replace(self, enabled=enabled)

    def as_dict(self) -> dict[str, object]:
        """Including the keys: for stored settings, never for a log."""
        return {
            "name": self.name,
            "rights": words(self.rights),
            "primary_key": self.primary_key,
            "secondary_key": self.secondary_key,
            "enabled": self.enabled,
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, object]) -> Self:
        missing = sorted(_FIELDS - {"enabled"} - given.keys())
        if missing or given.keys() - _FIELDS:
            what = f"has no {missing[0]}" if missing else "has a field that rules do not have"
            raise ConfigInvalid(f"an authorization rule {what}", f"its fields are {', '.join(sorted(_FIELDS))}")
        rights = given["rights"]
        if not isinstance(rights, Iterable):
            raise ConfigInvalid("the rights of a rule are not a list", "give a list of Send, Listen, Manage")
        name, primary, secondary = given["name"], given["primary_key"], given["secondary_key"]
        enabled = given.get("enabled", True)
        # The constructor checks the values; here only the types of these four.
        if not (isinstance(name, str) and isinstance(primary, str) and isinstance(secondary, str)):
            raise ConfigInvalid("the name and the keys of a rule must be text")
        if not isinstance(enabled, bool):
            raise ConfigInvalid("a rule's enabled is neither True nor False")
        return cls(name, checked_rights(rights), primary, secondary, enabled)


def well_known_rule() -> AuthorizationRule:
    """The rule that is in force on a development server as long as its namespace has no rule."""
    return AuthorizationRule(WELL_KNOWN_NAME, frozenset(Right), WELL_KNOWN_KEY, WELL_KNOWN_KEY)


def accepts_well_known_key(stored: Sequence[AuthorizationRule], configured: Sequence[AuthorizationRule]) -> bool:
    """Whether a server accepts the well-known key, for these rules of its namespace.

    It does while every rule has only this key, and if its configuration itself has a rule with the well-known key.
    """
    asked_for = any([WELL_KNOWN_KEY in (rule.primary_key, rule.secondary_key) for rule in configured])
    rules = [*stored, *configured]
    return asked_for or all([{rule.primary_key, rule.secondary_key} == {WELL_KNOWN_KEY} for rule in rules])


def checked_rules(rules: Iterable[AuthorizationRule]) -> tuple[AuthorizationRule, ...]:
    """The rules of one entity or of the namespace: at most 12, each with another name."""
    listed = tuple(rules)
    if len(listed) > ACCESS_RULES_MAX:
        raise ConfigInvalid(f"an entity has {len(listed)} authorization rules, at most {ACCESS_RULES_MAX} are allowed")
    if len({rule.name.casefold() for rule in listed}) < len(listed):
        raise ConfigInvalid("two authorization rules have the same name", "names that differ only by case are equal")
    return listed


def rules_text(value: object) -> str:
    """The rules of one entity as the text that its settings store: from such a text, from rules, or from their
    dicts."""
    given = value
    if isinstance(value, str):
        try:
            given = msgspec.json.decode(value)
        except (msgspec.MsgspecError, ValueError):
            # Without the text, and without the cause, which may quote it: it contains keys.
            raise ConfigInvalid(
                "authorization_rules are not JSON", "give a list of rules as as_dict returns them"
            ) from None
    if not isinstance(given, (list, tuple)):
        raise ConfigInvalid("authorization_rules are not a list", "give a list of rules")
    listed = [rule if isinstance(rule, AuthorizationRule) else _rule_of(rule) for rule in given]
    return msgspec.json.encode([rule.as_dict() for rule in checked_rules(listed)]).decode()


def rules_of_text(text: str | None) -> tuple[AuthorizationRule, ...]:
    """The rules in the settings of an entity."""
    if text is None:
        return ()
    return checked_rules([_rule_of(each) for each in msgspec.json.decode(text, type=list[object])])


def _rule_of(given: object) -> AuthorizationRule:
    if not isinstance(given, Mapping):
        raise ConfigInvalid("an authorization rule is not a mapping", f"its fields are {', '.join(sorted(_FIELDS))}")
    return AuthorizationRule.from_dict({str(name): value for name, value in given.items()})


def key_of(random: bytes) -> str:
    """32 random bytes as a key."""
    if len(random) != KEY_BYTES:
        raise ConfigInvalid(f"a key needs {KEY_BYTES} random bytes, got {len(random)}", "use secrets.token_bytes(32)")
    return base64.b64encode(random).decode("ascii")


def _check_name(name: object) -> None:
    if not isinstance(name, str) or len(name) > ACCESS_NAME_CHARS_MAX or _NAME.fullmatch(name) is None:
        # Without the name: if a caller mixed up the arguments, it is a key.
        hint = f"use 1 to {ACCESS_NAME_CHARS_MAX} letters and digits, with . - _ between them"
        raise ConfigInvalid(
            "the name of an authorization rule is too long, or has characters that are not allowed", hint
        )


def _check_key(field: str, key: object) -> None:
    if not isinstance(key, str) or not _is_key(key):
        raise ConfigInvalid(f"the {field} of a rule is not a key", "a key is 32 bytes in base64, 44 characters")


def _is_key(key: str) -> bool:
    if key == WELL_KNOWN_KEY:
        return True
    try:
        return len(key) == 44 and len(base64.b64decode(key, validate=True)) == KEY_BYTES
    except (binascii.Error, ValueError):
        return False
