"""Parses the two formats of a declaration file into one list of checked, wanted entities. It changes nothing.

Our own format uses the names of the settings of `create_queue`; durations are seconds or ISO 8601:

    {"queues": {"orders": {"lock_duration": 30}},
     "topics": {"news": {"default_ttl": "P1D", "subscriptions": {"red": {"rules": {"r": {"filter": "hue = 'red'"}}}}}}}

The other format is the Config.json of Microsoft's emulator: UserConfig.Namespaces[0] with lists of Queues and Topics. A
setting that the file does not name keeps its default or its present value. An unknown name is an error with its line,
and is never ignored: a misspelt setting must not be lost silently.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from unibus.bus.entities.azure_names import CORRELATION, PROPERTIES, STATUSES, TIMES
from unibus.bus.entities.commented_json import LinedObject, read_json
from unibus.bus.entities.iso_duration import LONGEST_S, duration_s
from unibus.bus.entity_names import checked_path, checked_subscription
from unibus.core.envelope.fields import checked_headers
from unibus.core.envelope.message_properties import HeaderValue
from unibus.core.filters.actions import SqlRuleAction
from unibus.core.filters.filters import CorrelationFilter, FalseFilter, Filter, SqlFilter, TrueFilter
from unibus.core.lifecycle.state.changes import Settings
from unibus.core.lifecycle.state.entity import KIND_NAMES, QUEUE, SUBSCRIPTION, TOPIC, subscription_path
from unibus.core.lifecycle.state.rules import Rule, checked_rule_name
from unibus.core.lifecycle.state.settings import SETTINGS, checked_settings
from unibus.errors import BusError, ConfigInvalid, UsageError
from unibus.near_names import hint_for_name, near_name

_FOLDED: Final = {name.casefold(): setting for name, setting in PROPERTIES.items()}
_STATUSES: Final = {name.casefold(): status for name, status in STATUSES.items()}
_CORRELATION: Final = {
    **{name.casefold(): field for name, field in CORRELATION.items()},
    "subject": "subject",
    "properties": "properties",
}
_KINDS: Final = {name: kind for kind, name in KIND_NAMES.items()}


@dataclass(frozen=True)
class WantedEntity:
    """An entity that a file declares. `rules` is None if the file does not mention them."""

    name: str
    kind: int
    settings: Settings
    rules: tuple[Rule, ...] | None = None


def wanted_entities(text: str | bytes) -> list[WantedEntity]:
    """The declared entities: queues, then topics, each followed by its subscriptions."""
    root = _mapping(read_json(text), "the file")
    # One name decides the format. Both formats refuse unknown names, so a mixture of them is an error and not read in
    # part.
    if any([key.casefold() == "userconfig" for key in root]):
        found = _emulator_entities(root)
    else:
        # UserConfig is suggested for a misspelt name, although our own format does not have it: `UserConfg` would
        # otherwise give a hint about queues.
        _only(root, ("queues", "topics"), "the file", ("UserConfig",))
        found = _own_entities(root)
    names: set[str] = set()
    for wanted in found:
        # JSON objects refuse a repeated name themselves (commented_json.py); names in another case, and names of lists,
        # are found here.
        if wanted.name.casefold() in names:
            raise ConfigInvalid(
                f"{wanted.name!r} is declared twice", "remove one; names that differ only in case are equal"
            )
        names.add(wanted.name.casefold())
    return found


def declared(name: str, kind: str, given: Mapping[str, object]) -> WantedEntity:
    """One entity in our own format, from the JSON of the administration API. Its name is not checked."""
    number = _KINDS[kind]
    # Only a subscription has rules.
    return _subscription(name, given) if number == SUBSCRIPTION else _entity(name, number, given)


def declared_rule(path: str, name: str, given: object) -> Rule:
    """One rule of a subscription in our own format."""
    return _own_rule(path, name, given)


# Our own format


def _own_entities(root: Mapping[str, object]) -> list[WantedEntity]:
    found: list[WantedEntity] = []
    queues = _mapping(root.get("queues", {}), "queues")
    for name, given in queues.items():
        with _line_of(queues, name):
            found.append(_entity(checked_path(name), QUEUE, _mapping(given, name)))
    topics = _mapping(root.get("topics", {}), "topics")
    for name, given in topics.items():
        with _line_of(topics, name):
            found += _own_topic(name, _mapping(given, name))
    return found


def _own_topic(name: str, topic: Mapping[str, object]) -> list[WantedEntity]:
    _check_subscriptions_spelt(name, topic)
    subscriptions = _mapping(topic.get("subscriptions", {}), f"the subscriptions of {name!r}")
    found = [_entity(checked_path(name), TOPIC, _without(topic, "subscriptions"))]
    for own, settings in subscriptions.items():
        with _line_of(subscriptions, own):
            path = subscription_path(name, checked_subscription(own))
            found.append(_subscription(path, _mapping(settings, path)))
    return found


def _check_subscriptions_spelt(name: str, topic: Mapping[str, object]) -> None:
    """`subscriptions` is no setting, so the error about an unknown setting could not name it."""
    for key in topic:
        if key not in SETTINGS and near_name(key, ["subscriptions"]) and key != "subscriptions":
            with _line_of(topic, key):
                raise ConfigInvalid(f"topic {name!r} has an unknown name {key!r:.60}", "did you mean 'subscriptions'?")


def _subscription(path: str, given: Mapping[str, object]) -> WantedEntity:
    settings = _without(given, "rules")
    # None, unlike {}: no rules are named, so existing ones stay. An empty object removes all of them.
    if given.get("rules") is None:
        return _entity(path, SUBSCRIPTION, settings)
    rules = _mapping(given["rules"], f"the rules of {path!r}")
    listed = []
    for name, each in rules.items():
        with _line_of(rules, name):
            listed.append(_own_rule(path, name, each))
    return _entity(path, SUBSCRIPTION, settings, tuple(listed))


def _own_rule(path: str, name: str, given: object) -> Rule:
    where = f"rule {name!r} of {path!r}"
    record = _mapping(given, where)
    _only(record, ("filter", "action"), where)
    try:
        return Rule(
            checked_rule_name(name),
            # A rule without a filter matches everything, as `$Default` does.
            _own_filter(record.get("filter", True), where),
            _own_action(record.get("action"), where),
        )
    except BusError as error:
        raise _inside(where, error) from error


def _own_filter(given: object, where: str) -> Filter:
    if isinstance(given, bool):
        return TrueFilter() if given else FalseFilter()
    if isinstance(given, str):
        return SqlFilter(given)
    record = _mapping(given, where)
    # The long form differs from a correlation filter by this one name, which no correlation property has.
    if "sql" in record:
        return SqlFilter(*_sql(record, where))
    return _correlation(dict(record), where)


def _own_action(given: object, where: str) -> SqlRuleAction | None:
    if given is None:
        return None
    return SqlRuleAction(given) if isinstance(given, str) else SqlRuleAction(*_sql(_mapping(given, where), where))


def _sql(record: Mapping[str, object], where: str) -> tuple[str, dict[str, HeaderValue]]:
    """The long form of an SQL expression: its text and the values of its parameters."""
    _only(record, ("sql", "parameters"), where)
    return _text(record.get("sql"), where), checked_headers(_mapping(record.get("parameters", {}), where))


def _correlation(fields: dict[str, object], where: str) -> Filter:
    properties = checked_headers(_mapping(fields.pop("properties", {}), where))
    correlation_id = fields.pop("correlation_id", None)
    # `correlation_id` and `properties` are taken out before, since CorrelationFilter has parameters of its own for
    # them.
    known = frozenset(_CORRELATION.values())
    _only(fields, known, where)
    texts = {name: _text(value, where) for name, value in fields.items() if value is not None}
    own = None if correlation_id is None else _text(correlation_id, where)
    return CorrelationFilter(own, properties or None, **texts)


# The emulator's format


def _emulator_entities(root: Mapping[str, object]) -> list[WantedEntity]:
    config = _folded(_folded(root, "the file").get("userconfig"), "UserConfig")
    # An ignored, misspelt list would silently start a server without these entities.
    _only(config, ("namespaces", "logging"), "UserConfig")
    # A list, as the emulator writes it, although a bus has one namespace. None at all is a file without entities.
    spaces = _items(config.get("namespaces"), "Namespaces")
    if len(spaces) > 1:
        raise ConfigInvalid(f"the file has {len(spaces)} namespaces, but a bus has only one", "keep one of them")
    found: list[WantedEntity] = []
    for space in spaces:
        namespace = _folded(space, "a namespace")
        _only(namespace, ("name", "queues", "topics"), "the namespace")
        for each in _items(namespace.get("queues"), "Queues"):
            with _line_of(each):
                queue, name = _named(each, "a queue", ())
                found.append(_entity(checked_path(name), QUEUE, _properties(queue, name)))
        for each in _items(namespace.get("topics"), "Topics"):
            with _line_of(each):
                found += _emulator_topic(each)
    return found


def _emulator_topic(given: object) -> list[WantedEntity]:
    topic, name = _named(given, "a topic", ("subscriptions",))
    found = [_entity(checked_path(name), TOPIC, _properties(topic, name))]
    for each in _items(topic.get("subscriptions"), f"the subscriptions of {name!r}"):
        with _line_of(each):
            found.append(_emulator_subscription(name, each))
    return found


def _emulator_subscription(topic: str, given: object) -> WantedEntity:
    subscription, own = _named(given, "a subscription", ("rules",))
    path = subscription_path(topic, checked_subscription(own))
    rules = []
    for each in _items(subscription.get("rules"), f"the rules of {path!r}"):
        with _line_of(each):
            rules.append(_emulator_rule(path, each))
    # An empty list counts as not named, unlike {} in our own format: without rules of its own a subscription of the
    # emulator has the default rule.
    return _entity(path, SUBSCRIPTION, _properties(subscription, path), tuple(rules) if rules else None)


def _properties(entity: Mapping[str, object], name: str) -> dict[str, object]:
    """The properties of an entity with our names of the settings. An empty forwarding target means none."""
    written = entity.get("properties")
    given = _folded(written, f"the properties of {name!r}")
    settings = LinedObject(given.line)
    for key, value in given.items():
        if key not in _FOLDED:
            # For the error text: the name as the file spells it.
            own = next((each for each in written if each.casefold() == key), key) if isinstance(written, dict) else key
            with _line_of(given, key):
                hint = hint_for_name(own, PROPERTIES, "leave it out")
                raise ConfigInvalid(f"{name!r} has an unknown property {own!r:.60}", hint)
        # The emulator's own file has empty strings for settings that are not used.
        settings[_FOLDED[key]] = None if value == "" and key.startswith("forward") else value
        settings.lines[_FOLDED[key]] = given.lines.get(key, 0)
    # In Azure a dedup window alone does not turn on duplicate detection.
    if settings.get("dedup_window") is not None:
        settings.setdefault("duplicate_detection", False)
    status = settings.get("status")
    if isinstance(status, str):
        settings["status"] = _STATUSES.get(status.casefold(), status)
    if settings.get("user_metadata") == "":
        settings["user_metadata"] = None
    return settings


def _emulator_rule(path: str, given: object) -> Rule:
    record, name = _named(given, f"a rule of {path!r}", ())
    where = f"rule {name!r} of {path!r}"
    properties = _folded(record.get("properties"), where)
    # `_folded` reads a missing object as an empty one, so each step may be absent.
    action = _folded(properties.get("action"), where).get("sqlexpression")
    try:
        condition = _emulator_filter(properties, where)
        return Rule(
            checked_rule_name(name), condition, SqlRuleAction(_text(action, where)) if action is not None else None
        )
    except BusError as error:
        raise _inside(where, error) from error


def _emulator_filter(properties: Mapping[str, object], where: str) -> Filter:
    kind = str(properties.get("filtertype", "")).casefold()
    if kind in ("sql", "sqlfilter"):
        return SqlFilter(_text(_folded(properties.get("sqlfilter"), where).get("sqlexpression"), where))
    if kind in ("correlation", "correlationfilter"):
        given = _folded(properties.get("correlationfilter"), where)
        _only(given, _CORRELATION, where)
        # An empty string is an unused field, as above.
        return _correlation({_CORRELATION[key]: value for key, value in given.items() if value != ""}, where)
    raise ConfigInvalid(f"FilterType {kind!r:.40} is unknown", "use Sql or Correlation")


# Both formats


def _entity(name: str, kind: int, given: Mapping[str, object], rules: tuple[Rule, ...] | None = None) -> WantedEntity:
    try:
        timed: dict[str, object] = {}
        for key, value in given.items():
            with _line_of(given, key):
                # Unknown keys pass: `checked_settings` refuses them, with the nearest known name.
                timed[key] = _seconds(key, value) if key in TIMES else value
        return WantedEntity(name, kind, checked_settings(timed), rules)
    except BusError as error:
        # The error text contains the name of the wrong setting: that gives the line.
        wrong = next((key for key in given if re.search(rf"\b{re.escape(key)}\b", error.what)), "")
        with _line_of(given, wrong):
            raise _inside(repr(name), error) from error


def _seconds(key: str, value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        seconds = duration_s(value)
    except BusError as error:
        raise ConfigInvalid(f"{key} is {value!r:.40}, which is not a duration", error.hint) from error
    # None is "never" in our settings; Azure writes the largest TimeSpan for it.
    return None if seconds > LONGEST_S else seconds


def _inside(where: str, error: BusError) -> ConfigInvalid:
    """The error with the name of its entity or rule, after the line number if it has one already."""
    # Some errors of rules name the rule already.
    if where in error.what:
        return ConfigInvalid(error.what, error.hint)
    line, found, what = error.what.partition(": ") if error.what.startswith("line ") else ("", "", error.what)
    return ConfigInvalid(f"{line}{found}{where}: {what}", error.hint)


def _named(given: object, what: str, parts: tuple[str, ...]) -> tuple[LinedObject, str]:
    """An object with a Name and its name. Besides Name and Properties only the given parts are allowed."""
    record = _folded(given, what)
    name = record.get("name")
    if not isinstance(name, str):
        raise ConfigInvalid(f"{what} has no name", 'add a "Name"')
    _only(record, ("name", "properties", *parts), repr(name))
    return record, name


@contextmanager
def _line_of(given: object, name: str = "") -> Iterator[None]:
    """Adds the line to errors of the block: that of `name` in the object, or of the object. The innermost one wins."""
    try:
        yield
    except UsageError as error:
        line = given.lines.get(name, 0) or given.line if isinstance(given, LinedObject) else 0
        # The innermost `_line_of` has added its line already, and is the most exact one.
        if not line or error.what.startswith("line "):
            raise
        raise type(error)(f"line {line}: {error.what}", error.hint) from error


def _without(given: Mapping[str, object], name: str) -> LinedObject:
    rest = LinedObject(given.line if isinstance(given, LinedObject) else 0)
    rest.update({key: value for key, value in given.items() if key != name})
    rest.lines.update(given.lines if isinstance(given, LinedObject) else {})
    return rest


def _folded(given: object, what: str) -> LinedObject:
    """The object with case-folded names: the emulator reads names regardless of case."""
    found = _mapping({} if given is None else given, what)
    folded = LinedObject(found.line if isinstance(found, LinedObject) else 0)
    for key, value in found.items():
        if key.casefold() in folded:
            with _line_of(found, key):
                raise ConfigInvalid(f"{what}: {key!r:.60} occurs twice, in another case", "remove one of them")
        folded[key.casefold()] = value
    if isinstance(found, LinedObject):
        folded.lines.update({key.casefold(): line for key, line in found.lines.items()})
    return folded


def _mapping(given: object, what: str) -> Mapping[str, object]:
    if not isinstance(given, dict):
        hint = 'write {"NAME": {…}, …}' if isinstance(given, list) else ""
        raise ConfigInvalid(f"{what} must be a JSON object, got {given!r:.40}", hint)
    return given


def _items(given: object, what: str) -> list[object]:
    if given is None:
        return []
    if not isinstance(given, list):
        raise ConfigInvalid(f"{what} must be a JSON list, got {given!r:.40}")
    return given


def _text(given: object, where: str) -> str:
    if not isinstance(given, str):
        raise ConfigInvalid(f"{where} has {given!r:.40} instead of a string")
    return given


def _only(given: Mapping[str, object], known: Collection[str], where: str, also: Collection[str] = ()) -> None:
    """Raises ConfigInvalid for another name. `also` are names that a hint may suggest, besides the known ones."""
    for key in given:
        if key not in known:
            with _line_of(given, key):
                hint = hint_for_name(key, [*known, *also])
                raise ConfigInvalid(f"{where} has an unknown name {key!r:.60}", hint)
