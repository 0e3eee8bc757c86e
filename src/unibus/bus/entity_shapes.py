"""The two shapes of a file that declares entities, read into one: what there shall be, checked, and nothing done.

Our own, where settings have the names that `create_queue` has for them, and times are seconds or ISO 8601:

    {"queues": {"orders": {"lock_duration": 30}},
     "topics": {"news": {"default_ttl": "P1D", "subscriptions": {"red": {"rules": {"r": {"filter": "hue = 'red'"}}}}}}}

And the Config.json of Microsoft's emulator: UserConfig.Namespaces[0] with lists of Queues and Topics. What a file does
not name keeps its default, or stays as it is. What nobody here understands is an error that names it, never ignored.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from unibus.bus.entity_names import checked_path, checked_subscription
from unibus.core.fields import checked_headers
from unibus.core.filters.actions import SqlRuleAction
from unibus.core.filters.filters import CorrelationFilter, FalseFilter, Filter, SqlFilter, TrueFilter
from unibus.core.iso_duration import LONGEST_S, duration_s
from unibus.core.life.changes import Settings
from unibus.core.life.entity import QUEUE, SUBSCRIPTION, TOPIC, subscription_path
from unibus.core.life.rules import Rule, checked_rule_name
from unibus.core.life.settings import checked_settings
from unibus.errors import BusError, ConfigInvalid

_TIMES: Final = frozenset({"lock_duration", "default_ttl", "dedup_window", "auto_delete_on_idle"})
_PROPERTIES: Final[dict[str, str]] = {
    "AutoDeleteOnIdle": "auto_delete_on_idle",
    "DeadLetteringOnFilterEvaluationExceptions": "dead_letter_on_filter_error",
    "DeadLetteringOnMessageExpiration": "dead_letter_on_expiration",
    "DefaultMessageTimeToLive": "default_ttl",
    "DuplicateDetectionHistoryTimeWindow": "dedup_window",
    "EnableBatchedOperations": "enable_batched_operations",
    "EnableExpress": "enable_express",
    "EnablePartitioning": "enable_partitioning",
    "ForwardDeadLetteredMessagesTo": "forward_dead_letters_to",
    "ForwardTo": "forward_to",
    "LockDuration": "lock_duration",
    "MaxDeliveryCount": "max_delivery_count",
    "MaxMessageSizeInKilobytes": "max_message_size_kb",
    "MaxSizeInMegabytes": "max_size_mb",
    "RequiresSession": "requires_session",
    "Status": "status",
    "SupportOrdering": "support_ordering",
    "UserMetadata": "user_metadata",
}
_FOLDED: Final = {name.casefold(): setting for name, setting in _PROPERTIES.items()}
_DETECTION: Final = "requiresduplicatedetection"
_STATUSES: Final = {
    "active": "active",
    "disabled": "disabled",
    "senddisabled": "send_disabled",
    "receivedisabled": "receive_disabled",
}
_CORRELATION: Final = {
    "contenttype": "content_type",
    "correlationid": "correlation_id",
    "label": "subject",
    "subject": "subject",
    "messageid": "message_id",
    "replyto": "reply_to",
    "replytosessionid": "reply_to_session_id",
    "sessionid": "session_id",
    "to": "to",
    "properties": "properties",
}


@dataclass(frozen=True)
class Wanted:
    """An entity that a file declares. `rules` is None where the file says nothing of them."""

    name: str
    kind: int
    settings: Settings
    rules: tuple[Rule, ...] | None = None


def wanted_entities(text: str | bytes) -> list[Wanted]:
    """What a file declares: queues, then topics, each followed by its subscriptions."""
    try:
        document = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        if isinstance(error, BusError):
            raise
        raise ConfigInvalid(f"the file is no JSON: {error}", "mend it there") from error
    root = _mapping(document, "the file")
    if any([key.casefold() == "userconfig" for key in root]):
        found = _emulated(root)
    else:
        _only(root, ("queues", "topics"), "the file")
        found = _own(root)
    names: set[str] = set()
    for wanted in found:
        if wanted.name.casefold() in names:
            raise ConfigInvalid(f"{wanted.name!r} is declared twice", "names that differ only by case are one name")
        names.add(wanted.name.casefold())
    return found


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    named = dict(pairs)
    if len(named) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigInvalid(f"{twice!r:.60} stands twice in one object of the file", "leave one of them out")
    return named


# Our own shape


def _own(root: Mapping[str, object]) -> list[Wanted]:
    found: list[Wanted] = []
    for name, given in _mapping(root.get("queues", {}), "queues").items():
        found.append(_entity(checked_path(name), QUEUE, _mapping(given, name)))
    for name, given in _mapping(root.get("topics", {}), "topics").items():
        topic = dict(_mapping(given, name))
        subscriptions = _mapping(topic.pop("subscriptions", {}), f"the subscriptions of {name!r}")
        found.append(_entity(checked_path(name), TOPIC, topic))
        for own, settings in subscriptions.items():
            path = subscription_path(name, checked_subscription(own))
            found.append(_subscription(path, dict(_mapping(settings, path))))
    return found


def _subscription(path: str, given: dict[str, object]) -> Wanted:
    rules = given.pop("rules", None)
    if rules is None:
        return _entity(path, SUBSCRIPTION, given)
    listed = [_own_rule(path, name, each) for name, each in _mapping(rules, f"the rules of {path!r}").items()]
    return _entity(path, SUBSCRIPTION, given, tuple(listed))


def _own_rule(path: str, name: str, given: object) -> Rule:
    where = f"rule {name!r} of {path!r}"
    record = _mapping(given, where)
    _only(record, ("filter", "action"), where)
    try:
        action = record.get("action")
        return Rule(
            checked_rule_name(name),
            _own_filter(record.get("filter", True), where),
            None if action is None else SqlRuleAction(_text(action, where)),
        )
    except BusError as error:
        raise _inside(where, error) from error


def _own_filter(given: object, where: str) -> Filter:
    if isinstance(given, bool):
        return TrueFilter() if given else FalseFilter()
    if isinstance(given, str):
        return SqlFilter(given)
    return _correlation(dict(_mapping(given, where)), where)


def _correlation(fields: dict[str, object], where: str) -> Filter:
    properties = checked_headers(_mapping(fields.pop("properties", {}), where))
    correlation_id = fields.pop("correlation_id", None)
    known = frozenset(_CORRELATION.values())
    _only(fields, known, where)
    texts = {name: _text(value, where) for name, value in fields.items() if value is not None}
    own = None if correlation_id is None else _text(correlation_id, where)
    return CorrelationFilter(own, properties or None, **texts)


# The emulator's


def _emulated(root: Mapping[str, object]) -> list[Wanted]:
    config = _folded(_folded(root, "the file").get("userconfig"), "UserConfig")
    spaces = _items(config.get("namespaces"), "Namespaces")
    if len(spaces) > 1:
        raise ConfigInvalid(f"{len(spaces)} namespaces in one file", "a bus is one namespace: keep one of them")
    found: list[Wanted] = []
    for space in spaces:
        namespace = _folded(space, "a namespace")
        for each in _items(namespace.get("queues"), "Queues"):
            queue, name = _named(each, "a queue", ())
            found.append(_entity(checked_path(name), QUEUE, _properties(queue, name)))
        for each in _items(namespace.get("topics"), "Topics"):
            found += _emulated_topic(each)
    return found


def _emulated_topic(given: object) -> list[Wanted]:
    topic, name = _named(given, "a topic", ("subscriptions",))
    found = [_entity(checked_path(name), TOPIC, _properties(topic, name))]
    for each in _items(topic.get("subscriptions"), f"the subscriptions of {name!r}"):
        subscription, own = _named(each, "a subscription", ("rules",))
        path = subscription_path(name, checked_subscription(own))
        rules = [_emulated_rule(path, rule) for rule in _items(subscription.get("rules"), f"the rules of {path!r}")]
        found.append(_entity(path, SUBSCRIPTION, _properties(subscription, path), tuple(rules) if rules else None))
    return found


def _properties(entity: Mapping[str, object], name: str) -> dict[str, object]:
    """Named as ours; an empty name is none. A window that is given beside "no detection" is kept for later."""
    given = _folded(entity.get("properties"), f"the properties of {name!r}")
    detects = given.pop(_DETECTION, None)
    settings: dict[str, object] = {}
    for key, value in given.items():
        if key not in _FOLDED:
            raise ConfigInvalid(f"{name!r} has a property {key!r:.60}, which is not known", "leave it out")
        settings[_FOLDED[key]] = None if value == "" and key.startswith("forward") else value
    if isinstance(detects, bool):
        settings["duplicate_detection"] = detects
    elif detects is not None:
        raise ConfigInvalid(f"RequiresDuplicateDetection of {name!r} is {detects!r:.40}", "use true or false")
    status = settings.get("status")
    if isinstance(status, str):
        settings["status"] = _STATUSES.get(status.casefold(), status)
    if settings.get("user_metadata") == "":
        settings["user_metadata"] = None
    return settings


def _emulated_rule(path: str, given: object) -> Rule:
    record, name = _named(given, f"a rule of {path!r}", ())
    where = f"rule {name!r} of {path!r}"
    properties = _folded(record.get("properties"), where)
    action = _folded(properties.get("action"), where).get("sqlexpression")
    try:
        condition = _emulated_filter(properties, where)
        return Rule(
            checked_rule_name(name), condition, SqlRuleAction(_text(action, where)) if action is not None else None
        )
    except BusError as error:
        raise _inside(where, error) from error


def _emulated_filter(properties: Mapping[str, object], where: str) -> Filter:
    kind = str(properties.get("filtertype", "")).casefold()
    if kind in ("sql", "sqlfilter"):
        return SqlFilter(_text(_folded(properties.get("sqlfilter"), where).get("sqlexpression"), where))
    if kind in ("correlation", "correlationfilter"):
        given = _folded(properties.get("correlationfilter"), where)
        _only(given, _CORRELATION, where)
        return _correlation({_CORRELATION[key]: value for key, value in given.items() if value != ""}, where)
    raise ConfigInvalid(f"FilterType {kind!r:.40} is not known", "use Sql or Correlation")


# Both


def _entity(name: str, kind: int, given: Mapping[str, object], rules: tuple[Rule, ...] | None = None) -> Wanted:
    try:
        timed = {key: _seconds(value) if key in _TIMES else value for key, value in given.items()}
        return Wanted(name, kind, checked_settings(timed), rules)
    except BusError as error:
        raise _inside(repr(name), error) from error


def _seconds(value: object) -> object:
    if not isinstance(value, str):
        return value
    seconds = duration_s(value)
    return None if seconds > LONGEST_S else seconds


def _inside(where: str, error: BusError) -> ConfigInvalid:
    return ConfigInvalid(f"{where}: {error.what}", error.hint)


def _named(given: object, what: str, parts: tuple[str, ...]) -> tuple[dict[str, object], str]:
    """Its name and properties, and the parts that only such an entity has."""
    record = _folded(given, what)
    name = record.get("name")
    if not isinstance(name, str):
        raise ConfigInvalid(f"{what} has no name", 'each has a "Name"')
    _only(record, ("name", "properties", *parts), repr(name))
    return record, name


def _folded(given: object, what: str) -> dict[str, object]:
    """By names without case, as the emulator reads them."""
    return {key.casefold(): value for key, value in _mapping({} if given is None else given, what).items()}


def _mapping(given: object, what: str) -> Mapping[str, object]:
    if not isinstance(given, dict):
        raise ConfigInvalid(f"{what} is {given!r:.40}", "an object with names and values")
    return given


def _items(given: object, what: str) -> list[object]:
    if given is None:
        return []
    if not isinstance(given, list):
        raise ConfigInvalid(f"{what} is {given!r:.40}", "a list")
    return given


def _text(given: object, where: str) -> str:
    if not isinstance(given, str):
        raise ConfigInvalid(f"{where} has {given!r:.40} where text should be")
    return given


def _only(given: Mapping[str, object], known: Collection[str], where: str) -> None:
    for key in given:
        if key not in known:
            raise ConfigInvalid(f"{where} has {key!r:.60}, which is not known", f"known are {', '.join(sorted(known))}")
