"""Converts the value of a flag, a variable or a file to the value of a setting, and checks it.

An environment variable is always text, a flag may be, and a file has numbers and lists. All of them pass through
`checked_value`, so every source accepts and rejects the same values. An error names the setting, its value and what is
allowed, and never shows a secret.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import Field, field
from typing import Any, Final

from unibus.core.access.rules import AuthorizationRule, checked_rules
from unibus.errors import BusError, ConfigInvalid

TEXT: Final = "text"
TEXTS: Final = "texts"
WHOLE: Final = "whole"
PORT: Final = "port"
SECONDS: Final = "seconds"
SWITCH: Final = "switch"
RULES: Final = "rules"

OFF: Final = "off"
MASK: Final = "***"
_WORDS: Final = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, OFF: False, "0": False}
_PORT_MAX: Final = 65_535


def setting(
    default: object, kind: str, text: str, *, least: float = 0, choices: tuple[str, ...] = (), flag: bool = True
) -> Any:
    """A field of the settings. `text` is its line in the help and in the file that `unibus init` writes."""
    described = {"kind": kind, "text": text, "least": least, "choices": choices, "flag": flag}
    return field(default=default, metadata=described)


def checked_value(each: "Field[Any]", given: object) -> object:
    """The value of a setting. ConfigInvalid names the setting and what it allows."""
    value = _READERS[each.metadata["kind"]](each, given)
    choices = each.metadata["choices"]
    if choices and value not in choices:
        raise _invalid(each, given, f"one of {', '.join(choices)}")
    return value


def shown_value(each: "Field[Any]", value: object) -> object:
    """The value in the form of a configuration file, without secrets."""
    if each.metadata["kind"] == RULES and isinstance(value, tuple):
        masked = {"primary_key": MASK, "secondary_key": MASK}
        return [{**rule.as_dict(), **masked} for rule in value]
    if value is None:
        return OFF
    return list(value) if isinstance(value, tuple) else value


def _invalid(each: "Field[Any]", given: object, rule: str, hint: str = "") -> ConfigInvalid:
    return ConfigInvalid(f"{each.name} must be {rule}, got {given!r:.60}", hint)


def _text(each: "Field[Any]", given: object) -> str:
    if not isinstance(given, str) or "\0" in given:
        raise _invalid(each, given, "text without NUL characters")
    return given


def _texts(each: "Field[Any]", given: object) -> tuple[str, ...]:
    listed = given.split(",") if isinstance(given, str) else given
    if not isinstance(listed, (list, tuple)) or not all(isinstance(item, str) for item in listed):
        raise _invalid(each, given, "a list of texts", "in a variable or flag, separate them by commas")
    return tuple([item.strip() for item in listed if item.strip()])


def _whole(each: "Field[Any]", given: object) -> int:
    number = _number(given)
    least = each.metadata["least"]
    if number is None or number != int(number) or number < least:
        raise _invalid(each, given, f"a whole number of {least:g} or more")
    return int(number)


def _port(each: "Field[Any]", given: object) -> int | None:
    """A port; None if it is switched off."""
    rule = f"a number from 0 (a free port) to {_PORT_MAX}"
    if each.metadata["least"] < 0:
        rule = f"{rule}, or {OFF}"
        # YAML reads a bare `off` as false.
        if given is None or given is False or (isinstance(given, str) and given.strip().lower() == OFF):
            return None
    number = _number(given)
    if number is None or number != int(number) or not 0 <= number <= _PORT_MAX:
        raise _invalid(each, given, rule)
    return int(number)


def _seconds(each: "Field[Any]", given: object) -> float:
    number = _number(given)
    least = each.metadata["least"]
    if number is None or not least <= number < 1e9:
        raise _invalid(each, given, f"a number of seconds, {least:g} or more")
    return number


def _number(given: object) -> float | None:
    if isinstance(given, bool) or not isinstance(given, (int, float, str)):
        return None
    try:
        number = float(given)
    except ValueError:
        return None
    return number if -1e15 < number < 1e15 else None


def _switch(each: "Field[Any]", given: object) -> bool:
    value = _WORDS.get(given.strip().lower()) if isinstance(given, str) else given
    if not isinstance(value, bool):
        raise _invalid(each, given, "true or false")
    return value


def _rules(each: "Field[Any]", given: object) -> tuple[AuthorizationRule, ...]:
    """No error here quotes the value: it contains keys."""
    hint = "use a list of rules: name, rights, primary_key and optionally secondary_key"
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            raise ConfigInvalid(f"{each.name} is not JSON", hint) from None
    if not isinstance(given, (list, tuple)):
        raise ConfigInvalid(f"{each.name} is not a list", hint)
    try:
        return checked_rules([_rule(item) for item in given])
    except BusError as error:
        raise ConfigInvalid(f"{each.name}: {error.what}", error.hint or hint) from None


def _rule(given: object) -> AuthorizationRule:
    if isinstance(given, AuthorizationRule):
        return given
    if not isinstance(given, Mapping):
        raise ConfigInvalid("an authorization rule is not a mapping")
    named = {str(name): value for name, value in given.items()}
    # One key is enough here: two are for rotation, and a file replaces its rule as a whole.
    return AuthorizationRule.from_dict({"secondary_key": named.get("primary_key"), **named})


_READERS: Final[dict[str, Callable[["Field[Any]", object], object]]] = {
    TEXT: _text,
    TEXTS: _texts,
    WHOLE: _whole,
    PORT: _port,
    SECONDS: _seconds,
    SWITCH: _switch,
    RULES: _rules,
}
