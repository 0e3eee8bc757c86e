# mypyc: compiled
"""Create, update and delete entities and rules.

All entities share one name space, and names that differ only by case are equal. Declaring the same settings again is
not a change. A sequence is never reused under one name, not even after its entity was deleted and created again:
history identifies a message by name and sequence.
"""

from typing import Final

from mypy_extensions import i64

from unibus.core.envelope.fields import plain_text
from unibus.core.lifecycle.admission import check_number
from unibus.core.lifecycle.commands import Declare, Drop, DropRule, SetRule
from unibus.core.lifecycle.missing import hint_for_missing
from unibus.core.lifecycle.sending import declare
from unibus.core.lifecycle.state.apply import record
from unibus.core.lifecycle.state.changes import Declared, Dropped, Settings
from unibus.core.lifecycle.state.deadlines import NEVER
from unibus.core.lifecycle.state.entity import (
    DEAD_LETTERS,
    KIND_NAMES,
    NAMESPACE,
    NAMESPACE_NAME,
    SUBSCRIPTION,
    TOPIC,
    Entity,
    is_reserved,
)
from unibus.core.lifecycle.state.rules import Rule, rule_set_of
from unibus.core.lifecycle.state.settings import SETTINGS, STATUS_RECEIVE_DISABLED, STATUS_SEND_DISABLED
from unibus.core.lifecycle.state.state import StoreState, owner_name
from unibus.errors import EntityExists, EntityNotFound, NameInvalid, UsageError

_FIXED: Final = tuple([row.name for row in SETTINGS.values() if row.fixed])
_KINDS: Final[dict[str, tuple[int, ...]]] = {
    row.name: tuple([kind for kind, name in KIND_NAMES.items() if name in row.kinds])
    for row in SETTINGS.values()
    if row.kinds
}
"""Settings that only some kinds of entity have."""

_NAMESPACE_SETTINGS: Final = frozenset({"authorization_rules", "user_metadata"})


def has_setting(kind: int, name: str) -> bool:
    """Whether entities of this kind have this setting."""
    kinds = _KINDS.get(name)
    return kinds is None or kind in kinds


def check_declare(state: StoreState, command: Declare, alone: bool) -> None:
    if not alone:
        raise UsageError("a transaction cannot create or change entities", "do it before the transaction or after it")
    if command.kind == NAMESPACE:
        _check_namespace(command)
        return
    found = state.find(command.name)
    kind = command.kind if found is None else found.kind
    if found is None and command.update:
        raise EntityNotFound(f"there is no entity {command.name!r}", hint_for_missing(state, command.name))
    _check_kind(command.name, kind, command.settings)
    if found is None:
        if command.kind != SUBSCRIPTION and is_reserved(command.name):
            raise NameInvalid(
                f"the name {command.name!r} is reserved for a part of another entity", "choose another name"
            )
        _check_place(state, command)
    elif command.new_only:
        raise EntityExists(
            f"{found.name!r} exists already: it is a {KIND_NAMES[found.kind]}", "update it, or choose another name"
        )
    elif not command.update and (found.name != command.name or found.kind != command.kind):
        is_other_name = found.name != command.name
        hint = "names that differ only by case are the same name" if is_other_name else "choose another name"
        raise EntityExists(f"{found.name!r} exists already: it is a {KIND_NAMES[found.kind]}", hint)
    elif not command.update and _changed(found, command.settings):
        raise EntityExists(f"{found.name!r} exists with other settings", "use update_entity")
    elif command.update:
        for name in _FIXED:
            if name in command.settings and command.settings[name] != found.settings.as_dict()[name]:
                raise UsageError(f"{name} of {found.name!r} cannot be changed", "delete it and create it again")


def _check_namespace(command: Declare) -> None:
    if command.name != NAMESPACE_NAME:
        raise NameInvalid(f"there is no namespace {command.name!r:.80}", f"the only one is {NAMESPACE_NAME!r}")
    for name in command.settings:
        if name not in _NAMESPACE_SETTINGS:
            raise UsageError(
                f"the namespace has no setting {name!r}", f"it has {', '.join(sorted(_NAMESPACE_SETTINGS))}"
            )


def _check_kind(entity: str, kind: int, settings: Settings) -> None:
    for name in settings:
        kinds = _KINDS.get(name)
        if kinds is not None and kind not in kinds:
            homes = " and ".join([f"{KIND_NAMES[each]}s" for each in kinds])
            raise UsageError(
                f"{entity!r} is a {KIND_NAMES[kind]} and cannot have the setting {name}: only {homes} have it"
            )
    status = settings.get("status")
    if (kind == TOPIC and status == STATUS_RECEIVE_DISABLED) or (
        kind == SUBSCRIPTION and status == STATUS_SEND_DISABLED
    ):
        raise UsageError(f"a {KIND_NAMES[kind]} such as {entity!r} cannot be {status}", "use 'active' or 'disabled'")


