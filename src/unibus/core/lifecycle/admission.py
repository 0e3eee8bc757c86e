# mypyc: compiled
"""Admission: whether a send is accepted. Every reason to reject it is found here, before the first change.

So a rejected send changes nothing, and an accepted one cannot fail half-way. Space that a batch was granted is recorded
in `before`, a Load for each entity: the commands of one batch are checked together, before any of them is executed.
"""

from collections.abc import Sequence
from typing import Final

from mypy_extensions import i64

from unibus.core.codec.codec import decode
from unibus.core.flow.deadletter import is_sub_queue
from unibus.core.lifecycle.commands import Send
from unibus.core.lifecycle.missing import hint_for_missing, hint_for_send, meant_subscription
from unibus.core.lifecycle.state.entity import DEAD_LETTERS, KIND_NAMES, QUEUE, SUBSCRIPTION, TOPIC, Entity, is_reserved
from unibus.core.lifecycle.state.state import Load, StoreState
from unibus.counting import counted
from unibus.errors import (
    DuplicateMessage,
    EntityDisabled,
    EntityNotFound,
    MessageTooLarge,
    QuotaExceeded,
    SessionRequired,
    UsageError,
)

ENABLE: Final = "set its status to 'active'"


def target_of(state: StoreState, name: str) -> Entity:
    """The entity of that name. Raises EntityNotFound."""
    found = state.find(name)
    if found is None:
        raise EntityNotFound(f"there is no queue, topic or subscription {name!r}", hint_for_missing(state, name))
    return found


def check_send(state: StoreState, command: Send, now_ns: i64, before: dict[str, Load] | None) -> None:
    """Raise if the send is rejected. `before` has what the batch has sent so far, by entity; None: it is alone."""
    if command.imported is not None:
        _check_imported(state, command, before)
        return
    entity = state.find(command.entity)
    if entity is None:
        if is_reserved(command.entity):
            raise EntityNotFound(f"there is no {command.entity!r}", hint_for_send(command.entity))
        if not command.creates:
            raise EntityNotFound(
                f"there is no queue or topic {command.entity!r}", "create it first, or open the bus without strict"
            )
        _check_not_meant(state, command)
        _check_made(state, command, before)
        if command.dedup_key is not None and before is not None:
            _is_duplicate(command.entity, command.dedup_key, command.raises, False, before)
        return
    if entity.kind == DEAD_LETTERS or entity.kind == SUBSCRIPTION:
        raise UsageError(f"messages cannot be sent to {entity.name!r} directly", hint_for_send(entity.name))
    # From the cheap checks to the expensive ones. None of them changes the state.
    check_message(entity, command.size)
    settings = entity.settings
    if settings.requires_session and command.who.session_id is None and not settings.forward_to:
        raise SessionRequired(f"{entity.name!r} requires a session_id", "give the message a session_id")
    key = dedup_key(entity, command)
    # A duplicate stores nothing, so it needs no space: a repeated send is not rejected because the entity is full.
    if key is not None and _is_duplicate(entity.name, key, command.raises, entity.is_known(key, now_ns), before):
        return
    # A scheduled message is stored in the topic until it is due, and is routed then by the rules of that time.
    if entity.kind == TOPIC and entity.subscriptions and command.visible_ns <= now_ns:
        _check_arrivals(state, entity, command, before)
    else:
        check_target_quotas(entity, command.size, before)


def check_message(entity: Entity, size: i64) -> None:
    """Raise if the entity does not accept messages now, or not of this size."""
    settings = entity.settings
    if not settings.sends:
        raise EntityDisabled(f"messages cannot be sent to {entity.name!r}: it is {settings.status}", ENABLE)
    if settings.message_size_max and size > settings.message_size_max:
        raise MessageTooLarge(
            f"the message has {size} bytes, and {entity.name!r} accepts at most {settings.message_size_max}",
            "send a reference, or raise max_message_size_kb",
        )


def check_number(state: StoreState, kind: int, here: int) -> None:
    """Raise if there may not be one more than `here`: entities of a kind in the store, or subscriptions of a topic."""
    most = state.most.get(kind, here + 1)
    if here >= most:
        what = f"{KIND_NAMES[kind]}s"
        where = "the topic" if kind == SUBSCRIPTION else "the store"
        raise QuotaExceeded(
            f"{where} has {here} {what} and may have {most}",
            f"delete some, or open the store with a higher max_{what}",
        )


def _check_not_meant(state: StoreState, command: Send) -> None:
    """Raise for `events/high` if `events` has a subscription `high`: a new queue of that name would get the messages,
    and no receiver of the subscription would. A persistent channel may have such a name: only its publishers use it."""
    if command.creates == QUEUE:
        meant = meant_subscription(state, command.entity)
        if meant is not None:
            raise EntityNotFound(
                f"there is no queue or topic {command.entity!r}, but a subscription {meant.name!r}",
                f"{hint_for_send(meant.name)}; a queue of that name has to be created first",
            )


def _check_made(state: StoreState, command: Send, before: dict[str, Load] | None) -> None:
    """A send to an unknown name creates the entity, and a batch may create several: raise if these are too many."""
    kind = command.creates
    made = 0
    if before is not None:
        # An earlier send of this batch creates it.
        if command.entity in before:
            return
        _load(before, command.entity)
        load = _load(before, f"${kind}")  # No entity can have this name.
        made = load.count
        load.count += 1
    check_number(state, kind, state.kinds.get(kind, 0) + made)


