"""Settings of an entity: between the elements of its Atom document and the names of the bus.

    PUT                    the values of the document, over Azure's defaults
    PUT with If-Match      the same: a property that the document omits is reset to its default, because clients omit
                           what they want to clear. FIXED settings stay, and so do settings that Azure does not have.

A value is converted by the type of its setting (core/lifecycle/state/setting_types.py), so a new setting with an Azure
name needs nothing here.

Elements for counts, times and availability are read-only and ignored: clients send them back unchanged.
"""

from collections.abc import Callable, Mapping
from typing import Final

from unibus.bus.api.broker import EntityInfo
from unibus.bus.entities.azure_names import PROPERTIES, STATUSES
from unibus.bus.entities.iso_duration import FOREVER, LONGEST_S, duration_s, duration_text
from unibus.codecs.atom import schema
from unibus.codecs.atom.descriptions import EntityDescription
from unibus.core.lifecycle.state.setting_types import CHOICE, ENTITY, FLAG, NUMBER, SECONDS, TEXT
from unibus.core.lifecycle.state.settings import DEFAULTS, SETTINGS, checked_settings, detects_duplicates
from unibus.endpoints.http.administration.access import descriptions_of, rules_of
from unibus.endpoints.http.administration.forwarding import target_address, target_name
from unibus.endpoints.http.administration.times import time_text
from unibus.errors import BusError, ConfigInvalid
from unibus.limits import DEDUP_WINDOW_S_DEFAULT

QUEUE: Final = "queue"
TOPIC: Final = "topic"
SUBSCRIPTION: Final = "subscription"

KINDS: Final = {schema.QUEUE: QUEUE, schema.TOPIC: TOPIC, schema.SUBSCRIPTION: SUBSCRIPTION}
_DOCUMENTS: Final = {kind: document for document, kind in KINDS.items()}

FIXED: Final = frozenset([row.name for row in SETTINGS.values() if row.fixed]) | {"duplicate_detection"}
"""Set once, when the entity is created: an update that omits them changes nothing."""

_STATUS_WORDS: Final = {word: name for name, word in STATUSES.items()}
_FOLDED_STATUSES: Final = {name.casefold(): word for name, word in STATUSES.items()}
_CONSTANT: Final = {
    "IsAnonymousAccessible": "false",
    "FilteringMessagesBeforePublishing": "false",
    "EnableSubscriptionPartitioning": "false",
    "EntityAvailabilityStatus": "Available",
}
"""Elements that clients expect and that have no setting in unibus."""


def defaults_of(kind: str) -> dict[str, object]:
    """Azure's defaults. Azure delivers in order of sequence and has no priorities."""
    settings: dict[str, object] = {"ordering": "sequence", "default_ttl": None}
    if kind != SUBSCRIPTION:
        settings["duplicate_detection"] = False
    return settings


def given_settings(described: EntityDescription, now: Mapping[str, object] | None = None) -> dict[str, object]:
    """The settings of a document, by unibus names. ConfigInvalid names the element. `now`: the current settings."""
    settings: dict[str, object] = {}
    for element, text in described.values.items():
        name = PROPERTIES.get(element)
        if name is not None:
            settings[name] = _checked(element, name, text)
    if described.access:
        rules = rules_of(described.access, None if now is None else now.get("authorization_rules"))
        settings["authorization_rules"] = _setting(schema.AUTHORIZATION_RULES, "authorization_rules", rules)
    return settings


def replaced_settings(described: EntityDescription, now: Mapping[str, object]) -> dict[str, object]:
    """The settings of an update: every property of the document's kind, with its value or its default."""
    defaults = {**DEFAULTS, **defaults_of(KINDS[described.kind])}
    settings: dict[str, object] = {}
    for element in schema.ELEMENTS[described.kind]:
        name = "authorization_rules" if element == schema.AUTHORIZATION_RULES else PROPERTIES.get(element)
        if name is not None and name not in FIXED:
            settings[name] = defaults[name]
    return {**settings, **given_settings(described, now)}


def _checked(element: str, name: str, text: str) -> object:
    return _setting(element, name, _READERS[SETTINGS[name].type](element, text))


def _read_seconds(element: str, text: str) -> float | None:
    given = text.strip()
    try:
        seconds = duration_s(given)
    except ConfigInvalid as error:
        raise ConfigInvalid(f"{element} is {given!r:.60}, which is not a duration", error.hint) from error
    return None if seconds > LONGEST_S else seconds


def _read_flag(element: str, text: str) -> bool:
    flag = {"true": True, "1": True, "false": False, "0": False}.get(text.strip().lower())
    if flag is None:
        raise ConfigInvalid(f"{element} must be true or false, got {text.strip()!r:.60}")
    return flag


def _read_number(element: str, text: str) -> int:
    given = text.strip()
    if not (given.isascii() and given.isdigit() and len(given) < 19):
        raise ConfigInvalid(f"{element} must be a whole number, got {given!r:.60}")
    return int(given)


def _read_choice(element: str, text: str) -> str:
    given = text.strip()
    return _FOLDED_STATUSES.get(given.casefold(), given)


def _read_text(element: str, text: str) -> str | None:
    return text or None


_READERS: Final[dict[str, Callable[[str, str], object]]] = {
    SECONDS: _read_seconds,
    FLAG: _read_flag,
    NUMBER: _read_number,
    CHOICE: _read_choice,
    ENTITY: target_name,
    TEXT: _read_text,
}
"""From the text of an element to the value of a setting, by the type of the setting."""


def _setting(element: str, name: str, value: object) -> object:
    try:
        return checked_settings({name: value})[name]
    except BusError as error:
        raise ConfigInvalid(f"{element}: {error.what}", error.hint) from error


# From settings to the document


def description_of(info: EntityInfo, host: str, more: Mapping[str, int]) -> EntityDescription:
    """The document of an entity. `more` are the counts that only a topic has, by their elements."""
    settings: Mapping[str, object] = info.settings
    document = _DOCUMENTS.get(info.kind, schema.QUEUE)
    waiting = info.active + info.locked + info.deferred
    values = {
        **_CONSTANT,
        **{name: str(count) for name, count in more.items()},
        "SizeInBytes": str(info.size_bytes),
        "MessageCount": str(waiting + info.scheduled + info.dead),
        "CreatedAt": time_text(info.created_ns),
        "UpdatedAt": time_text(info.updated_ns or info.created_ns),
        "AccessedAt": time_text(info.accessed_ns),
    }
    for element in schema.ELEMENTS[document]:
        name = PROPERTIES.get(element)
        text = None if name is None else _text(name, settings, host)
        if text is not None:
            values[element] = text
    counts = {
        "ActiveMessageCount": waiting,
        "DeadLetterMessageCount": info.dead,
        "ScheduledMessageCount": info.scheduled,
    }
    access = descriptions_of(settings.get("authorization_rules"), info.created_ns, info.updated_ns or info.created_ns)
    return EntityDescription(document, values, access, counts)


def _text(name: str, settings: Mapping[str, object], host: str) -> str | None:
    value = settings.get(name)
    if name == "duplicate_detection":
        return "true" if detects_duplicates(settings) else "false"
    if name == "dedup_window" and value is None:
        value = DEDUP_WINDOW_S_DEFAULT
    kind = SETTINGS[name].type
    if kind == SECONDS:
        return duration_text(value) if isinstance(value, (int, float)) else FOREVER
    if value is None:
        return None
    if kind == FLAG:
        return "true" if value is True else "false"
    if kind == ENTITY:
        return target_address(host, str(value))
    return _STATUS_WORDS.get(str(value), str(value)) if kind == CHOICE else str(value)