def _check_place(state: StoreState, command: Declare) -> None:
    if command.kind != SUBSCRIPTION:
        check_number(state, command.kind, state.kinds.get(command.kind, 0))
        return
    topic = state.find(owner_name(command.name, SUBSCRIPTION))
    if topic is None or topic.kind != TOPIC:
        raise EntityNotFound(f"the topic of {command.name!r} does not exist", "create the topic first")
    check_number(state, SUBSCRIPTION, len(topic.subscriptions))


def _changed(entity: Entity, settings: Settings) -> bool:
    now = entity.settings.as_dict()
    if settings.get("duplicate_detection") is not None:
        now["duplicate_detection"] = entity.settings.dedup_ns > 0  # It may be implied by the window.
    return any([now[name] != value for name, value in settings.items()])


def declare_entity(state: StoreState, command: Declare, now_ns: i64) -> None:
    found = state.find_any(command.name)
    if found is None:
        declare(state, command.name, command.kind, command.settings, now_ns)
        return
    found.used(now_ns)
    if _changed(found, command.settings):
        # All settings, not only the changed ones: a change is absolute, so recovery needs no earlier one.
        settings: Settings = {**found.settings.given, **command.settings}
        record(state, Declared(now_ns, found.number, found.sequence, found.name, found.kind, settings))


def check_rule(state: StoreState, command: SetRule | DropRule, alone: bool) -> None:
    if not alone:
        raise UsageError("a transaction cannot create or delete rules", "do it before the transaction or after it")
    subscription = _subscription(state, command.entity)
    rules = subscription.rule_set(state.new_id)
    if isinstance(command, DropRule):
        if rules.find(plain_text("the name of a rule", command.name)) is None:
            raise EntityNotFound(f"{subscription.name!r} has no rule {command.name!r}")
        return
    name = command.rule.name
    exists = rules.find(name) is not None
    if exists and not command.update:
        raise EntityExists(f"{subscription.name!r} has a rule {name!r}", "update it, or choose another name")
    if command.update and not exists:
        raise EntityNotFound(f"{subscription.name!r} has no rule {name!r}", "create it first")
    # Compiled here only to check it: `set_rule` must not raise after the first change.
    rule_set_of(rules.text_with(command.rule), rules.mode, None, rules)  # Raises if it is invalid, or one too many.


def _subscription(state: StoreState, name: str) -> Entity:
    found = state.find(name)
    if found is None or found.kind != SUBSCRIPTION:
        hint = hint_for_missing(state, name, "its name has the form topic/Subscriptions/name")
        raise EntityNotFound(f"there is no subscription {name!r}", hint)
    return found


def set_rule(state: StoreState, command: SetRule | DropRule, now_ns: i64) -> None:
    subscription = _subscription(state, command.entity)
    subscription.used(now_ns)
    rules = subscription.rule_set(state.new_id)
    if isinstance(command, DropRule):
        text = rules.text_without(command.name)
    else:
        given = command.rule
        before = rules.find(given.name)
        created_ns = now_ns if before is None else before.created_ns
        text = rules.text_with(Rule(given.name, given.condition, given.action, created_ns))
    settings: Settings = {**subscription.settings.given, "rules": text}
    record(
        state, Declared(now_ns, subscription.number, subscription.sequence, subscription.name, SUBSCRIPTION, settings)
    )


def check_drop(state: StoreState, command: Drop, alone: bool) -> None:
    if not alone:
        raise UsageError("a transaction cannot delete entities", "do it before the transaction or after it")
    found = state.find(command.name)
    if found is None:
        raise EntityNotFound(f"there is no entity {command.name!r}", hint_for_missing(state, command.name, ""))
    if found.kind == DEAD_LETTERS:
        raise UsageError(
            f"the dead-letter queue {found.name!r} is only deleted with its entity", "receive its messages instead"
        )


def drop_entity(state: StoreState, command: Drop, now_ns: i64) -> None:
    found = state.find(command.name)
    assert found is not None
    # Parts first: no subscription and no dead-letter queue ever exists without its entity. `subscriptions` is replaced
    # by each deletion, so the loop runs over the old list.
    for subscription in found.subscriptions:
        _drop(state, subscription, now_ns)
    _drop(state, found, now_ns)


def drop_idle(state: StoreState, now_ns: i64) -> None:
    """Delete the entities that were idle for their `auto_delete_on_idle`, and compute when to check again."""
    state.idle_check_ns = NEVER
    # A deletion removes entities from the dict, also others than this one.
    for entity in list(state.auto_deleted.values()):
        at_ns = entity.idle_at_ns(state.idle_since_ns, now_ns)
        if entity.deleted:
            continue  # Deleted with its topic, in this loop.
        if at_ns <= now_ns:
            drop_entity(state, Drop(entity.name), now_ns)
        elif at_ns < state.idle_check_ns:
            state.idle_check_ns = at_ns


def _drop(state: StoreState, entity: Entity, now_ns: i64) -> None:
    if entity.dead is not None:
        _drop(state, entity.dead, now_ns)
    record(state, Dropped(now_ns, entity.number, entity.sequence, entity.name, len(entity.entries)))
