# mypyc: compiled
"""The settings of a queue, a topic or a subscription: one row of `SETTINGS` for each.

    Setting ─┬─ DEFAULTS, checked_settings()            every caller that declares an entity
             ├─ kinds, fixed       lifecycle/declaring.py
             ├─ azure              bus/entities/azure_names.py ──▶ the emulator's file, Azure's documents
             └─ about              docs/guide/entities.md, which a test compares with the rows

A new setting is a row, and a line in `EntitySettings` if code of the core reads it. The code that enforces a limit is
in lifecycle/admission.py. Names and values are stored in every journal: never rename a row, and never narrow its
bounds.
"""

from collections.abc import Mapping
from typing import Final, final

from mypy_extensions import i64

from unibus.core.envelope.fields import SECONDS_MAX
from unibus.core.filters.filters import AZURE, MODES
from unibus.core.lifecycle.state.changes import Settings
from unibus.core.lifecycle.state.setting_types import (
    ACCESS,
    CHOICE,
    ENTITY,
    FLAG,
    NUMBER,
    RATE,
    RULES,
    SECONDS,
    TEXT,
    Setting,
    checked_value,
)
from unibus.errors import ConfigInvalid
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
from unibus.other_words import meant_among

STATUS_ACTIVE: Final = "active"
STATUS_SEND_DISABLED: Final = "send_disabled"
STATUS_RECEIVE_DISABLED: Final = "receive_disabled"
STATUS_DISABLED: Final = "disabled"
STATUSES: Final = (STATUS_ACTIVE, STATUS_SEND_DISABLED, STATUS_RECEIVE_DISABLED, STATUS_DISABLED)

_ENTITIES: Final = ("queue", "topic", "subscription")
_SENDERS: Final = ("queue", "topic")
_NO_EFFECT: Final = "stored and returned for clients of Azure, without effect"

