"""The types that a setting of an entity can have, and the check of a value of each type.

    Setting (a row of settings.py) ── type ──▶ _CHECKS ──▶ the checked value, or ConfigInvalid with a hint

Every caller gets the same check: the bus, the entity file, both administration APIs and an import. A check changes
nothing, so an invalid value leaves the entity as it was. Values run through it only when an entity is declared or
updated, therefore this file is not compiled.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from unibus.core.access.rules import rules_text
from unibus.core.envelope.fields import plain_text, seconds_ns
from unibus.core.filters.filters import AZURE
from unibus.core.lifecycle.state.rules import Rule, rules_of, text_of
from unibus.errors import ConfigInvalid, UsageError

SettingValue = str | int | float | bool | None

SECONDS: Final = "seconds"
NUMBER: Final = "number"
RATE: Final = "rate"
FLAG: Final = "flag"
ENTITY: Final = "entity"
CHOICE: Final = "choice"
TEXT: Final = "text"
RULES: Final = "rules"
ACCESS: Final = "access"

UNBOUNDED: Final = 2**53 - 1
"""The upper bound of a number without a limit of its own: every JSON parser reads integers up to it exactly."""


class Setting(NamedTuple):
    """One row. `least` and `most` bound a time, a number or a rate; for a text `most` is its length."""

    name: str
    type: str
    default: SettingValue
    about: str  # For the guide (docs/guide/entities.md).
    least: float = 0
    most: float = UNBOUNDED
    choices: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()  # The kinds of entity that have it, by their names. Empty: all of them.
    azure: str = ""  # Its name in Azure's documents and in the emulator's file. Empty: Azure does not have it.
    optional: bool = False  # None is a value too: no limit, no target, or the choice of unibus.
    fixed: bool = False  # Set when the entity is created, and never changed.
    secret: bool = False  # Returned to a caller that reads settings, and never in a log, an error or an output.


def checked_value(row: Setting, value: object) -> SettingValue:
    """The value in its canonical form. Raises ConfigInvalid with the name of the setting."""
    if value is None and row.optional:
        return None
    return _CHECKS[row.type](row, value)


def _seconds(row: Setting, value: object) -> float:
    try:
        seconds = float(seconds_ns(row.name, value)) / 1e9
    except UsageError as error:
        raise ConfigInvalid(error.what, error.hint) from error
    if not row.least <= seconds <= row.most:
        raise ConfigInvalid(f"{row.name} must be from {row.least:g} to {row.most:g} seconds, got {seconds:g}")
    return seconds


def _number(row: Setting, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not row.least <= value <= row.most:
        bounds = f"of {row.least} or more" if row.most >= UNBOUNDED else f"from {row.least} to {row.most}"
        raise ConfigInvalid(f"{row.name} must be a whole number {bounds}, got {value!r:.60}")
    return value


def _rate(row: Setting, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= row.most:
        raise ConfigInvalid(
            f"{row.name} must be a number above 0, at most {row.most}, got {value!r:.60}", "use None for no limit"
        )
    return float(value)


def _flag(row: Setting, value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise ConfigInvalid(
        f"{row.name} must be true or false, got {value!r}", "write it without quotes; in Python True or False"
    )


def _entity(row: Setting, value: object) -> str:
    if isinstance(value, str) and value:
        return _plain(row, value)
    raise ConfigInvalid(f"{row.name} must be the name of an entity, got {value!r}")


def _choice(row: Setting, value: object) -> str:
    if value in row.choices:
        return str(value)
    raise ConfigInvalid(f"{row.name} must be {' or '.join(map(repr, row.choices))}, got {value!r:.60}")


def _text(row: Setting, value: object) -> str:
    if isinstance(value, str) and len(value) <= row.most:
        return _plain(row, value)
    raise ConfigInvalid(f"{row.name} must be text of at most {row.most} characters, got {value!r:.60}")


def _rules(row: Setting, value: object) -> str:
    """The text of the setting, from a text or from a list of rules."""
    if isinstance(value, str):
        text = _plain(row, value)
        rules_of(text, AZURE)
        return text
    if isinstance(value, (list, tuple)):
        rules = [rule for rule in value if isinstance(rule, Rule)]
        if len(rules) == len(value):
            text = text_of(rules)
            rules_of(text, AZURE)
            return text
    raise ConfigInvalid(f"{row.name} must be a list of Rule, got {value!r:.60}", "each rule has a name and a filter")


def _access(row: Setting, value: object) -> str:
    return rules_text(value)


def _plain(row: Setting, value: str) -> str:
    try:
        return plain_text(row.name, value)
    except UsageError as error:
        raise ConfigInvalid(error.what, error.hint) from error


_CHECKS: Final[dict[str, Callable[[Setting, object], SettingValue]]] = {
    SECONDS: _seconds,
    NUMBER: _number,
    RATE: _rate,
    FLAG: _flag,
    ENTITY: _entity,
    CHOICE: _choice,
    TEXT: _text,
    RULES: _rules,
    ACCESS: _access,
}
