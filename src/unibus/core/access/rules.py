"""Authorization rules: a name, the rights that it stands for, and two keys that can vouch for it.

A rule is plain data, checked when it is made and never changed after. It goes into the settings of an entity as a dict
and comes back from one. Two keys, so that one can be replaced while tokens of the other are still out.
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
"""256 bits; 44 characters of base64. It is the text that signs, not the bytes behind it."""

WELL_KNOWN_NAME: Final = "RootManageSharedAccessKey"
WELL_KNOWN_KEY: Final = "SAS_KEY_VALUE"
"""Rule and key that the connection strings of Microsoft's emulator name. Every reader of its manual knows the key, so
it is no secret: an endpoint accepts it only from networks that it trusts. It is the one key that is not 44 characters
of base64, so no generated key can equal it."""

# Only what no client escapes: some escape a name twice.
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_FIELDS: Final = frozenset({"name", "rights", "primary_key", "secondary_key", "enabled"})


@dataclasses.dataclass(frozen=True, slots=True)
class AuthorizationRule:
    """`rights` may be given as words. A rule that is not enabled is as good as none."""

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
        """A rule with fresh keys, made of 64 random bytes."""
        if len(random) != 2 * KEY_BYTES:
            raise ConfigInvalid("two keys need 64 random bytes", "secrets.token_bytes(64)")
        return cls(name, checked_rights(rights), key_of(random[:KEY_BYTES]), key_of(random[KEY_BYTES:]))

    def rotated(self, random: bytes) -> Self:
        """With a new primary key. The old one becomes the secondary, so that its tokens hold until they expire."""
        return dataclasses.replace(self, primary_key=key_of(random), secondary_key=self.primary_key)

    def switched(self, enabled: bool) -> Self:
        return dataclasses.replace(self, enabled=enabled)

    def as_dict(self) -> dict[str, object]:
        """With its keys: for settings that are kept, never for a log."""
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
            raise ConfigInvalid("a rule's rights are no list", "a list of Send, Listen, Manage")
        name, primary, secondary = given["name"], given["primary_key"], given["secondary_key"]
        enabled = given.get("enabled", True)
        # The constructor looks at the rest; these four only have to be of their type.
        if not (isinstance(name, str) and isinstance(primary, str) and isinstance(secondary, str)):
            raise ConfigInvalid("a rule's name and keys are text")
        if not isinstance(enabled, bool):
            raise ConfigInvalid("a rule's enabled is neither True nor False")
        return cls(name, checked_rights(rights), primary, secondary, enabled)


def well_known_rule() -> AuthorizationRule:
    """The rule that is in force on a development server as long as its namespace has none of its own."""
    return AuthorizationRule(WELL_KNOWN_NAME, frozenset(Right), WELL_KNOWN_KEY, WELL_KNOWN_KEY)


def accepts_well_known_key(stored: Sequence[AuthorizationRule], configured: Sequence[AuthorizationRule]) -> bool:
    """Whether a server accepts the well-known key, for these rules of its namespace.

    It does while no rule has a key of its own, and where its configuration itself has a rule with the well-known key.
    """
    asked_for = any([WELL_KNOWN_KEY in (rule.primary_key, rule.secondary_key) for rule in configured])
    rules = [*stored, *configured]
    return asked_for or all([{rule.primary_key, rule.secondary_key} == {WELL_KNOWN_KEY} for rule in rules])


def checked_rules(rules: Iterable[AuthorizationRule]) -> tuple[AuthorizationRule, ...]:
    """The rules of one entity or of the namespace: at most 12, and no two of one name."""
    listed = tuple(rules)
    if len(listed) > ACCESS_RULES_MAX:
        raise ConfigInvalid(f"{len(listed)} authorization rules on one entity", f"at most {ACCESS_RULES_MAX}")
    if len({rule.name.casefold() for rule in listed}) < len(listed):
        raise ConfigInvalid("two authorization rules have one name", "names that differ only by case are the same")
    return listed


def rules_text(value: object) -> str:
    """The rules of one entity as the text that its settings keep: from such a text, or from rules or their dicts."""
    given = value
    if isinstance(value, str):
        try:
            given = msgspec.json.decode(value)
        except (msgspec.MsgspecError, ValueError):
            # Without the text, and without the cause, which may quote it: there are keys in it.
            raise ConfigInvalid("authorization_rules are no JSON", "a list of rules as as_dict gives them") from None
    if not isinstance(given, (list, tuple)):
        raise ConfigInvalid("authorization_rules are no list", "a list of rules")
    listed = [rule if isinstance(rule, AuthorizationRule) else _rule_of(rule) for rule in given]
    return msgspec.json.encode([rule.as_dict() for rule in checked_rules(listed)]).decode()


def rules_of_text(text: str | None) -> tuple[AuthorizationRule, ...]:
    """The rules that the settings of an entity hold."""
    if text is None:
        return ()
    return checked_rules([_rule_of(each) for each in msgspec.json.decode(text, type=list[object])])


def _rule_of(given: object) -> AuthorizationRule:
    if not isinstance(given, Mapping):
        raise ConfigInvalid("an authorization rule is no mapping", f"its fields are {', '.join(sorted(_FIELDS))}")
    return AuthorizationRule.from_dict({str(name): value for name, value in given.items()})


def key_of(random: bytes) -> str:
    """32 random bytes as a key."""
    if len(random) != KEY_BYTES:
        raise ConfigInvalid(f"a key needs {KEY_BYTES} random bytes", "secrets.token_bytes(32)")
    return base64.b64encode(random).decode("ascii")


def _check_name(name: object) -> None:
    if not isinstance(name, str) or len(name) > ACCESS_NAME_CHARS_MAX or _NAME.fullmatch(name) is None:
        # Without the name: whoever mixes up the arguments would read a key here.
        hint = f"1 to {ACCESS_NAME_CHARS_MAX} letters and digits, with . - _ between them"
        raise ConfigInvalid("an authorization rule cannot be called that", hint)


def _check_key(field: str, key: object) -> None:
    if not isinstance(key, str) or not _is_key(key):
        raise ConfigInvalid(f"the {field} of a rule is no key", "base64 of 32 bytes, 44 characters")


def _is_key(key: str) -> bool:
    if key == WELL_KNOWN_KEY:
        return True
    try:
        return len(key) == 44 and len(base64.b64decode(key, validate=True)) == KEY_BYTES
    except (binascii.Error, ValueError):
        return False