_ROWS: Final[tuple[Setting, ...]] = (
    Setting(
        "lock_duration",
        SECONDS,
        LOCK_DURATION_S_DEFAULT,
        "how long a received message is locked",
        least=0.001,
        most=LOCK_DURATION_S_MAX,
        azure="LockDuration",
    ),
    Setting(
        "max_delivery_count",
        NUMBER,
        DELIVERY_COUNT_MAX_DEFAULT,
        "deliveries before a message is dead-lettered",
        least=1,
        azure="MaxDeliveryCount",
    ),
    Setting(
        "default_ttl",
        SECONDS,
        DURABLE_TTL_S_DEFAULT,
        "after which a message expires, if it has no `ttl` of its own; 14 days",
        least=0.001,
        most=SECONDS_MAX,
        azure="DefaultMessageTimeToLive",
        optional=True,
    ),
    Setting(
        "dead_letter_on_expiration",
        FLAG,
        False,
        "dead-letter what expired",
        azure="DeadLetteringOnMessageExpiration",
    ),
    Setting("requires_session", FLAG, False, "every message needs a session", azure="RequiresSession", fixed=True),
    Setting(
        "dedup_window",
        SECONDS,
        None,
        "in which message ids count as duplicates too",
        least=DEDUP_WINDOW_S_MIN,
        most=DEDUP_WINDOW_S_MAX,
        azure="DuplicateDetectionHistoryTimeWindow",
        optional=True,
    ),
    Setting(
        "duplicate_detection",
        FLAG,
        None,
        "whether message ids are compared; `None`: only with a `dedup_window`",
        azure="RequiresDuplicateDetection",
        optional=True,
    ),
    Setting(
        "max_size_mb",
        NUMBER,
        ENTITY_SIZE_MB_DEFAULT,
        "what the entity may hold before a send is `QuotaExceeded`",
        least=1,
        azure="MaxSizeInMegabytes",
    ),
    Setting("max_count", NUMBER, 0, "the same as a number of messages; 0 is no limit"),
    Setting("forward_to", ENTITY, None, "the entity that gets every message", azure="ForwardTo", optional=True),
    Setting(
        "forward_dead_letters_to",
        ENTITY,
        None,
        "the entity that gets every dead-lettered message",
        azure="ForwardDeadLetteredMessagesTo",
        optional=True,
    ),
    Setting("ordering", CHOICE, "priority", "in which order messages are delivered", choices=("priority", "sequence")),
    Setting("keeps", FLAG, False, "a topic without subscriptions stores what is sent, for the first one"),
    Setting(
        "rules",
        RULES,
        None,
        "which messages of the topic it gets ([filters](filters.md))",
        kinds=("subscription",),
        optional=True,
    ),
    Setting(
        "filter_mode",
        CHOICE,
        AZURE,
        "how its filters treat types ([filters](filters.md))",
        choices=tuple(sorted(MODES)),
        kinds=("subscription",),
    ),
    Setting(
        "dead_letter_on_filter_error",
        FLAG,
        True,
        "dead-letter a message for which a rule fails",
        kinds=("subscription",),
        azure="DeadLetteringOnFilterEvaluationExceptions",
    ),
    Setting(
        "status",
        CHOICE,
        STATUS_ACTIVE,
        "which operations are allowed, see below",
        choices=STATUSES,
        kinds=_ENTITIES,
        azure="Status",
    ),
    Setting(
        "auto_delete_on_idle",
        SECONDS,
        None,
        "after which an unused entity is deleted",
        least=AUTO_DELETE_S_MIN,
        most=SECONDS_MAX,
        kinds=_ENTITIES,
        azure="AutoDeleteOnIdle",
        optional=True,
    ),
    Setting(
        "user_metadata",
        TEXT,
        None,
        "for you",
        most=USER_METADATA_CHARS_MAX,
        kinds=_ENTITIES,
        azure="UserMetadata",
        optional=True,
    ),
    Setting(
        "authorization_rules",
        ACCESS,
        None,
        "up to 12 [authorization rules](access.md)",
        kinds=("queue", "topic", "namespace"),
        optional=True,
        secret=True,
    ),
    Setting(
        "max_message_size_kb",
        NUMBER,
        None,
        "a larger message is `MessageTooLarge`. It is the encoded message that counts",
        least=1,
        most=MESSAGE_SIZE_KB_MAX,
        kinds=_SENDERS,
        azure="MaxMessageSizeInKilobytes",
        optional=True,
    ),
    Setting("enable_batched_operations", FLAG, True, _NO_EFFECT, kinds=_ENTITIES, azure="EnableBatchedOperations"),
    Setting("enable_express", FLAG, False, _NO_EFFECT, kinds=_SENDERS, azure="EnableExpress"),
    Setting("enable_partitioning", FLAG, False, _NO_EFFECT, kinds=_SENDERS, azure="EnablePartitioning", fixed=True),
    Setting("support_ordering", FLAG, True, _NO_EFFECT, kinds=_SENDERS, azure="SupportOrdering"),
    Setting(
        "max_sends_per_second",
        RATE,
        None,
        "a client of a server that sends more often is `RateLimited`",
        most=RATE_PER_S_MAX,
        kinds=_SENDERS,
        optional=True,
    ),
    Setting(
        "max_receives_per_second",
        RATE,
        None,
        "the same for receives",
        most=RATE_PER_S_MAX,
        kinds=("queue", "subscription"),
        optional=True,
    ),
)

SETTINGS: Final[dict[str, Setting]] = {row.name: row for row in _ROWS}
DEFAULTS: Final[Settings] = {row.name: row.default for row in _ROWS}
"""Every setting with its default. Times are seconds; None means "none" and 0 "no limit"."""

SECRET: Final = frozenset([row.name for row in _ROWS if row.secret])


def checked_settings(given: Mapping[str, object]) -> Settings:
    """The given settings, checked, without defaults for the others."""
    checked: Settings = {}
    for name, value in given.items():
        row = SETTINGS.get(name)
        if row is None:
            raise ConfigInvalid(
                f"an entity has no setting {name!r}", hint_for_name(name, DEFAULTS, meant=meant_among(DEFAULTS))
            )
        checked[name] = checked_value(row, value)
    return checked


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
