# mypyc: compiled
"""The settings of a queue, a topic or a subscription, and their checks, in one place for every caller."""

from collections.abc import Mapping
from typing import Final, final

from mypy_extensions import i64

from unibus.core.access.rules import rules_text
from unibus.core.envelope.fields import SECONDS_MAX, plain_text, seconds_ns
from unibus.core.filters.filters import AZURE, MODES
from unibus.core.lifecycle.state.changes import Settings
from unibus.core.lifecycle.state.rules import Rule, rules_of, text_of
from unibus.errors import ConfigInvalid, UsageError
from unibus.limits import (
    AUTO_DELETE_S_MIN,
    DEDUP_WINDOW_S_DEFAULT,
    DEDUP_WINDOW_S_MAX,
    DEDUP_WINDOW_S_MIN,
    DELIVERY_COUNT_MAX_DEFAULT,
    DURABLE_TTL_S_DEFAULT,
    ENTITY_SIZE_MB_DEFAULT,
    LOCK_DURATION_S_DEFAULT,
    LOCK_DURATION_S_MAX,
    MESSAGE_SIZE_KB_MAX,
    RATE_PER_S_MAX,
    USER_METADATA_CHARS_MAX,
)
from unibus.near_names import hint_for_name

STATUS_ACTIVE: Final = "active"
STATUS_SEND_DISABLED: Final = "send_disabled"
STATUS_RECEIVE_DISABLED: Final = "receive_disabled"
STATUS_DISABLED: Final = "disabled"
STATUSES: Final = (STATUS_ACTIVE, STATUS_SEND_DISABLED, STATUS_RECEIVE_DISABLED, STATUS_DISABLED)

DEFAULTS: Final[Settings] = {
    "lock_duration": LOCK_DURATION_S_DEFAULT,
    "max_delivery_count": DELIVERY_COUNT_MAX_DEFAULT,
    "default_ttl": DURABLE_TTL_S_DEFAULT,
    "dead_letter_on_expiration": False,
    "requires_session": False,
    "dedup_window": None,
    "duplicate_detection": None,
    "max_size_mb": ENTITY_SIZE_MB_DEFAULT,
    "max_count": 0,
    "forward_to": None,
    "forward_dead_letters_to": None,
    "ordering": "priority",
    "keeps": False,
    "rules": None,
    "filter_mode": AZURE,
    "dead_letter_on_filter_error": True,
    "status": STATUS_ACTIVE,
    "auto_delete_on_idle": None,
    "user_metadata": None,
    "authorization_rules": None,
    "max_message_size_kb": None,
    "enable_batched_operations": True,
    "enable_express": False,
    "enable_partitioning": False,
    "support_ordering": True,
    "max_sends_per_second": None,
    "max_receives_per_second": None,
}
"""Every setting with its default. Times are seconds; None means "none" and 0 "no limit". `keeps` is for topics: a
message that is sent while the topic has no subscription is stored for the first one. `rules` and the two after it are
for subscriptions (rules.py). The four that begin with `enable_` or `support_` are Azure's: they are stored and
returned, and have no effect. `duplicate_detection` says whether message ids are compared; None: only if there is a
`dedup_window`. The two rates apply to clients of a server."""

SECRET: Final = frozenset({"authorization_rules"})
"""Settings with keys: returned to a caller that reads settings, and never in a log, an error or an output."""

_SECONDS: Final[dict[str, tuple[float, float]]] = {
    "lock_duration": (0.001, LOCK_DURATION_S_MAX),
    "default_ttl": (0.001, SECONDS_MAX),
    "dedup_window": (DEDUP_WINDOW_S_MIN, DEDUP_WINDOW_S_MAX),
    "auto_delete_on_idle": (AUTO_DELETE_S_MIN, SECONDS_MAX),
}
_NUMBERS: Final[dict[str, tuple[int, int]]] = {
    "max_delivery_count": (1, 2**53 - 1),
    "max_size_mb": (1, 2**53 - 1),
    "max_count": (0, 2**53 - 1),
    "max_message_size_kb": (1, MESSAGE_SIZE_KB_MAX),
}
_RATES: Final = frozenset({"max_sends_per_second", "max_receives_per_second"})
_FLAGS: Final = frozenset(
    {
        "duplicate_detection",
        "dead_letter_on_expiration",
        "requires_session",
        "keeps",
        "dead_letter_on_filter_error",
        "enable_batched_operations",
        "enable_express",
        "enable_partitioning",
        "support_ordering",
    }
)
_NAMES: Final = frozenset({"forward_to", "forward_dead_letters_to"})
_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "filter_mode": tuple(sorted(MODES)),
    "ordering": ("priority", "sequence"),
    "status": STATUSES,
}
_NONE_ALLOWED: Final = _NAMES | {
    "default_ttl",
    "dedup_window",
    "duplicate_detection",
    "rules",
    "auto_delete_on_idle",
    "user_metadata",
    "authorization_rules",
    "max_message_size_kb",
    *_RATES,
}


def checked_settings(given: Mapping[str, object]) -> Settings:
    """The given settings, checked, without defaults for the others."""
    checked: Settings = {}
    for name, value in given.items():
        checked[name] = _checked(name, value)
    return checked