def _check_arrivals(state: StoreState, topic: Entity, command: Send, before: dict[str, Load] | None) -> None:
    """Only the matching subscriptions need space for the message. They are computed once, here: nothing can change
    before the batch is executed."""
    router = state.router(topic)
    if router.takes_all:
        check_target_quotas(topic, command.size, before)
        return
    message = command.message
    if message is None:
        message = decode(command.data)
    arrivals = router.arrivals(message)
    if before is None and len(arrivals) > 1:
        before = {}  # A subscription may get several copies.
    for arrival in arrivals:
        if not arrival.error and is_stored_in(arrival.entity):
            check_quota(arrival.entity, command.size, before)
    command.arrivals = arrivals


def check_target_quotas(entity: Entity, size: i64, before: dict[str, Load] | None) -> None:
    """Raise if an entity that would store the message is full."""
    if is_stored_in(entity):
        check_quota(entity, size, before)
    else:
        for target in entity.subscriptions:
            if is_stored_in(target):
                check_quota(target, size, before)


def _is_duplicate(entity: str, key: str, raises: bool, known: bool, before: dict[str, Load] | None) -> bool:
    """Whether the entity knows the key, or the batch has used it before. Raises instead if the sender asked for it."""
    if before is not None:
        load = _load(before, entity)
        known = known or key in load.keys
        # For every send: a later one of the batch with this key is a duplicate of it.
        load.keys.add(key)
    if known and raises:
        raise DuplicateMessage(f"{key!r} was sent to {entity!r} within its dedup window", "nothing was stored")
    return known


def _load(before: dict[str, Load], entity: str) -> Load:
    load = before.get(entity)
    if load is None:
        load = Load()
        before[entity] = load
    return load


def check_quota(
    entity: Entity, size: i64, before: dict[str, Load] | None, batch: dict[str, Load] | None = None
) -> None:
    """Raise if the entity is full, including what is in `before`; the message is added to that.

    `batch` is for a decision while a batch is executed: the space that the batch was granted counts as used.
    """
    settings = entity.settings
    held_size: i64 = entity.size_bytes
    held_count: i64 = len(entity.entries)
    if batch is not None:
        granted = batch.get(entity.name)
        if granted is not None and granted.count:
            # Not what the entity has now: part of the batch is executed already, and would be counted twice.
            held_size = granted.size_before + granted.size
            held_count = granted.count_before + granted.count
    count: i64 = 0
    if before is not None:
        load = _load(before, entity.name)
        count = load.count
        load.count += 1
        load.size += size
        # Kept for decisions during the execution, when the entity itself has changed.
        load.size_before = held_size
        load.count_before = held_count
        size = load.size
    if held_size + size > settings.size_max:
        raise QuotaExceeded(
            f"{entity.name!r} holds {held_size} bytes and may hold {settings.size_max}",
            "receive some, or raise max_size_mb",
        )
    if settings.count_max and held_count + count >= settings.count_max:
        raise QuotaExceeded(
            f"{entity.name!r} holds {counted(held_count, 'message')} and may hold {settings.count_max}",
            "receive some, or raise max_count",
        )


def is_stored_in(entity: Entity) -> bool:
    """Whether the entity itself stores what arrives: not a topic with subscriptions, not an entity that forwards."""
    if entity.kind == TOPIC:
        return entity.settings.keeps and not entity.subscriptions
    return not entity.settings.forward_to


def dedup_key(entity: Entity, command: Send) -> str | None:
    """The dedup key is always used; the message id only if the entity has duplicate detection."""
    if command.dedup_key is not None:
        return command.dedup_key
    return command.who.message_id if entity.settings.dedup_ns else None


def count_new(state: StoreState, commands: Sequence[Send], now_ns: i64) -> int:
    """How many of these sends are not duplicates: neither known to the entity nor repeated in the batch."""
    used: set[tuple[str, str]] = set()
    count = 0
    for command in commands:
        entity = state.find(command.entity)
        key = command.dedup_key if entity is None else dedup_key(entity, command)
        if key is not None:
            place = (command.entity.casefold(), key)  # Names that differ only by case are one entity.
            if place in used or (entity is not None and entity.is_known(key, now_ns)):
                continue
            used.add(place)
        count += 1
    return count


def _check_imported(state: StoreState, command: Send, before: dict[str, Load] | None) -> None:
    """Check an import. A dead-letter queue accepts every message, as always; another entity needs space, and a session
    id if it requires one."""
    entity = imported_entity(state, command.entity)
    if is_sub_queue(command.entity):
        if entity.kind == TOPIC:
            raise UsageError(f"the topic {entity.name!r} has no dead-letter queue", "its subscriptions have one")
        return
    if entity.settings.requires_session and command.who.session_id is None:
        raise SessionRequired(f"{entity.name!r} requires a session_id", "the message has no session_id")
    check_quota(entity, command.size, before)


def imported_entity(state: StoreState, name: str) -> Entity:
    """The entity of an import; for a dead-letter queue, which may not exist yet, the entity that it belongs to."""
    return target_of(state, name.rpartition("/")[0] if is_sub_queue(name) else name)
