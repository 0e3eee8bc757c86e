# mypyc: compiled
"""Declare and drop: how entities are made, changed and deleted.

One name space: names that differ only by case cannot both exist. The same settings again are no change. A sequence is
never used twice under one name, also when its entity was deleted and made anew.
"""

from mypy_extensions import i64

from unibus.core.life.book import Book, owner_name
from unibus.core.life.changes import Declared, Dropped, Settings
from unibus.core.life.commands import Declare, Drop, DropRule, SetRule
from unibus.core.life.entity import DEAD_LETTERS, KIND_NAMES, SUBSCRIPTION, TOPIC, Entity, is_reserved
from unibus.core.life.playing import note
from unibus.core.life.rules import Rule, rules_of, text_of
from unibus.core.life.sending import declare
from unibus.errors import EntityExists, EntityNotFound, NameInvalid, UsageError
from unibus.limits import SUBSCRIPTIONS_PER_TOPIC_MAX

_FIXED = ("requires_session",)
_SUBSCRIPTION_ONLY = ("rules", "filter_mode", "dead_letter_on_filter_error")


def check_declare(book: Book, command: Declare, alone: bool) -> None:
    if not alone:
        raise UsageError("entities are made and deleted outside of a transaction")
    found = book.find(command.name)
    kind = command.kind if found is None else found.kind
    for name in _SUBSCRIPTION_ONLY:
        if name in command.settings and kind != SUBSCRIPTION:
            raise UsageError(f"{name} is for subscriptions, and {command.name!r} is none")
    if found is None:
        if command.update:
            raise EntityNotFound(f"there is no entity {command.name!r}", "create it first")
        if command.kind != SUBSCRIPTION and is_reserved(command.name):
            raise NameInvalid(f"{command.name!r} is a name that only goes with another entity", "choose another name")
        _check_owner(book, command)
    elif not command.update and (found.name != command.name or found.kind != command.kind):
        raise EntityExists(
            f"{found.name!r} is a {KIND_NAMES[found.kind]}", "names that differ only by case are the same name"
        )
    elif not command.update and _changed(found, command.settings):
        raise EntityExists(f"{found.name!r} exists with other settings", "use update_entity")
    elif command.update:
        for name in _FIXED:
            if name in command.settings and command.settings[name] != found.settings.as_dict()[name]:
                raise UsageError(f"{name} of {found.name!r} cannot be changed", "delete it and make it anew")


def _check_owner(book: Book, command: Declare) -> None:
    if command.kind != SUBSCRIPTION:
        return
    topic = book.find(owner_name(command.name, SUBSCRIPTION))
    if topic is None or topic.kind != TOPIC:
        raise EntityNotFound(f"{command.name!r} needs its topic", "create the topic first")
    if len(topic.subscriptions) >= SUBSCRIPTIONS_PER_TOPIC_MAX:
        raise UsageError(f"topic {topic.name!r} has {SUBSCRIPTIONS_PER_TOPIC_MAX} subscriptions, as many as it may")


def _changed(entity: Entity, settings: Settings) -> bool:
    now = entity.settings.as_dict()
    return any([now[name] != value for name, value in settings.items()])


def declare_entity(book: Book, command: Declare, now_ns: i64) -> None:
    found = book.find(command.name)
    if found is None:
        declare(book, command.name, command.kind, command.settings, now_ns)
    elif _changed(found, command.settings):
        settings: Settings = {**found.settings.given, **command.settings}
        note(book, Declared(now_ns, found.number, found.sequence, found.name, found.kind, settings))


def check_rule(book: Book, command: SetRule | DropRule, alone: bool) -> None:
    if not alone:
        raise UsageError("rules are made and deleted outside of a transaction")
    subscription = _subscription(book, command.entity)
    rules = subscription.rules(book.new_id)
    if isinstance(command, DropRule):
        if _place(rules, command.name) < 0:
            raise EntityNotFound(f"{subscription.name!r} has no rule {command.name!r}")
        return
    name = command.rule.name
    there = _place(rules, name) >= 0
    if there and not command.update:
        raise EntityExists(f"{subscription.name!r} has a rule {name!r}", "update it, or choose another name")
    if command.update and not there:
        raise EntityNotFound(f"{subscription.name!r} has no rule {name!r}", "create it first")
    rules_of(text_of([*rules, command.rule] if not there else [command.rule]), subscription.settings.filter_mode)


def _subscription(book: Book, name: str) -> Entity:
    found = book.find(name)
    if found is None or found.kind != SUBSCRIPTION:
        raise EntityNotFound(f"there is no subscription {name!r}", "topic/Subscriptions/name")
    return found


def _place(rules: list[Rule], name: str) -> int:
    folded = name.casefold()
    return next((at for at, rule in enumerate(rules) if rule.name.casefold() == folded), -1)


def set_rule(book: Book, command: SetRule | DropRule, now_ns: i64) -> None:
    subscription = _subscription(book, command.entity)
    rules = list(subscription.rules(book.new_id))
    if isinstance(command, DropRule):
        del rules[_place(rules, command.name)]
    else:
        rule = command.rule
        at = _place(rules, rule.name)
        rule.created_ns = rules[at].created_ns if at >= 0 else now_ns
        rules[at if at >= 0 else len(rules) :] = [rule, *(rules[at + 1 :] if at >= 0 else [])]
    settings: Settings = {**subscription.settings.given, "rules": text_of(rules)}
    note(book, Declared(now_ns, subscription.number, subscription.sequence, subscription.name, SUBSCRIPTION, settings))


def check_drop(book: Book, command: Drop, alone: bool) -> None:
    if not alone:
        raise UsageError("entities are made and deleted outside of a transaction")
    found = book.find(command.name)
    if found is None:
        raise EntityNotFound(f"there is no entity {command.name!r}")
    if found.kind == DEAD_LETTERS:
        raise UsageError(f"{found.name!r} goes with its entity", "receive its messages instead")


def drop_entity(book: Book, command: Drop, now_ns: i64) -> None:
    found = book.find(command.name)
    assert found is not None
    for subscription in found.subscriptions:
        _drop(book, subscription, now_ns)
    _drop(book, found, now_ns)


def _drop(book: Book, entity: Entity, now_ns: i64) -> None:
    if entity.dead is not None:
        _drop(book, entity.dead, now_ns)
    note(book, Dropped(now_ns, entity.number, entity.sequence, entity.name, len(entity.entries)))