def _checked(name: str, value: object) -> str | int | float | bool | None:
    if name not in DEFAULTS:
        raise ConfigInvalid(f"an entity has no setting {name!r}", hint_for_name(name, DEFAULTS))
    if value is None and name in _NONE_ALLOWED:
        return None
    if name in _SECONDS:
        return _seconds(name, value)
    if name in _NUMBERS:
        return _number(name, value)
    if name in _RATES:
        return _rate(name, value)
    if name in _FLAGS:
        if isinstance(value, bool):
            return value
        raise ConfigInvalid(
            f"{name} must be true or false, got {value!r}", "write it without quotes; in Python True or False"
        )
    if name in _NAMES:
        if isinstance(value, str) and value:
            return _text(name, value)
        raise ConfigInvalid(f"{name} must be the name of an entity, got {value!r}")
    if name == "rules":
        return _rules(value)
    if name == "authorization_rules":
        return rules_text(value)
    if name == "user_metadata":
        if isinstance(value, str) and len(value) <= USER_METADATA_CHARS_MAX:
            return _text(name, value)
        raise ConfigInvalid(
            f"user_metadata must be text of at most {USER_METADATA_CHARS_MAX} characters, got {value!r:.60}"
        )
    if value in _CHOICES[name]:
        return str(value)
    raise ConfigInvalid(f"{name} must be {' or '.join(map(repr, _CHOICES[name]))}, got {value!r:.60}")


def _text(name: str, value: str) -> str:
    try:
        return plain_text(name, value)
    except UsageError as error:
        raise ConfigInvalid(error.what, error.hint) from error


def _rules(value: object) -> str:
    """The text of the setting, from a text or from a list of rules. Raises ConfigInvalid if it is not valid."""
    if isinstance(value, str):
        text = _text("rules", value)
        rules_of(text, AZURE)
        return text
    if isinstance(value, (list, tuple)):
        rules = [rule for rule in value if isinstance(rule, Rule)]
        if len(rules) == len(value):
            text = text_of(rules)
            rules_of(text, AZURE)
            return text
    raise ConfigInvalid(f"rules must be a list of Rule, got {value!r:.60}", "each rule has a name and a filter")


def _seconds(name: str, value: object) -> float:
    least, most = _SECONDS[name]
    try:
        seconds = float(seconds_ns(name, value)) / 1e9
    except UsageError as error:
        raise ConfigInvalid(error.what, error.hint) from error
    if not least <= seconds <= most:
        raise ConfigInvalid(f"{name} must be from {least:g} to {most:g} seconds, got {seconds:g}")
    return seconds


def _number(name: str, value: object) -> int:
    least, most = _NUMBERS[name]
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        bound = f"a whole number of {least} or more" if most >= 2**53 - 1 else f"a whole number from {least} to {most}"
        raise ConfigInvalid(f"{name} must be {bound}, got {value!r:.60}")
    return value


def _rate(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= RATE_PER_S_MAX:
        raise ConfigInvalid(
            f"{name} must be a number above 0, at most {RATE_PER_S_MAX}, got {value!r:.60}", "use None for no limit"
        )
    return float(value)


def detects_duplicates(settings: Mapping[str, object]) -> bool:
    """Whether message ids are compared: as `duplicate_detection` says, or if there is a `dedup_window`."""
    chosen = settings.get("duplicate_detection")
    return settings.get("dedup_window") is not None if chosen is None else chosen is True


@final
class EntitySettings:
    """The settings of one entity, converted: times in nanoseconds, 0 for none."""

    def __init__(self, given: Settings) -> None:
        merged: Settings = {**DEFAULTS, **given}
        self.given = given
        self.lock_ns: i64 = _ns(merged["lock_duration"])
        self.delivery_count_max: i64 = _whole(merged["max_delivery_count"])
        self.ttl_ns: i64 = _ns(merged["default_ttl"])
        self.window_ns: i64 = _ns(merged["dedup_window"]) or _ns(DEDUP_WINDOW_S_DEFAULT)
        self.dedup_ns: i64 = self.window_ns if detects_duplicates(merged) else 0
        self.size_max: i64 = _whole(merged["max_size_mb"]) * 1024 * 1024
        self.count_max: i64 = _whole(merged["max_count"])
        self.dead_letter_on_expiration = merged["dead_letter_on_expiration"] is True
        self.requires_session = merged["requires_session"] is True
        self.keeps = merged["keeps"] is True
        self.rules = _name(merged["rules"])
        self.filter_mode = _name(merged["filter_mode"])
        self.dead_letter_on_filter_error = merged["dead_letter_on_filter_error"] is True
        self.by_priority = merged["ordering"] == "priority"
        self.forward_to = _name(merged["forward_to"])
        self.forward_dead_letters_to = _name(merged["forward_dead_letters_to"])
        status = merged["status"]
        self.status = _name(status)
        self.sends = status in (STATUS_ACTIVE, STATUS_RECEIVE_DISABLED)
        self.receives = status in (STATUS_ACTIVE, STATUS_SEND_DISABLED)
        self.idle_ns: i64 = _ns(merged["auto_delete_on_idle"])
        self.message_size_max: i64 = _whole(merged["max_message_size_kb"]) * 1024
        self.sends_per_s: float = _rate_of(merged["max_sends_per_second"])
        self.receives_per_s: float = _rate_of(merged["max_receives_per_second"])

    def mark_window_ns(self) -> i64:
        """How long a dedup key is kept, also without duplicate detection by id."""
        return self.window_ns

    def has_rules_of(self, other: "EntitySettings") -> bool:
        """Whether a topic routes in the same way with both."""
        return self.rules == other.rules and self.filter_mode == other.filter_mode

    def as_dict(self) -> Settings:
        return {**DEFAULTS, **self.given}


def shown(settings: Mapping[str, object]) -> dict[str, object]:
    """The settings for output: without keys."""
    return {name: "***" if name in SECRET and value is not None else value for name, value in settings.items()}


def _ns(seconds: object) -> i64:
    return round(seconds * 1e9) if isinstance(seconds, (int, float)) else 0


def _whole(value: object) -> i64:
    return value if isinstance(value, int) else 0


def _rate_of(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _name(value: object) -> str:
    return value if isinstance(value, str) else ""
